import { encodePath, fileURL, treeOfRoot, type Place } from '../route/place.ts';
import { ApiError, getJSON, send } from './client.ts';
import type { Chat, Diff, Listing, Me } from './types.ts';
import { entryOf, type WireEntry } from './wire.ts';

/** Who is signed in; null when nobody is. */
export async function getMe(signal: AbortSignal): Promise<Me | null> {
  try {
    return await getJSON<Me>('/v1/me', signal);
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
  const page = await getJSON<{ entries: WireEntry[] | null; next?: string }>(`${fileURL(place)}?${query}`, signal);
  const entries = (page.entries ?? []).map(entryOf);
  return page.next ? { entries, next: page.next } : { entries };
}

/** The diff of a file against its content before a tool call, by default the latest one. */
export async function getDiff(place: Place, call: string | null, me: Me, signal: AbortSignal): Promise<Diff> {
  const query = new URLSearchParams({ tree: treeOfRoot(place.root, me) });
  if (call !== null) query.set('call', call);
  return getJSON<Diff>(`/v1/diff?${query}&path=${encodePath(place.path)}`, signal);
}

export async function listChats(signal: AbortSignal): Promise<Chat[]> {
  const answer = await getJSON<{ chats: Chat[] | null }>('/v1/chats', signal);
  return answer.chats ?? [];
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
