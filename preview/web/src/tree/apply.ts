import type { Change, Entry } from '../api/types.ts';
import { baseName } from '../text/names.ts';
import { compareEntries, type Directory, type TreeState } from './model.ts';

/** A change with the root under which the page shows its tree. */
export interface PlacedChange extends Change {
  root: string;
}

/** Edits a tree's state; directories are copied once per batch, then sorted once. */
class Draft {
  readonly directories: Map<string, Directory>;
  readonly expanded: Set<string>;
  private readonly touched = new Map<string, Map<string, Entry>>();

  constructor(state: TreeState) {
    this.directories = new Map(state.directories);
    this.expanded = new Set(state.expanded);
  }

  /** The names of a directory to edit, or null when it was never read. */
  private names(dir: string): Map<string, Entry> | null {
    const known = this.touched.get(dir);
    if (known) return known;
    const d = this.directories.get(dir);
    if (!d || d.status === 'loading') return null;
    const names = new Map(d.entries.map((e) => [e.name, e]));
    this.touched.set(dir, names);
    return names;
  }

  put(key: string, root: string, entry: Entry): void {
    const dir = key.slice(0, key.lastIndexOf('/'));
    const names = this.names(dir);
    if (names) {
      const old = names.get(entry.name);
      if (old?.kind === 'dir' && entry.kind !== 'dir') this.dropBelow(key);
      names.set(entry.name, { ...old, ...entry });
      return;
    }
    // A directory that was not read, or not even known: its name is news to the one above.
    if (dir.length > root.length && !this.directories.has(dir)) {
      const above = this.names(dir.slice(0, dir.lastIndexOf('/')));
      const name = baseName(dir);
      if (above && !above.has(name)) above.set(name, { name, kind: 'dir', size: 0, mtime: entry.mtime });
    }
  }

  remove(key: string): void {
    this.names(key.slice(0, key.lastIndexOf('/')))?.delete(baseName(key));
    this.dropBelow(key);
  }

  private dropBelow(key: string): void {
    for (const dir of [...this.directories.keys()]) {
      if (dir === key || dir.startsWith(`${key}/`)) {
        this.directories.delete(dir);
        this.touched.delete(dir);
      }
    }
    for (const open of [...this.expanded]) {
      if (open === key || open.startsWith(`${key}/`)) this.expanded.delete(open);
    }
  }

  /** Moves what is known below a directory to its new name. */
  move(from: string, to: string): void {
    this.settle();
    const moved = [...this.directories].filter(([dir]) => dir === from || dir.startsWith(`${from}/`));
    const opened = [...this.expanded].filter((dir) => dir === from || dir.startsWith(`${from}/`));
    this.remove(from);
    this.dropBelow(to);
    for (const [dir, d] of moved) this.directories.set(to + dir.slice(from.length), d);
    for (const dir of opened) this.expanded.add(to + dir.slice(from.length));
  }

  /** Writes the edited directories back. */
  settle(): TreeState {
    for (const [dir, names] of this.touched) {
      const d = this.directories.get(dir);
      if (d) this.directories.set(dir, { ...d, entries: [...names.values()].sort(compareEntries) });
    }
    this.touched.clear();
    return { directories: this.directories, expanded: this.expanded };
  }
}

/**
 * Applies changes to what is known of the tree. Changes are hints: a directory
 * that was never read stays unread, and a later listing corrects what they missed.
 */
export function applyChanges(state: TreeState, changes: readonly PlacedChange[]): TreeState {
  const draft = new Draft(state);
  for (const c of changes) {
    if (c.path === '') continue;
    const key = `${c.root}/${c.path}`;
    if (c.op === 'remove') {
      draft.remove(key);
      continue;
    }
    if (c.op === 'rename' && c.from !== undefined) draft.move(`${c.root}/${c.from}`, key);
    draft.put(key, c.root, { name: baseName(c.path), kind: c.kind, size: c.size, mtime: c.time });
  }
  return draft.settle();
}
