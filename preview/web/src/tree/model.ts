import type { Entry } from '../api/types.ts';
import { baseName } from '../text/names.ts';

/** What the page knows of one directory. */
export interface Directory {
  /** Sorted: directories first, then by name. */
  entries: readonly Entry[];
  /** Where the next page of the listing begins, when there is more. */
  next: string | null;
  status: 'loading' | 'ready' | 'error';
  error?: string;
}

/** The tree: the directories by key (see place.ts), and which are open. */
export interface TreeState {
  directories: ReadonlyMap<string, Directory>;
  expanded: ReadonlySet<string>;
}

/** One visible row of the tree. */
export interface TreeRow {
  key: string;
  type: 'entry' | 'loading' | 'empty' | 'error' | 'more';
  /** What is shown: a name, or the text of a note. */
  label: string;
  kind: Entry['kind'];
  entry: Entry | null;
  level: number;
  position: number;
  siblings: number;
  expanded: boolean;
  /** The key of the directory that the row is in; empty for the roots. */
  parent: string;
}

export interface TreeRoot {
  key: string;
  label: string;
}

const collator = new Intl.Collator('en', { numeric: true, sensitivity: 'base' });

export function compareEntries(a: Entry, b: Entry): number {
  const folders = Number(b.kind === 'dir') - Number(a.kind === 'dir');
  return folders || collator.compare(a.name, b.name) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
}

function note(type: TreeRow['type'], label: string, dir: string, level: number, siblings: number): TreeRow {
  return { key: `${dir}/\0${type}`, type, label, kind: 'other', entry: null, level, position: siblings, siblings, expanded: false, parent: dir };
}

/** The row that says what a directory's listing lacks, if anything. */
function noteOf(dir: string, d: Directory | undefined, level: number): TreeRow | null {
  if (!d || (d.status === 'loading' && d.entries.length === 0)) return note('loading', 'Loading…', dir, level, 1);
  if (d.status === 'error') return note('error', d.error ?? 'Cannot be read', dir, level, d.entries.length + 1);
  if (d.next !== null) return note('more', 'Show more', dir, level, d.entries.length + 1);
  if (d.entries.length === 0) return note('empty', 'Empty', dir, level, 1);
  return null;
}

/** Lists the visible rows, top to bottom. Deep trees cost no stack. */
export function flatten(state: TreeState, roots: readonly TreeRoot[]): TreeRow[] {
  const rows: TreeRow[] = [];
  interface Open {
    dir: string;
    entries: readonly Entry[];
    at: number;
    level: number;
    siblings: number;
    note: TreeRow | null;
  }
  const enter = (dir: string, level: number): Open => {
    const d = state.directories.get(dir);
    const end = noteOf(dir, d, level);
    const entries = d?.entries ?? [];
    return { dir, entries, at: 0, level, siblings: entries.length + (end ? 1 : 0), note: end };
  };
  roots.forEach((root, i) => {
    const expanded = state.expanded.has(root.key);
    rows.push({
      key: root.key, type: 'entry', label: root.label, kind: 'dir', entry: null, level: 1,
      position: i + 1, siblings: roots.length, expanded, parent: '',
    });
    const stack: Open[] = expanded ? [enter(root.key, 2)] : [];
    for (let top = stack.at(-1); top; top = stack.at(-1)) {
      const entry = top.entries[top.at];
      if (!entry) {
        if (top.note) rows.push(top.note);
        stack.pop();
        continue;
      }
      top.at++;
      const key = `${top.dir}/${entry.name}`;
      const open = entry.kind === 'dir' && state.expanded.has(key);
      rows.push({
        key, type: 'entry', label: entry.name, kind: entry.kind, entry, level: top.level,
        position: top.at, siblings: top.siblings, expanded: open, parent: top.dir,
      });
      if (open) stack.push(enter(key, top.level + 1));
    }
  });
  return rows;
}

/**
 * Which row takes the focus when the focused one is gone: the next that is left
 * below it, else the one before it.
 */
export function focusAfter(before: readonly TreeRow[], after: readonly TreeRow[], focused: string): string {
  const left = new Set(after.map((r) => r.key));
  if (left.has(focused)) return focused;
  const at = before.findIndex((r) => r.key === focused);
  if (at >= 0) {
    const found = before.slice(at + 1).find((r) => left.has(r.key)) ?? before.slice(0, at).reverse().find((r) => left.has(r.key));
    if (found) return found.key;
  }
  return after[0]?.key ?? '';
}

/** The keys of all directories that lead to a key, outermost first. */
export function ancestors(key: string, root: string): string[] {
  const keys: string[] = [];
  for (let at = root.length; at >= 0 && at < key.length; at = key.indexOf('/', at + 1)) {
    keys.push(key.slice(0, at));
  }
  return keys;
}

/** The entry behind a key, where its directory was read. */
export function findEntry(state: TreeState, key: string): Entry | null {
  const dir = key.slice(0, Math.max(0, key.lastIndexOf('/')));
  const name = baseName(key);
  return state.directories.get(dir)?.entries.find((e) => e.name === name) ?? null;
}
