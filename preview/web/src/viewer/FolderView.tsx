import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef } from 'react';
import { formatRoute } from '../route/route.ts';
import { Link } from '../route/Link.tsx';
import { parseKey, placeKey, type Place } from '../route/place.ts';
import { formatSize } from '../text/format.ts';
import { useTree } from '../tree/store.ts';
import { Icon, type IconName } from '../ui/Icon.tsx';
import { Name } from '../ui/Name.tsx';
import { ErrorNotice, Notice, Skeleton } from '../ui/Notice.tsx';
import { RelativeTime } from '../ui/RelativeTime.tsx';
import { useRowHeight } from '../ui/useLayout.ts';
import type { Directory } from '../tree/model.ts';
import type { Entry } from '../api/types.ts';

const icons: Record<Entry['kind'], IconName> = { dir: 'folder', file: 'file', symlink: 'link', other: 'other' };

/** What is in a directory. */
export function FolderView({ place }: { place: Place }) {
  const key = placeKey(place);
  const directory = useTree((t) => t.directories.get(key));
  const { open, more, reload } = useTree.getState();
  useEffect(() => open(key), [open, key]);

  if (!directory || (directory.status === 'loading' && directory.entries.length === 0)) return <Skeleton label="Loading the folder" />;
  if (directory.status === 'error' && directory.entries.length === 0) {
    return <ErrorNotice title="Cannot list this folder" cause={directory.error ?? 'the reason is not known'} onRetry={() => reload(key)} />;
  }
  if (directory.entries.length === 0) {
    return (
      <Notice icon="folder" title="This folder is empty">
        <p>Files that an agent writes here appear the moment they are written.</p>
      </Notice>
    );
  }
  return <EntryList directoryKey={key} directory={directory} onMore={() => more(key)} />;
}

function EntryList({ directoryKey, directory, onMore }: { directoryKey: string; directory: Directory; onMore: () => void }) {
  const scroller = useRef<HTMLDivElement>(null);
  const height = useRowHeight() + 4;
  const virtual = useVirtualizer({
    count: directory.entries.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    getItemKey: (i) => directory.entries[i]?.name ?? i,
    overscan: 12,
  });
  useEffect(() => virtual.measure(), [virtual, height]);
  return (
    <div className="folder" ref={scroller} tabIndex={0} role="region" aria-label="Folder content">
      <ul className="folder-rows" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const entry = directory.entries[item.index];
          return entry ? (
            <li
              key={item.key}
              className="folder-row"
              style={{ height, transform: `translateY(${item.start}px)` }}
              aria-posinset={item.index + 1}
              aria-setsize={directory.entries.length}
            >
              <Link href={formatRoute(parseKey(`${directoryKey}/${entry.name}`))} className="folder-link">
                <Icon name={icons[entry.kind]} className={`kind-${entry.kind}`} />
                <Name name={entry.name} />
              </Link>
              <span className="folder-size">{entry.kind === 'file' ? formatSize(entry.size) : ''}</span>
              <span className="folder-time"><RelativeTime time={entry.mtime} /></span>
            </li>
          ) : null;
        })}
      </ul>
      {directory.next !== null && (
        <button type="button" className="button folder-more" onClick={onMore} disabled={directory.status === 'loading'}>
          Show more
        </button>
      )}
    </div>
  );
}
