import { useMemo, useSyncExternalStore } from 'react';
import { parseRoute, type Route } from './route.ts';

const moved = 'berth:navigate';

function subscribe(listener: () => void): () => void {
  window.addEventListener('popstate', listener);
  window.addEventListener(moved, listener);
  return () => {
    window.removeEventListener('popstate', listener);
    window.removeEventListener(moved, listener);
  };
}

const address = () => window.location.pathname + window.location.search;

/** The route of the address bar; renders again when it changes. */
export function useRoute(): Route {
  const now = useSyncExternalStore(subscribe, address);
  return useMemo(() => {
    const url = new URL(now, window.location.origin);
    return parseRoute(url.pathname, url.search);
  }, [now]);
}

/** Goes to an address of this page without loading it again. */
export function navigate(href: string, how: 'push' | 'replace' = 'push'): void {
  if (href === address()) return;
  if (how === 'push') window.history.pushState(null, '', href);
  else window.history.replaceState(null, '', href);
  window.dispatchEvent(new Event(moved));
}
