import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { getDiff } from '../api/calls.ts';
import { ApiError, messageOf } from '../api/client.ts';
import type { Diff, Me } from '../api/types.ts';
import { placeKey, type Place } from '../route/place.ts';
import { plural } from '../text/format.ts';
import { ErrorNotice, Notice, Skeleton } from '../ui/Notice.tsx';
import { DiffLines } from './DiffLines.tsx';
import { diffRows } from './rows.ts';

interface DiffViewProps {
  place: Place;
  /** Against the content before this call; null: before the latest. */
  call: string | null;
  me: Me;
}

/** How a file differs from what it was before a tool call. Follows the file. */
export function DiffView({ place, call, me }: DiffViewProps) {
  const query = useQuery({
    queryKey: ['diff', placeKey(place), call],
    queryFn: ({ signal }) => getDiff(place, call, me, signal),
  });
  if (query.isError) {
    if (query.error instanceof ApiError && query.error.status === 404) {
      return (
        <Notice icon="changes" title="Nothing to compare with">
          <p>{messageOf(query.error)}</p>
          <p>Content from before a tool call is kept for a day.</p>
        </Notice>
      );
    }
    if (query.error instanceof ApiError && query.error.status === 413) {
      return <Notice icon="changes" title="Too large to compare"><p>{messageOf(query.error)}</p></Notice>;
    }
    return <ErrorNotice title="Cannot show the diff" cause={messageOf(query.error)} onRetry={() => void query.refetch()} />;
  }
  if (!query.data) return <Skeleton label="Loading the diff" lines={12} />;
  return <DiffContent diff={query.data} call={call} />;
}

/** What the diff is, in words. */
function difference(diff: Diff): string {
  if (!diff.before_exists) return 'new file: it was not there';
  if (!diff.after_exists) return 'removed: the content';
  return 'against the content';
}

function DiffContent({ diff, call }: { diff: Diff; call: string | null }) {
  const rows = useMemo(() => diffRows(diff), [diff]);
  const id = call ?? diff.call;
  const against = <>before {call === null ? 'the latest tool call' : 'tool call'} {id && <code>{id}</code>}</>;
  if (diff.binary) {
    return <Notice icon="changes" title="Binary content changed"><p>There are no lines to compare.</p></Notice>;
  }
  if (rows.length === 0) {
    return <Notice icon="changes" title="No differences"><p>The file is as it was {against}.</p></Notice>;
  }
  return (
    <DiffLines
      rows={rows}
      summary={
        <p className="diff-summary">
          <span className="count-added" title={plural(diff.added, 'line added', 'lines added')}>+{diff.added}</span>
          <span className="count-removed" title={plural(diff.removed, 'line removed', 'lines removed')}>−{diff.removed}</span>
          <span className="diff-against">{difference(diff)} {against}</span>
          {diff.truncated && <strong className="diff-caveat">Too large to show whole: some of it is left out.</strong>}
          {diff.approximate && <span className="diff-caveat">Parts differ too much to match line by line.</span>}
        </p>
      }
    />
  );
}
