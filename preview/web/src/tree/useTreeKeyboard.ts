import { useRef, type KeyboardEvent } from 'react';
import { treeKey, typeAhead } from './keys.ts';
import type { TreeRow } from './model.ts';

/** Letters typed within this time belong to one word. */
const typingPause = 700;

interface TreeKeyboard {
  rows: readonly TreeRow[];
  /** The key of the row with the tab stop. */
  current: string;
  /** How many rows are visible at a time. */
  pageRows: () => number;
  moveTo: (index: number) => void;
  activate: (row: TreeRow) => void;
  expand: (keys: readonly string[]) => void;
  collapse: (keys: readonly string[]) => void;
}

/** The handler of the tree's keys: arrows, Home, End, Enter, * and typed names. */
export function useTreeKeyboard({ rows, current, pageRows, moveTo, activate, expand, collapse }: TreeKeyboard) {
  const typed = useRef({ text: '', at: 0 });
  const typedAction = (e: KeyboardEvent) => {
    if (e.key.length !== 1) return null;
    const goesOn = e.timeStamp - typed.current.at < typingPause;
    typed.current = { text: (goesOn ? typed.current.text : '') + e.key, at: e.timeStamp };
    return typeAhead(rows, rows.findIndex((r) => r.key === current), typed.current.text);
  };
  return (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const action = treeKey(rows, current, e.key, Math.max(1, pageRows())) ?? typedAction(e);
    if (!action) return;
    e.preventDefault();
    if (action.type === 'expand') return expand(action.keys);
    if (action.type === 'collapse') return collapse(action.keys);
    const index = rows.findIndex((r) => r.key === action.key);
    const row = rows[index];
    if (action.type === 'focus') moveTo(index);
    else if (row) activate(row);
  };
}
