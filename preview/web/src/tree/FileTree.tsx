import { defaultRangeExtractor, useVirtualizer, type Range } from '@tanstack/react-virtual';
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, type KeyboardEvent } from 'react';
import { formatRoute } from '../route/route.ts';
import { parseKey } from '../route/place.ts';
import { navigate } from '../route/useRoute.ts';
import { useRowHeight } from '../ui/useLayout.ts';
import { treeKey, typeAhead, type TreeAction } from './keys.ts';
import { flatten, focusAfter, type TreeRoot, type TreeRow } from './model.ts';
import { useTree } from './store.ts';
import { TreeItem } from './TreeItem.tsx';

/** Letters typed within this time belong to one word. */
const typingPause = 700;

interface FileTreeProps {
  roots: readonly TreeRoot[];
  /** The key of what is open. */
  selected: string;
  onOpenFile: () => void;
}

/**
 * The files as a tree: one tab stop, of which the arrow keys move. Only rows near
 * the visible part are in the document, and the focused one always is.
 */
export function FileTree({ roots, selected, onOpenFile }: FileTreeProps) {
  const { directories, expanded, expand, collapse, more, open } = useTree();
  const rows = useMemo(() => flatten({ directories, expanded }, roots), [directories, expanded, roots]);
  const [focused, setFocused] = useState(selected);
  const scroller = useRef<HTMLDivElement>(null);
  const typed = useRef({ text: '', at: 0 });
  const rowHeight = useRowHeight();

  const current = useFocusedRow(rows, focused, setFocused);
  const focusedIndex = rows.findIndex((r) => r.key === current);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    getItemKey: (i) => rows[i]?.key ?? i,
    overscan: 8,
    rangeExtractor: useCallback(
      (range: Range) => {
        const shown = defaultRangeExtractor(range);
        return focusedIndex < 0 || shown.includes(focusedIndex) ? shown : [...shown, focusedIndex].sort((a, b) => a - b);
      },
      [focusedIndex],
    ),
  });
  useEffect(() => virtual.measure(), [virtual, rowHeight]);
  const keepFocus = useKeptFocus(scroller, current);
  useShownSelection(rows, selected, setFocused, (i) => virtual.scrollToIndex(i));

  const activate = (row: TreeRow) => {
    if (row.type === 'more') more(row.parent);
    else if (row.type === 'error') open(row.parent);
    else if (row.kind === 'dir') (row.expanded ? collapse : expand)([row.key]);
    else if (row.entry) {
      navigate(formatRoute(parseKey(row.key)));
      onOpenFile();
    }
  };
  const act = (action: TreeAction) => {
    if (action.type === 'expand') expand(action.keys);
    else if (action.type === 'collapse') collapse(action.keys);
    else {
      const index = rows.findIndex((r) => r.key === action.key);
      const row = rows[index];
      if (action.type === 'activate' && row) activate(row);
      if (action.type === 'focus' && row) {
        setFocused(row.key);
        keepFocus.take();
        virtual.scrollToIndex(index);
      }
    }
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 0) / rowHeight) - 1);
    let action = treeKey(rows, current, e.key, page);
    if (!action && e.key.length === 1) {
      const goesOn = e.timeStamp - typed.current.at < typingPause;
      typed.current = { text: (goesOn ? typed.current.text : '') + e.key, at: e.timeStamp };
      action = typeAhead(rows, focusedIndex, typed.current.text);
    }
    if (!action) return;
    e.preventDefault();
    act(action);
  };

  return (
    <div className="tree" ref={scroller} role="tree" aria-label="Files" onKeyDown={onKeyDown} onFocus={keepFocus.onFocus} onBlur={keepFocus.onBlur}>
      <div role="presentation" className="tree-rows" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index];
          return row ? (
            <TreeItem
              key={row.key}
              row={row}
              top={item.start}
              height={rowHeight}
              selected={row.key === selected}
              tabStop={row.key === current}
              onActivate={() => {
                setFocused(row.key);
                activate(row);
              }}
            />
          ) : null;
        })}
      </div>
    </div>
  );
}

/** The key of the row with the tab stop; when that row goes, a neighbour has it. */
function useFocusedRow(rows: readonly TreeRow[], focused: string, setFocused: (key: string) => void): string {
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
function useKeptFocus(scroller: React.RefObject<HTMLElement | null>, current: string) {
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
      onBlur: (e: React.FocusEvent) => {
        const left = e.target;
        // A row that was removed did not give the focus away.
        queueMicrotask(() => {
          if (left.isConnected && !scroller.current?.contains(document.activeElement)) inside.current = false;
        });
      },
    }),
    [scroller],
  );
}

/** Scrolls to what was opened, once, and gives it the tab stop. */
function useShownSelection(rows: readonly TreeRow[], selected: string, setFocused: (key: string) => void, scrollTo: (index: number) => void) {
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
