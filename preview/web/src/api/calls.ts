import { encodePath, fileURL, isShownIn, treeOfRoot, type Place } from '../route/place.ts';
import { ApiError, getJSON, send } from './client.ts';
import type { Chat, Diff, Listing, Me, Session } from './types.ts';
import { entryOf, type WireEntry } from './wire.ts';

/** Who is signed in; null when nobody is. */
export async function getSession(signal: AbortSignal): Promise<Session | null> {
  try {
    const response = await send('/v1/me', { signal });
    return { me: (await response.json()) as Me, cursor: response.headers.get('Berth-Cursor') ?? '' };
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

export async function signOut(): Promise<void> {
  await send('/v1/signout', { method: 'POST' });
}

/** How many names of a directory come at a time. */
export const pageSize = 1000;

/** One page of a directory. */
export async function listDirectory(place: Place, after: string | null, signal?: AbortSignal): Promise<Listing> {
  const query = new URLSearchParams({ list: '1', limit: String(pageSize) });
  if (after !== null) query.set('after', after);
  const page = await getJSON<{ entries: WireEntry[]; next?: string }>(`${fileURL(place)}?${query}`, signal);
  const entries = page.entries.map(entryOf).filter((e) => isShownIn(place, e.name));
  return page.next ? { entries, next: page.next } : { entries };
}

/** The diff of a file against its content before a tool call, by default the latest one. */
export async function getDiff(place: Place, call: string | null, me: Me, signal: AbortSignal): Promise<Diff> {
  const query = new URLSearchParams({ tree: treeOfRoot(place.root, me) });
  if (call !== null) query.set('call', call);
  return getJSON<Diff>(`/v1/diff?${query}&path=${encodePath(place.path)}`, signal);
}

/** All chats, from as many pages as there are. */
export async function listChats(signal: AbortSignal): Promise<Chat[]> {
  const chats: Chat[] = [];
  let after: string | undefined;
  do {
    const query = after === undefined ? '' : `?${new URLSearchParams({ after })}`;
    const page = await getJSON<{ chats: Chat[]; next?: string }>(`/v1/chats${query}`, signal);
    chats.push(...page.chats);
    after = page.next;
  } while (after);
  return chats;
}

export async function getChat(id: string, signal: AbortSignal): Promise<Chat> {
  return getJSON<Chat>(`/v1/chats/${encodeURIComponent(id)}`, signal);
}

const machineURL = (chat: string) => `/v1/chats/${encodeURIComponent(chat)}/machine`;

export async function stopMachine(chat: string): Promise<void> {
  await send(`${machineURL(chat)}/stop`, { method: 'POST' });
}

export async function wakeMachine(chat: string): Promise<void> {
  await send(`${machineURL(chat)}/wake`, { method: 'POST' });
}

export async function destroyMachine(chat: string): Promise<void> {
  await send(machineURL(chat), { method: 'DELETE' });
}
