import { useSyncExternalStore } from 'react';

function useMedia(query: string): boolean {
  return useSyncExternalStore(
    (listener) => {
      const media = window.matchMedia(query);
      media.addEventListener('change', listener);
      return () => media.removeEventListener('change', listener);
    },
    () => window.matchMedia(query).matches,
  );
}

/** How many panes fit beside each other. */
export type Layout = 'one' | 'two' | 'three';

export function useLayout(): Layout {
  const three = useMedia('(min-width: 1200px)');
  const two = useMedia('(min-width: 768px)');
  if (three) return 'three';
  return two ? 'two' : 'one';
}

/** The height of a row in lists: more where fingers point. */
export function useRowHeight(): number {
  return useMedia('(pointer: coarse), (max-width: 767px)') ? 40 : 26;
}

/** The height of a row with two lines of text. */
export function useTwoLineHeight(): number {
  return useMedia('(pointer: coarse), (max-width: 767px)') ? 56 : 46;
}
