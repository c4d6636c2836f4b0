import type { ChangedPath } from '../live/coalesce.ts';
import { Link } from '../route/Link.tsx';
import { formatRoute } from '../route/route.ts';
import { plural } from '../text/format.ts';
import { baseName, parentPath, shownName } from '../text/names.ts';
import { Name } from '../ui/Name.tsx';
import { RelativeTime } from '../ui/RelativeTime.tsx';

const marks: Record<ChangedPath['op'], { letter: string; word: string }> = {
  create: { letter: 'A', word: 'Added' },
  write: { letter: 'M', word: 'Modified' },
  remove: { letter: 'D', word: 'Deleted' },
  rename: { letter: 'R', word: 'Renamed' },
};

const rootNames: Record<string, string> = { me: 'My disk', shared: 'Shared' };

/** One changed file: what happened, where and when. It links to the diff. */
export function ChangeRow({ change, selected, onOpen }: { change: ChangedPath; selected: boolean; onOpen: () => void }) {
  const place = { root: change.root, path: change.path };
  const href = change.kind === 'file' ? formatRoute(place, 'diff', change.call) : formatRoute(place);
  const where = [rootNames[change.root] ?? change.root, parentPath(change.path)].filter(Boolean).join('/');
  const mark = marks[change.op];
  const details = [
    change.bulk ? plural(change.count, 'change') : null,
    change.from === null ? null : `from ${shownName(change.from)}`,
    change.chat === null ? null : `chat ${change.chat}`,
  ].filter((d) => d !== null);
  return (
    <Link className="change-row" href={href} onClick={onOpen} aria-current={selected ? 'true' : undefined} title={`${mark.word} ${shownName(where)}/${shownName(baseName(change.path))}`}>
      <span className={`change-mark change-${change.op}`} aria-hidden="true">{mark.letter}</span>
      <span className="change-name">
        <span className="visually-hidden">{mark.word} </span>
        <Name name={baseName(change.path)} />
        {change.kind === 'dir' && '/'}
      </span>
      <span className="change-time"><RelativeTime time={change.time} /></span>
      <span className="change-where">
        <Name name={where} />
        {details.map((d) => <span key={d} className="change-detail">{d}</span>)}
      </span>
    </Link>
  );
}
