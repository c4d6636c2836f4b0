/** Line icons on a 16 by 16 grid, drawn with the colour of the text around them. */
const paths = {
  berth: 'M2.5 3v10h11V3M5 10.5h6L9.8 7.5H6.2z',
  chevron: 'M6 4l4 4-4 4',
  folder: 'M1.8 4.3c0-.6.4-1 1-1h3.3l1.5 1.6h5.6c.6 0 1 .4 1 1v6c0 .6-.4 1-1 1H2.8c-.6 0-1-.4-1-1z',
  file: 'M4 1.8h5l3 3v8.4c0 .6-.4 1-1 1H4c-.6 0-1-.4-1-1V2.8c0-.6.4-1 1-1zM9 1.8v3h3',
  link: 'M6.5 9.5l3-3M7.3 4.6l1-1a2.9 2.9 0 014.1 4.1l-1 1M8.7 11.4l-1 1a2.9 2.9 0 01-4.1-4.1l1-1',
  other: 'M3 3h10v10H3zM6 6l4 4M10 6l-4 4',
  changes: 'M8 2.5v6M5 5.5h6M5 12.5h6',
  chat: 'M2 3.5c0-.6.4-1 1-1h10c.6 0 1 .4 1 1v6.6c0 .6-.4 1-1 1H7l-3.4 2.6v-2.6H3c-.6 0-1-.4-1-1z',
  view: 'M5.2 4.5L1.8 8l3.4 3.5M10.8 4.5L14.2 8l-3.4 3.5',
  download: 'M8 2v8M4.8 7L8 10.2 11.2 7M2.5 13.5h11',
  sun: 'M8 5.2a2.8 2.8 0 100 5.6 2.8 2.8 0 000-5.6zM8 1.2v1.6M8 13.2v1.6M1.2 8h1.6M13.2 8h1.6M3.2 3.2l1.1 1.1M11.7 11.7l1.1 1.1M12.8 3.2l-1.1 1.1M4.3 11.7l-1.1 1.1',
  moon: 'M13.2 9.6A5.6 5.6 0 016.4 2.8a5.6 5.6 0 106.8 6.8z',
  system: 'M2 3h12v8H2zM5.5 13.5h5M8 11v2.5',
  signout: 'M6.5 2.5H3.4c-.5 0-.9.4-.9.9v9.2c0 .5.4.9.9.9h3.1M10.2 5L13.2 8l-3 3M13 8H6.2',
  stop: 'M4 4h8v8H4z',
  wake: 'M5 3.2l7 4.8-7 4.8z',
  trash: 'M2.8 4.3h10.4M6 4V2.4h4V4M4.2 4.5l.6 8.9h6.4l.6-8.9M6.8 7v4M9.2 7v4',
  up: 'M4 9.5L8 5.5l4 4',
  down: 'M4 6.5l4 4 4-4',
  warning: 'M8 2.2L14.5 13.5h-13zM8 6.3v3.4M8 11.4v.4',
  close: 'M4 4l8 8M12 4l-8 8',
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name, className }: { name: IconName; className?: string }) {
  return (
    <svg className={className ? `icon ${className}` : 'icon'} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}
