import { useEffect } from 'react';
import type { Entry, Me } from '../api/types.ts';
import { DiffView } from '../diff/DiffView.tsx';
import { Link } from '../route/Link.tsx';
import { fileURL, linkTarget, placeKey, type Place } from '../route/place.ts';
import { formatRoute, type Route } from '../route/route.ts';
import { formatSize } from '../text/format.ts';
import { baseName, parentPath, shownName } from '../text/names.ts';
import { findEntry } from '../tree/model.ts';
import { useTree } from '../tree/store.ts';
import { Icon } from '../ui/Icon.tsx';
import { Notice, Skeleton } from '../ui/Notice.tsx';
import { RelativeTime } from '../ui/RelativeTime.tsx';
import { Breadcrumbs } from './Breadcrumbs.tsx';
import { FileContent } from './FileContent.tsx';
import { FolderView } from './FolderView.tsx';
import { MissingFile } from './MissingFile.tsx';
import { Picture, isPicture } from './Picture.tsx';

/** What is known of an open place: its entry, that it is missing, or not yet. */
type Known = Entry | 'folder' | 'missing' | 'loading' | 'unlisted';

function useKnown(place: Place): Known {
  const key = placeKey(place);
  useEffect(() => useTree.getState().reveal(key), [key]);
  return useTree((t) => {
    if (place.path === '') return 'folder';
    const entry = findEntry(t, key);
    if (entry) return entry;
    const parent = t.directories.get(parentPath(key));
    // A folder above may turn out not to be there: then nothing will be read.
    const above = parent ?? t.directories.get(place.root);
    if (!above || above.status === 'loading') return 'loading';
    if (!parent) return t.expanded.has(parentPath(key)) ? 'loading' : 'missing';
    // Names beyond the pages that were read are found out by reading the file.
    return parent.next === null && parent.status === 'ready' ? 'missing' : 'unlisted';
  });
}

/** The open file or folder: its path, what can be done with it, and its content. */
export function Viewer({ route, me }: { route: Route; me: Me }) {
  const { place } = route;
  if (!place) {
    return (
      <Notice icon="warning" title="There is no such page" actions={<Link className="button" href="/files/me">My disk</Link>}>
        <p>The address names nothing that you can open here.</p>
      </Notice>
    );
  }
  return <OpenPlace key={placeKey(place)} route={route} place={place} me={me} />;
}

function OpenPlace({ route, place, me }: { route: Route; place: Place; me: Me }) {
  const known = useKnown(place);
  const isFolder = known === 'folder' || (typeof known === 'object' && known.kind === 'dir');
  const name = place.path === '' ? '' : shownName(baseName(place.path));
  useEffect(() => {
    const view = route.view === 'diff' ? 'Changes in ' : '';
    document.title = name ? `${view}${name} · Berth` : 'Berth';
  }, [name, route.view]);
  return (
    <article className="viewer">
      <header className="viewer-head">
        <Breadcrumbs place={place} />
        {typeof known === 'object' && !isFolder && <FileFacts entry={known} />}
        {!isFolder && <FileActions route={route} place={place} exists={known !== 'missing'} />}
      </header>
      <div className="viewer-body">
        {isFolder ? <FolderView place={place} /> : route.view === 'diff' ? <DiffView place={place} call={route.call} me={me} /> : <PlaceContent place={place} known={known} />}
      </div>
    </article>
  );
}

function PlaceContent({ place, known }: { place: Place; known: Known }) {
  if (known === 'missing') return <MissingFile place={place} />;
  if (known === 'loading') return <Skeleton label="Loading the file" lines={14} />;
  if (typeof known === 'object' && known.kind === 'symlink') {
    return <LinkContent place={place} target={known.target ?? ''} />;
  }
  if (typeof known === 'object' && known.kind === 'other') {
    return <Notice icon="other" title="Not a regular file"><p>A fifo or socket has no content to show.</p></Notice>;
  }
  return isPicture(place.path) ? <Picture place={place} version={typeof known === 'object' ? `${known.size}-${known.mtime}` : ''} /> : <FileContent place={place} />;
}

function LinkContent({ place, target }: { place: Place; target: string }) {
  const to = linkTarget(place, target);
  return (
    <Notice icon="link" title="Symbolic link" actions={to && <Link className="button" href={formatRoute(to)}>Go there</Link>}>
      <p>It points to <code>{shownName(target)}</code>{to ? '.' : ', which is outside of this disk.'}</p>
    </Notice>
  );
}

function FileFacts({ entry }: { entry: Entry }) {
  return (
    <p className="file-facts">
      {entry.kind === 'file' && <span>{formatSize(entry.size)}</span>}
      <span><RelativeTime time={entry.mtime} /></span>
    </p>
  );
}

function FileActions({ route, place, exists }: { route: Route; place: Place; exists: boolean }) {
  return (
    <div className="file-actions">
      <nav className="segments" aria-label="View">
        <Link className="segment" href={formatRoute(place)} aria-current={route.view === 'code' ? 'true' : undefined}>File</Link>
        <Link className="segment" href={formatRoute(place, 'diff', route.call)} aria-current={route.view === 'diff' ? 'true' : undefined}>Diff</Link>
      </nav>
      {exists && (
        <a className="icon-button" href={fileURL(place)} download={baseName(place.path)} aria-label="Download" title="Download">
          <Icon name="download" />
        </a>
      )}
    </div>
  );
}
