import { useQuery } from '@tanstack/react-query';
import { getMe } from '../api/calls.ts';
import { messageOf } from '../api/client.ts';
import { ErrorNotice, Skeleton } from '../ui/Notice.tsx';
import { SignedOutPage } from './SignedOutPage.tsx';
import { Workspace } from './Workspace.tsx';

/** The whole page: what it shows depends on who is signed in. */
export function App() {
  const me = useQuery({ queryKey: ['me'], queryFn: ({ signal }) => getMe(signal) });
  if (me.data) return <Workspace me={me.data} />;
  if (me.data === null) return <SignedOutPage />;
  return (
    <main className="lone">
      {me.isError ? <ErrorNotice title="Cannot reach Berth" cause={messageOf(me.error)} onRetry={() => void me.refetch()} /> : <Skeleton label="Loading Berth" lines={5} />}
    </main>
  );
}
