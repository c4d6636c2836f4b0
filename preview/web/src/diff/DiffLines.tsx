import { useVirtualizer } from '@tanstack/react-virtual';
import { useMemo, useRef, type KeyboardEvent, type ReactNode } from 'react';
import { Icon } from '../ui/Icon.tsx';
import { DiffLineRow } from './DiffLineRow.tsx';
import { changeStarts, type DiffRow } from './rows.ts';

const lineHeight = 20;

/** The rows of a diff, of which only those near the visible part are in the document. */
export function DiffLines({ rows, summary }: { rows: readonly DiffRow[]; summary: ReactNode }) {
  const scroller = useRef<HTMLDivElement>(null);
  const starts = useMemo(() => changeStarts(rows), [rows]);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: (i) => (rows[i]?.type === 'hunk' ? 28 : lineHeight),
    overscan: 20,
  });

  const goToChange = (direction: 1 | -1) => {
    const top = virtual.scrollOffset ?? 0;
    // The change that is at the top now, or just scrolled past it.
    const at = virtual.getVirtualItemForOffset(top + lineHeight * 2)?.index ?? 0;
    const next = direction > 0 ? starts.find((i) => i > at) : starts.findLast((i) => i < at);
    if (next !== undefined) virtual.scrollToIndex(Math.max(0, next - 2), { align: 'start' });
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const forward = e.key === 'n' || (e.key === 'F7' && !e.shiftKey);
    const back = e.key === 'p' || (e.key === 'F7' && e.shiftKey);
    if (!forward && !back) return;
    e.preventDefault();
    goToChange(forward ? 1 : -1);
  };

  return (
    <div className="diff">
      <div className="diff-bar">
        {summary}
        <span className="diff-steps">
          <button type="button" className="icon-button" onClick={() => goToChange(-1)} aria-label="Previous change" title="Previous change (p)"><Icon name="up" /></button>
          <button type="button" className="icon-button" onClick={() => goToChange(1)} aria-label="Next change" title="Next change (n)"><Icon name="down" /></button>
        </span>
      </div>
      <div className="diff-scroll" ref={scroller} tabIndex={0} role="region" aria-label="Changed lines" onKeyDown={onKeyDown}>
        <div role="table" aria-label="Diff" aria-rowcount={rows.length} className="diff-rows" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const row = rows[item.index];
            return row ? (
              <div
                key={item.key}
                ref={virtual.measureElement}
                data-index={item.index}
                role="row"
                aria-rowindex={item.index + 1}
                className="diff-place"
                style={{ transform: `translateY(${item.start}px)` }}
              >
                <DiffLineRow row={row} />
              </div>
            ) : null;
          })}
        </div>
      </div>
    </div>
  );
}
