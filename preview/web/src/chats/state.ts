import type { MachineState } from '../api/types.ts';

/** How a machine's state is shown and what can be done in it. */
export interface StateLook {
  word: string;
  tone: 'good' | 'busy' | 'idle' | 'bad';
  explanation: string;
  canStop: boolean;
  canWake: boolean;
  canDestroy: boolean;
}

export const stateLooks: Record<MachineState, StateLook> = {
  waiting: { word: 'Not started', tone: 'idle', explanation: 'Starts with the first tool call.', canStop: false, canWake: false, canDestroy: false },
  creating: { word: 'Starting', tone: 'busy', explanation: 'A machine is being prepared.', canStop: false, canWake: false, canDestroy: true },
  running: { word: 'Running', tone: 'good', explanation: 'Ready for tool calls.', canStop: true, canWake: false, canDestroy: true },
  sleeping: { word: 'Sleeping', tone: 'idle', explanation: 'Wakes with the next tool call; its files are kept.', canStop: false, canWake: true, canDestroy: true },
  terminated: { word: 'Destroyed', tone: 'idle', explanation: 'The next tool call makes a new one.', canStop: false, canWake: false, canDestroy: false },
  failed: { word: 'Failed', tone: 'bad', explanation: 'It did not start.', canStop: false, canWake: true, canDestroy: true },
};

/** A state that this page does not know yet is shown by its own name. */
export function lookOf(state: string): StateLook {
  return Object.entries(stateLooks).find(([name]) => name === state)?.[1] ?? {
    word: state, tone: 'idle', explanation: '', canStop: false, canWake: false, canDestroy: true,
  };
}
