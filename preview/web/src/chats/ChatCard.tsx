import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { destroyMachine, getChat, stopMachine, wakeMachine } from '../api/calls.ts';
import { messageOf } from '../api/client.ts';
import type { Chat } from '../api/types.ts';
import { announce } from '../live/announce.ts';
import { Icon } from '../ui/Icon.tsx';
import { Name } from '../ui/Name.tsx';
import { RelativeTime } from '../ui/RelativeTime.tsx';
import { DestroyDialog } from './DestroyDialog.tsx';
import { lookOf } from './state.ts';

type Action = 'stop' | 'wake' | 'destroy';

const calls: Record<Action, (chat: string) => Promise<void>> = { stop: stopMachine, wake: wakeMachine, destroy: destroyMachine };
const doing: Record<Action, string> = { stop: 'Stopping…', wake: 'Waking…', destroy: 'Destroying…' };
const done: Record<Action, string> = { stop: 'is stopped, its files are kept', wake: 'is awake', destroy: 'is destroyed' };

/** One chat and the state of its machine, with what can be done about it. */
export function ChatCard({ chat }: { chat: Chat }) {
  const client = useQueryClient();
  const [asking, setAsking] = useState(false);
  const look = lookOf(chat.machine.state);
  const title = chat.title || chat.id;
  const action = useMutation({
    mutationFn: (what: Action) => calls[what](chat.id),
    onSuccess: (_, what) => announce(`The machine of ${title} ${done[what]}.`),
    onSettled: () => {
      void client.invalidateQueries({ queryKey: ['chats'] });
      void client.invalidateQueries({ queryKey: ['chat', chat.id] });
    },
  });

  return (
    <section className="chat" aria-label={`Chat ${title}`}>
      <header className="chat-head">
        <h3 className="chat-title" title={chat.id}><Name name={title} /></h3>
        <span className={`state state-${look.tone}`}>{action.isPending ? doing[action.variables] : look.word}</span>
      </header>
      <p className="chat-text">
        <span>{chat.machine.state === 'failed' && chat.machine.reason ? chat.machine.reason : look.explanation}</span>
        {chat.machine.since && chat.machine.state !== 'waiting' && <RelativeTime time={chat.machine.since} />}
      </p>
      {action.isError && (
        <p className="chat-error" role="alert">Cannot {action.variables} the machine: {messageOf(action.error)}</p>
      )}
      <div className="chat-actions">
        {look.canStop && (
          <button type="button" className="button small" disabled={action.isPending} onClick={() => action.mutate('stop')} title="Ends its processes. All files are kept.">
            <Icon name="stop" />Stop
          </button>
        )}
        {look.canWake && (
          <button type="button" className="button small" disabled={action.isPending} onClick={() => action.mutate('wake')}>
            <Icon name="wake" />{chat.machine.state === 'sleeping' ? 'Wake' : 'Start'}
          </button>
        )}
        {look.canDestroy && (
          <button type="button" className="button small quiet danger" disabled={action.isPending} onClick={() => setAsking(true)}>
            <Icon name="trash" />Destroy…
          </button>
        )}
        <MachineDetails chat={chat} />
      </div>
      {asking && (
        <DestroyDialog
          title={title}
          onClose={() => setAsking(false)}
          onDestroy={() => {
            setAsking(false);
            action.mutate('destroy');
          }}
        />
      )}
    </section>
  );
}

/** What the machine is made of; read when it is asked for. */
function MachineDetails({ chat }: { chat: Chat }) {
  const [open, setOpen] = useState(false);
  const query = useQuery({ queryKey: ['chat', chat.id], queryFn: ({ signal }) => getChat(chat.id, signal), enabled: open });
  const machine = query.data?.machine ?? chat.machine;
  return (
    <details className="chat-details" onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>Details</summary>
      <dl>
        <dt>Chat</dt>
        <dd><code>{chat.id}</code></dd>
        <dt>Machine</dt>
        <dd><code>{machine.id}</code></dd>
        {machine.image && (<><dt>Image</dt><dd><code>{machine.image}</code></dd></>)}
        {machine.reason && (<><dt>Reason</dt><dd>{machine.reason}</dd></>)}
        {machine.isolation && machine.isolation.length > 0 && (<><dt>Not enforced</dt><dd>{machine.isolation.join(', ')}</dd></>)}
      </dl>
      {query.isError && <p className="chat-error" role="alert">Cannot read the details: {messageOf(query.error)}</p>}
    </details>
  );
}
