import { useQuery } from '@tanstack/react-query';
import { listChats } from '../api/calls.ts';
import { messageOf } from '../api/client.ts';
import type { Me } from '../api/types.ts';
import { ErrorNotice, Notice, Skeleton } from '../ui/Notice.tsx';
import { ChatCard } from './ChatCard.tsx';

/** My chats, each with its machine. */
export function ChatList({ me }: { me: Me }) {
  return (
    <>
      {!me.sandboxes && <p className="pane-note">Sandboxes are off on this gateway: files are served, but nothing can be run.</p>}
      <Chats />
    </>
  );
}

function Chats() {
  const query = useQuery({ queryKey: ['chats'], queryFn: ({ signal }) => listChats(signal) });
  if (query.isError) {
    return <ErrorNotice title="Cannot list the chats" cause={messageOf(query.error)} onRetry={() => void query.refetch()} />;
  }
  if (!query.data) return <Skeleton label="Loading the chats" lines={4} />;
  if (query.data.length === 0) {
    return (
      <Notice icon="chat" title="No chats yet">
        <p>A chat gets its machine with its first tool call. Start one from a terminal:</p>
        <pre className="command">berth tool my-chat bash command='echo hello'</pre>
      </Notice>
    );
  }
  return (
    <ul className="chats">
      {query.data.map((chat) => (
        <li key={chat.id}><ChatCard chat={chat} /></li>
      ))}
    </ul>
  );
}
