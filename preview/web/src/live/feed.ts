import { create } from 'zustand';
import type { PlacedChange } from '../tree/apply.ts';
import { addChanges, type ChangedPath } from './coalesce.ts';
import type { Connection } from './stream.ts';

/** The list of changes holds this many paths. */
export const changeLimit = 500;

interface FeedStore {
  changes: readonly ChangedPath[];
  /** When the list lost changes it was never told of; null: it did not. */
  missed: Date | null;
  connection: Connection;
  /** When the stream last was known to work. */
  lastSeen: Date | null;
  add(changes: readonly PlacedChange[]): void;
  setMissed(): void;
  setConnection(connection: Connection): void;
  clear(): void;
}

/** What the event stream told this tab so far. */
export const useFeed = create<FeedStore>((set, get) => ({
  changes: [],
  missed: null,
  connection: 'connecting',
  lastSeen: null,
  add(changes) {
    set({ changes: addChanges(get().changes, changes, changeLimit), lastSeen: new Date() });
  },
  setMissed() {
    if (get().changes.length > 0) set({ missed: new Date() });
  },
  setConnection(connection) {
    set(connection === 'open' || get().connection === 'open' ? { connection, lastSeen: new Date() } : { connection });
  },
  clear() {
    set({ changes: [], missed: null });
  },
}));
