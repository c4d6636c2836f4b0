import { defaultRangeExtractor, useVirtualizer, type Range } from '@tanstack/react-virtual';
import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { formatRoute } from '../route/route.ts';
import { parseKey } from '../route/place.ts';
import { navigate } from '../route/useRoute.ts';
import { useRowHeight } from '../ui/useLayout.ts';
import { useFocusedRow, useKeptFocus, useShownSelection } from './focus.ts';
import { flatten, type TreeRoot, type TreeRow } from './model.ts';
import { useTree } from './store.ts';
import { TreeItem } from './TreeItem.tsx';
import { useTreeKeyboard } from './useTreeKeyboard.ts';

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
  const moveTo = (index: number) => {
    const row = rows[index];
    if (!row || row.key === current) return;
    setFocused(row.key);
    keepFocus.take();
    virtual.scrollToIndex(index);
  };
  const pageRows = () => Math.floor((scroller.current?.clientHeight ?? 0) / rowHeight) - 1;
  const onKeyDown = useTreeKeyboard({ rows, current, pageRows, moveTo, activate, expand, collapse });

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
