import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef } from 'react';
import type { ChangedPath } from '../live/coalesce.ts';
import { changeLimit, useFeed } from '../live/feed.ts';
import { Notice } from '../ui/Notice.tsx';
import { RelativeTime } from '../ui/RelativeTime.tsx';
import { ChangeRow } from './ChangeRow.tsx';
import { useTwoLineHeight } from '../ui/useLayout.ts';

/** The files that changed since the page was opened, latest first. */
export function ChangeList({ selected, onOpen }: { selected: string; onOpen: () => void }) {
  const changes = useFeed((f) => f.changes);
  const missed = useFeed((f) => f.missed);
  if (changes.length === 0) {
    return (
      <Notice icon="changes" title="No changes yet">
        <p>Every file that an agent or a teammate changes is listed here at once. Choose one to see what changed in it.</p>
      </Notice>
    );
  }
  return (
    <>
      {missed && (
        <p className="pane-note">
          The connection was lost for a while: changes before <RelativeTime time={missed} /> may be missing here. Files are up to date.
        </p>
      )}
      <Rows changes={changes} selected={selected} onOpen={onOpen} />
      {changes.length >= changeLimit && <p className="pane-note">Only the latest {changeLimit} files are listed.</p>}
    </>
  );
}

function Rows({ changes, selected, onOpen }: { changes: readonly ChangedPath[]; selected: string; onOpen: () => void }) {
  const scroller = useRef<HTMLDivElement>(null);
  const height = useTwoLineHeight();
  const virtual = useVirtualizer({
    count: changes.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    getItemKey: (i) => changes[i]?.key ?? i,
    overscan: 10,
  });
  useEffect(() => virtual.measure(), [virtual, height]);
  return (
    <div className="changes" ref={scroller} tabIndex={0} role="region" aria-label="Changed files">
      <ul className="change-rows" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const change = changes[item.index];
          return change ? (
            <li
              key={item.key}
              className="change-place"
              style={{ height, transform: `translateY(${item.start}px)` }}
              aria-posinset={item.index + 1}
              aria-setsize={changes.length}
            >
              <ChangeRow change={change} selected={change.key === selected} onOpen={onOpen} />
            </li>
          ) : null;
        })}
      </ul>
    </div>
  );
}
