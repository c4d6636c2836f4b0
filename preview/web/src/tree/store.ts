import { create } from 'zustand';
import { listDirectory } from '../api/calls.ts';
import { ApiError, messageOf } from '../api/client.ts';
import type { Entry } from '../api/types.ts';
import { parseKey } from '../route/place.ts';
import { parentPath } from '../text/names.ts';
import { applyChanges, type PlacedChange } from './apply.ts';
import { ancestors, compareEntries, type Directory, type TreeState } from './model.ts';

interface TreeStore extends TreeState {
  /** Reads a directory, unless it was read before. */
  open(key: string): void;
  /** Reads a directory again, keeping what is shown meanwhile. */
  reload(key: string): void;
  more(key: string): void;
  expand(keys: readonly string[]): void;
  collapse(keys: readonly string[]): void;
  /** Opens the directories that lead to a key. */
  reveal(key: string): void;
  apply(changes: readonly PlacedChange[]): void;
  /** Reads again all that was read: changes may have been missed. */
  resync(): void;
  /** Reads again what could not be read. */
  retry(): void;
  clear(): void;
}

/** The directories being read, and whether a change came meanwhile. */
const reading = new Map<string, { stale: boolean }>();

const blank: Directory = { entries: [], next: null, status: 'loading' };

/** Reads pages from a position on until `count` names are there, or all. */
async function readPages(key: string, known: readonly Entry[], after: string | null, count: number): Promise<Directory> {
  const byName = new Map(known.map((e) => [e.name, e]));
  let next = after;
  do {
    const page = await listDirectory(parseKey(key), next);
    for (const e of page.entries) byName.set(e.name, e);
    next = page.next ?? null;
  } while (next !== null && byName.size < count);
  return { entries: [...byName.values()].sort(compareEntries), next, status: 'ready' };
}

export const useTree = create<TreeStore>((set, get) => {
  const put = (key: string, d: Directory) => set({ directories: new Map(get().directories).set(key, d) });

  const forget = (key: string) => {
    const directories = new Map(get().directories);
    const expanded = new Set(get().expanded);
    directories.delete(key);
    expanded.delete(key);
    set({ directories, expanded });
  };

  const read = async (key: string, known: readonly Entry[], after: string | null, count: number) => {
    if (reading.has(key)) return;
    const mark = { stale: false };
    reading.set(key, mark);
    const old = get().directories.get(key);
    put(key, old && old.status !== 'error' ? old : blank);
    try {
      put(key, await readPages(key, known, after, count));
    } catch (error) {
      const gone = error instanceof ApiError && error.status === 404;
      // A root is never gone: an unused shared directory is just empty.
      if (gone && parseKey(key).path !== '') forget(key);
      else if (gone) put(key, { entries: [], next: null, status: 'ready' });
      else put(key, { entries: old?.entries ?? [], next: null, status: 'error', error: messageOf(error) });
      mark.stale = false;
    } finally {
      reading.delete(key);
    }
    if (mark.stale) get().reload(key);
  };

  return {
    directories: new Map(),
    expanded: new Set(),

    open(key) {
      const d = get().directories.get(key);
      if (!d || d.status === 'error') void read(key, [], null, 0);
    },
    reload(key) {
      const mark = reading.get(key);
      if (mark) mark.stale = true;
      else void read(key, [], null, get().directories.get(key)?.entries.length ?? 0);
    },
    more(key) {
      const d = get().directories.get(key);
      if (d?.next) void read(key, d.entries, d.next, 0);
    },
    expand(keys) {
      set({ expanded: new Set([...get().expanded, ...keys]) });
      keys.forEach(get().open);
    },
    collapse(keys) {
      const expanded = new Set(get().expanded);
      keys.forEach((key) => expanded.delete(key));
      set({ expanded });
    },
    reveal(key) {
      get().expand(ancestors(key, parseKey(key).root));
    },
    apply(changes) {
      set(applyChanges(get(), changes));
      for (const c of changes) {
        for (const path of [c.path, c.from ?? c.path]) {
          const mark = reading.get(parentPath(`${c.root}/${path}`));
          if (mark) mark.stale = true;
        }
      }
    },
    resync() {
      [...get().directories.keys()].forEach(get().reload);
    },
    retry() {
      for (const [key, d] of get().directories) if (d.status === 'error') get().reload(key);
    },
    clear() {
      set({ directories: new Map(), expanded: new Set() });
    },
  };
});
