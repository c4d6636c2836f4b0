import { shownName } from '../text/names.ts';
import type { TreeRow } from './model.ts';

/** What a key press in the tree does (the treeview pattern of the ARIA practices). */
export type TreeAction =
  | { type: 'focus'; key: string }
  | { type: 'expand'; keys: string[] }
  | { type: 'collapse'; keys: string[] }
  | { type: 'activate'; key: string };

function rowTo(rows: readonly TreeRow[], at: number): TreeAction | null {
  const row = rows[Math.max(0, Math.min(rows.length - 1, at))];
  return row ? { type: 'focus', key: row.key } : null;
}

function inward(rows: readonly TreeRow[], at: number, row: TreeRow): TreeAction | null {
  if (row.kind !== 'dir') return null;
  if (!row.expanded) return { type: 'expand', keys: [row.key] };
  return rows[at + 1]?.parent === row.key ? rowTo(rows, at + 1) : null;
}

function outward(row: TreeRow): TreeAction | null {
  if (row.kind === 'dir' && row.expanded) return { type: 'collapse', keys: [row.key] };
  return row.parent ? { type: 'focus', key: row.parent } : null;
}

/** The next row whose name begins with what was typed; repeated letters go on. */
export function typeAhead(rows: readonly TreeRow[], at: number, typed: string): TreeAction | null {
  const repeated = [...typed].every((c) => c === typed[0]);
  const prefix = (repeated ? typed.charAt(0) : typed).toLowerCase();
  const first = repeated ? 1 : 0;
  for (let i = 0; i < rows.length; i++) {
    const row = rows[(at + first + i) % rows.length];
    if (row && row.type === 'entry' && shownName(row.label).toLowerCase().startsWith(prefix)) return { type: 'focus', key: row.key };
  }
  return null;
}

/** The action of a key that is not text; null for keys the tree leaves alone. */
export function treeKey(rows: readonly TreeRow[], focused: string, key: string, page: number): TreeAction | null {
  const at = rows.findIndex((r) => r.key === focused);
  const row = rows[at];
  if (!row) return rowTo(rows, 0);
  switch (key) {
    case 'ArrowDown': return rowTo(rows, at + 1);
    case 'ArrowUp': return rowTo(rows, at - 1);
    case 'PageDown': return rowTo(rows, at + page);
    case 'PageUp': return rowTo(rows, at - page);
    case 'Home': return rowTo(rows, 0);
    case 'End': return rowTo(rows, rows.length - 1);
    case 'ArrowRight': return inward(rows, at, row);
    case 'ArrowLeft': return outward(row);
    case 'Enter':
    case ' ': return { type: 'activate', key: row.key };
    case '*': {
      const keys = rows.filter((r) => r.parent === row.parent && r.kind === 'dir' && !r.expanded).map((r) => r.key);
      return { type: 'expand', keys };
    }
    default: return null;
  }
}
