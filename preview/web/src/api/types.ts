/** The shapes of the HTTP API that the page uses. openapi.yaml is their source. */

export type FileKind = 'file' | 'dir' | 'symlink' | 'other';

export interface Me {
  kind: 'operator' | 'admin' | 'member' | 'key';
  workspace?: string;
  user?: string;
  /** False where the gateway runs no machines. */
  sandboxes: boolean;
}

/** Who is signed in, and the position of the event stream when it was asked. */
export interface Session {
  me: Me;
  cursor: string;
}

/** One name of a directory. */
export interface Entry {
  name: string;
  kind: FileKind;
  size: number;
  mtime: string;
  /** Where a symbolic link points. */
  target?: string;
}

export interface Listing {
  entries: Entry[];
  /** Set when there is more: the next page begins after it. */
  next?: string;
}

export type ChangeOp = 'create' | 'write' | 'remove' | 'rename' | 'attr';

/** One committed change of a file. */
export interface Change {
  seq: number;
  time: string;
  /** The tree's place in the bucket, such as `acme/members/ann`. */
  tree: string;
  path: string;
  /** The old path of a rename. */
  from?: string;
  op: ChangeOp;
  kind: FileKind;
  size: number;
  version?: string;
  /** The tool calls that ran while the change was made. */
  calls?: string[];
  chat?: string;
}

export type MachineState = 'waiting' | 'creating' | 'running' | 'sleeping' | 'terminated' | 'failed';

export interface Machine {
  id: string;
  state: MachineState;
  reason?: string;
  image?: string;
  isolation?: string[];
  since?: string;
}

export interface Chat {
  id: string;
  title?: string;
  machine: Machine;
}

/** What the stream says of a machine. */
export interface MachineEvent {
  chat: string;
  machine: string;
  state: MachineState;
  reason?: string;
  since?: string;
}

export interface DiffLine {
  t: ' ' | '+' | '-';
  /** The line's number before and after, where it has one. */
  a?: number;
  b?: number;
  s: string;
}

export interface DiffHunk {
  /** The first line's number before and after. */
  a: number;
  b: number;
  lines: DiffLine[];
}

export interface Diff {
  hunks: DiffHunk[];
  added: number;
  removed: number;
  /** Lines or parts of lines were left out. */
  truncated?: boolean;
  /** A part was too different to compare line by line and is shown as replaced. */
  approximate?: boolean;
  binary?: boolean;
  /** The tool call that the diff is against. */
  call?: string;
  before_exists: boolean;
  after_exists: boolean;
}
