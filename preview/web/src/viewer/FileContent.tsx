import { useQuery } from '@tanstack/react-query';
import { lazy, Suspense, useMemo, useState } from 'react';
import { ApiError, messageOf } from '../api/client.ts';
import { readContent, wholeLimit, type Content, type Part } from '../api/content.ts';
import { fileURL, placeKey, type Place } from '../route/place.ts';
import { decodeText } from '../text/decode.ts';
import { formatSize } from '../text/format.ts';
import { baseName, shownName } from '../text/names.ts';
import { ErrorNotice, Notice, Skeleton } from '../ui/Notice.tsx';
import { MissingFile } from './MissingFile.tsx';

const CodeView = lazy(() => import('./CodeView.tsx'));

/** Larger files, and files with longer lines, are shown without colours. */
const highlightLimit = 2_000_000;
const lineLimit = 20_000;

function hasLongLine(text: string): boolean {
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf('\n', at);
    const stop = end < 0 ? text.length : end;
    if (stop - at > lineLimit) return true;
    at = stop + 1;
  }
  return false;
}

/** The content of a file, as it is now: it follows changes. */
export function FileContent({ place }: { place: Place }) {
  const [part, setPart] = useState<Part>('start');
  const key = placeKey(place);
  const query = useQuery({
    queryKey: ['file', key, part],
    queryFn: ({ signal }) => readContent(place, part, signal),
  });
  if (query.isError) {
    if (query.error instanceof ApiError && query.error.status === 404) return <MissingFile place={place} />;
    if (query.error instanceof ApiError && query.error.status === 415) return <Notice icon="other" title="Not a regular file"><p>A fifo or socket has no content to show.</p></Notice>;
    return <ErrorNotice title="Cannot read this file" cause={messageOf(query.error)} onRetry={() => void query.refetch()} />;
  }
  if (!query.data) return <Skeleton label="Loading the file" lines={14} />;
  return <ShownContent place={place} content={query.data} part={part} onPart={setPart} />;
}

interface ShownContentProps {
  place: Place;
  content: Content;
  part: Part;
  onPart: (part: Part) => void;
}

function ShownContent({ place, content, part, onPart }: ShownContentProps) {
  const isWindow = content.total > content.bytes.length;
  const decoded = useMemo(() => decodeText(content.bytes, isWindow), [content, isWindow]);
  const plain = useMemo(
    () => decoded === null || content.total > highlightLimit || hasLongLine(decoded.text),
    [decoded, content.total],
  );
  const name = baseName(place.path);

  if (content.total === 0) return <Notice icon="file" title="Empty file"><p>It has no content yet. When something is written, it appears here.</p></Notice>;
  if (decoded === null) {
    return (
      <Notice
        icon="file"
        title="No preview"
        actions={<a className="button" href={fileURL(place)} download={name}>Download</a>}
      >
        <p>This is a binary file of {formatSize(content.total)}.</p>
      </Notice>
    );
  }
  return (
    <>
      {content.total > wholeLimit && <WindowBar content={content} part={part} onPart={onPart} />}
      {decoded.lossy && <p className="file-note">This file is not valid {decoded.encoding}. Bytes without a character are shown as �.</p>}
      <Suspense fallback={<Skeleton label="Loading the viewer" lines={14} />}>
        <CodeView language={plain ? null : name} label={shownName(name)} text={decoded.text} numbered={content.offset === 0} />
      </Suspense>
    </>
  );
}

/** For a file too large to show: which part is shown, and the choice of the other. */
function WindowBar({ content, part, onPart }: Omit<ShownContentProps, 'place'>) {
  const choose = (which: Part, text: string) => (
    <button type="button" className="segment" aria-pressed={part === which} onClick={() => onPart(which)}>{text}</button>
  );
  return (
    <div className="file-note">
      <span>
        Showing the {part === 'start' ? 'first' : 'last'} {formatSize(content.bytes.length)} of {formatSize(content.total)}.
      </span>
      <span className="segments" role="group" aria-label="Part of the file">
        {choose('start', 'Start')}
        {choose('end', 'End')}
      </span>
    </div>
  );
}
