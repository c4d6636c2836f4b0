import { create } from 'zustand';
import type { PlacedChange } from '../tree/apply.ts';
import { plural } from '../text/format.ts';
import { changedPathCount } from './coalesce.ts';

/** A screen reader hears of changes at most once in this time. */
const quiet = 5000;

export const useAnnouncement = create<{ text: string }>(() => ({ text: '' }));

/** Says something at once, for what the user did. */
export function announce(text: string): void {
  useAnnouncement.setState({ text });
}

let waiting: PlacedChange[] = [];
let timer: number | undefined;

function speak(): void {
  timer = undefined;
  if (waiting.length === 0) return;
  const count = changedPathCount(waiting);
  waiting = [];
  if (count > 0) announce(`${plural(count, 'file')} changed`);
  timer = window.setTimeout(speak, quiet);
}

/** Says how many files changed, gathered so that it is said rarely. */
export function announceChanges(changes: readonly PlacedChange[]): void {
  waiting = waiting.concat(changes);
  if (timer === undefined) speak();
}
