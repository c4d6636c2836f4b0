import { useQueryClient, type QueryClient } from '@tanstack/react-query';
import { useEffect, useRef } from 'react';
import type { Change, Chat, MachineEvent, Session } from '../api/types.ts';
import { rootOfTree, type Owner } from '../route/place.ts';
import type { PlacedChange } from '../tree/apply.ts';
import { useTree } from '../tree/store.ts';
import { announceChanges } from './announce.ts';
import { Batcher, type Clock } from './batch.ts';
import { useFeed } from './feed.ts';
import { EventStream, type StreamListener } from './stream.ts';

const clock: Clock = {
  now: () => performance.now(),
  later: (run, ms) => void window.setTimeout(run, ms),
};

/** So many events from before the page was opened fill the list of changes. */
const earlierEvents = 200;

/** The changes of trees that this page shows, each with its root. */
export function placeChanges(changes: readonly Change[], me: Owner): PlacedChange[] {
  return changes.flatMap((c) => {
    const root = rootOfTree(c.tree, me);
    return root === null ? [] : [{ ...c, root }];
  });
}

/** Fetches again the open files and diffs that the changes touch. */
function refreshOpenFiles(client: QueryClient, changes: readonly PlacedChange[]): void {
  const touched = new Set(changes.flatMap((c) => [`${c.root}/${c.path}`, `${c.root}/${c.from ?? c.path}`]));
  const isTouched = (key: string) => {
    for (let at = key.length; at > 0; at = key.lastIndexOf('/', at - 1)) {
      if (touched.has(key.slice(0, at))) return true;
    }
    return false;
  };
  void client.invalidateQueries({
    predicate: ({ queryKey: [what, key] }) => (what === 'file' || what === 'diff') && typeof key === 'string' && isTouched(key),
  });
}

/** Reads again what could not be read while the server was away. */
function retryFailed(client: QueryClient): void {
  useTree.getState().retry();
  void client.invalidateQueries({ predicate: ({ state }) => state.status === 'error' });
}

function showMachine(client: QueryClient, event: MachineEvent): void {
  const { chat, machine, ...state } = event;
  const withState = (c: Chat): Chat => (c.id === chat ? { ...c, machine: { ...c.machine, ...state, id: machine } } : c);
  const known = client.getQueryData<Chat[]>(['chats']);
  if (known?.some((c) => c.id === chat)) client.setQueryData<Chat[]>(['chats'], (old) => old?.map(withState));
  else void client.invalidateQueries({ queryKey: ['chats'] });
  void client.invalidateQueries({ queryKey: ['chat', chat] });
}

/**
 * Keeps the tab's event stream while the page is shown, and its news in the
 * stores. While it is paused there is no stream; it goes on where it ended.
 */
export function useLive({ me, cursor }: Session, paused: boolean): void {
  const client = useQueryClient();
  // Later sessions of the same member go on with the stream that there is.
  const position = useRef(cursor);
  const history = useRef(earlierEvents);
  const { workspace, user } = me;
  useEffect(() => {
    if (paused) return undefined;
    const { add, setMissed, setConnection } = useFeed.getState();
    const batcher = new Batcher<PlacedChange>((changes) => {
      useTree.getState().apply(changes);
      add(changes);
      refreshOpenFiles(client, changes);
    }, clock);
    const listener: StreamListener = {
      changes: (changes, earlier) => {
        const placed = placeChanges(changes, { workspace, user });
        batcher.add(placed);
        if (!earlier) announceChanges(placed);
      },
      machine: (event) => showMachine(client, event),
      resync: () => {
        setMissed();
        useTree.getState().resync();
        void client.invalidateQueries({ predicate: ({ queryKey: [what] }) => what !== 'me' });
      },
      connection: (state) => {
        setConnection(state);
        if (state === 'open') retryFailed(client);
        // The server may have ended the stream because the session ended.
        if (state === 'lost') void client.invalidateQueries({ queryKey: ['me'] });
      },
    };
    const stream = new EventStream(listener, position.current, history.current);
    history.current = 0;
    stream.start();
    return () => {
      stream.stop();
      position.current = stream.position;
    };
  }, [client, workspace, user, paused]);
}
