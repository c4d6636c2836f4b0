import { useAnnouncement } from '../live/announce.ts';

/** Where screen readers hear what happened; nothing here takes the focus. */
export function Announcer() {
  const text = useAnnouncement((a) => a.text);
  return <div role="status" className="visually-hidden">{text}</div>;
}
