import type { PlacedChange } from '../tree/apply.ts';

/** What the list of changes shows for one path. */
export interface ChangedPath {
  /** The place's key; see place.ts. */
  key: string;
  root: string;
  path: string;
  from: string | null;
  op: 'create' | 'write' | 'remove' | 'rename';
  kind: PlacedChange['kind'];
  time: string;
  /** The latest tool call during which the path changed. */
  call: string | null;
  chat: string | null;
  /** How many changes this row stands for. */
  count: number;
  /** True for a directory of packages or the like, which stands for all below it. */
  bulk: boolean;
}

/** Directories that tools fill with thousands of files: one row stands for each. */
const bulky = new Set(['node_modules', '.git', '.venv', '__pycache__', '.next', '.vite', '.cache']);

/** The path up to and with its first bulky directory; null when it has none. */
export function bulkPath(path: string): string | null {
  const parts = path.split('/');
  const at = parts.findIndex((p) => bulky.has(p));
  return at < 0 ? null : parts.slice(0, at + 1).join('/');
}

/** Joins a change to what the row already said of the path. Null: nothing is left to say. */
function join(old: ChangedPath | undefined, next: ChangedPath): ChangedPath | null {
  if (!old) return next;
  const joined = { ...next, count: old.count + 1, from: next.from ?? old.from, call: next.call ?? old.call };
  if (old.op === 'create' && next.op === 'remove') return null;
  if (old.op === 'create' && next.op === 'write') return { ...joined, op: 'create' };
  if (old.op === 'remove' && next.op === 'create') return { ...joined, op: 'write' };
  if (old.op === 'rename' && next.op === 'write') return { ...joined, op: 'rename' };
  return joined;
}

function rowOf(c: PlacedChange, op: ChangedPath['op']): ChangedPath {
  const pack = bulkPath(c.path);
  const path = pack ?? c.path;
  return {
    key: `${c.root}/${path}`, root: c.root, path, from: pack === null ? (c.from ?? null) : null,
    op: pack === null ? op : 'write', kind: pack === null ? c.kind : 'dir', time: c.time,
    call: c.calls?.at(-1) ?? null, chat: c.chat ?? null, count: 1, bulk: pack !== null,
  };
}

/**
 * Adds changes to the list, latest first, at most `limit` paths. One path is one
 * row: a file made and changed is new, one made and removed is nothing, and a
 * removed directory stands for what was in it.
 */
export function addChanges(list: readonly ChangedPath[], changes: readonly PlacedChange[], limit: number): ChangedPath[] {
  // A Map keeps the order of insertion: the latest is last in here.
  const rows = new Map([...list].reverse().map((r) => [r.key, r]));
  for (const c of changes) {
    if (c.op === 'attr' || c.path === '') continue;
    const row = rowOf(c, c.op);
    if (c.from !== undefined && !row.bulk) rows.delete(`${c.root}/${c.from}`);
    const joined = join(rows.get(row.key), row);
    rows.delete(row.key);
    if (joined) rows.set(row.key, joined);
    if (c.op === 'remove' && c.kind === 'dir' && !row.bulk) {
      for (const key of [...rows.keys()]) if (key.startsWith(`${row.key}/`)) rows.delete(key);
    }
  }
  return [...rows.values()].reverse().slice(0, limit);
}

/** Counts the paths of a batch for the spoken message, packs counted once. */
export function changedPathCount(changes: readonly PlacedChange[]): number {
  return new Set(changes.filter((c) => c.op !== 'attr').map((c) => `${c.root}/${bulkPath(c.path) ?? c.path}`)).size;
}
