import { canonicalPlace, decodePath, encodePath, placeKey, parseKey, type Place } from './place.ts';

/** How an open file is shown. */
export type View = 'code' | 'diff';

/** What the address bar says: every state of the page worth a link. */
export interface Route {
  /** Null when the address names nothing that the page shows. */
  place: Place | null;
  view: View;
  /** The tool call whose earlier content a diff is taken against. */
  call: string | null;
}

const roots = new Set(['me', 'shared']);

export function parseRoute(pathname: string, search: string): Route {
  const query = new URLSearchParams(search);
  const view: View = query.get('view') === 'diff' ? 'diff' : 'code';
  const call = query.get('call');
  if (pathname === '/' || pathname === '') return { place: { root: 'me', path: '' }, view, call };
  const match = /^\/files\/(.+?)\/?$/.exec(pathname);
  const place = match?.[1] === undefined ? null : parseKey(decodePath(match[1]));
  return { place: place && roots.has(place.root) ? canonicalPlace(place) : null, view, call };
}

export function formatRoute(place: Place, view: View = 'code', call: string | null = null): string {
  const query = new URLSearchParams();
  if (view === 'diff') query.set('view', 'diff');
  if (view === 'diff' && call !== null) query.set('call', call);
  const search = query.toString();
  return `/files/${encodePath(placeKey(place))}${search && `?${search}`}`;
}
