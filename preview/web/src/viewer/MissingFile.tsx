import { formatRoute } from '../route/route.ts';
import type { Place } from '../route/place.ts';
import { Link } from '../route/Link.tsx';
import { Notice } from '../ui/Notice.tsx';
import { shownName } from '../text/names.ts';

/** For an address whose file is not there, or not any more. */
export function MissingFile({ place }: { place: Place }) {
  return (
    <Notice
      icon="file"
      title="This file does not exist"
      actions={<Link className="button" href={formatRoute(place, 'diff')}>What it was</Link>}
    >
      <p>There is nothing at <code>{shownName(place.path)}</code>. It may have been removed or renamed; when it is written again, it appears here.</p>
    </Notice>
  );
}
