import { formatRoute } from '../route/route.ts';
import { Link } from '../route/Link.tsx';
import type { Place } from '../route/place.ts';
import { Name } from '../ui/Name.tsx';

const rootNames: Record<string, string> = { me: 'My disk', shared: 'Shared' };

/** The way to what is open; each folder of it is a link. */
export function Breadcrumbs({ place }: { place: Place }) {
  const names = place.path === '' ? [] : place.path.split('/');
  const steps = ['', ...names].map((name, i) => ({ name, place: { root: place.root, path: names.slice(0, i).join('/') } }));
  return (
    <nav aria-label="Path" className="crumbs">
      <ol>
        {steps.map((step, i) => {
          const shown = i === 0 ? (rootNames[place.root] ?? place.root) : <Name name={step.name} />;
          return (
            <li key={i}>
              {i === steps.length - 1 ? <h1 aria-current="page">{shown}</h1> : <Link href={formatRoute(step.place)}>{shown}</Link>}
            </li>
          );
        })}
      </ol>
    </nav>
  );
}
