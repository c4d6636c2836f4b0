import { useQuery } from '@tanstack/react-query';
import { getSession } from '../api/calls.ts';
import { messageOf } from '../api/client.ts';
import { ErrorNotice, Skeleton } from '../ui/Notice.tsx';
import { SignedOutPage } from './SignedOutPage.tsx';
import { Workspace } from './Workspace.tsx';

/** The whole page: what it shows depends on who is signed in. */
export function App() {
  const session = useQuery({ queryKey: ['me'], queryFn: ({ signal }) => getSession(signal) });
  if (session.data) return <Workspace session={session.data} />;
  if (session.data === null) return <SignedOutPage />;
  return (
    <main className="lone">
      {session.isError ? <ErrorNotice title="Cannot reach Berth" cause={messageOf(session.error)} onRetry={() => void session.refetch()} /> : <Skeleton label="Loading Berth" lines={5} />}
    </main>
  );
}
