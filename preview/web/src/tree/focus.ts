import { useEffect, useLayoutEffect, useMemo, useRef, type FocusEvent, type RefObject } from 'react';
import { focusAfter, type TreeRow } from './model.ts';

/** The key of the row with the tab stop; when that row goes, a neighbour has it. */
export function useFocusedRow(rows: readonly TreeRow[], focused: string, setFocused: (key: string) => void): string {
  const before = useRef(rows);
  const current = focusAfter(before.current, rows, focused);
  useLayoutEffect(() => {
    before.current = rows;
    if (current !== focused) setFocused(current);
  });
  return current;
}

/**
 * Keeps the keyboard's focus in the tree when the focused row moves or goes, and
 * never takes it from elsewhere. take moves it to the row with the tab stop.
 */
export function useKeptFocus(scroller: RefObject<HTMLElement | null>, current: string) {
  const inside = useRef(false);
  const wanted = useRef(false);
  useLayoutEffect(() => {
    const lost = inside.current && document.activeElement === document.body;
    if (!wanted.current && !lost) return;
    const row = scroller.current?.querySelector<HTMLElement>('[role=treeitem][tabindex="0"]');
    if (!row || row.dataset.key !== current) return;
    wanted.current = false;
    row.focus({ preventScroll: true });
  });
  return useMemo(
    () => ({
      take: () => void (wanted.current = true),
      onFocus: () => void (inside.current = true),
      onBlur: (e: FocusEvent) => {
        const left = e.target;
        // A row that was removed did not give the focus away.
        queueMicrotask(() => {
          if (!left.isConnected || scroller.current?.contains(document.activeElement)) return;
          inside.current = false;
          wanted.current = false;
        });
      },
    }),
    [scroller],
  );
}

/** Scrolls to what was opened, once, and gives it the tab stop. */
export function useShownSelection(rows: readonly TreeRow[], selected: string, setFocused: (key: string) => void, scrollTo: (index: number) => void) {
  const shown = useRef('');
  useEffect(() => {
    if (shown.current === selected) return;
    const index = rows.findIndex((r) => r.key === selected);
    if (index < 0) return;
    shown.current = selected;
    setFocused(selected);
    scrollTo(index);
  });
}
