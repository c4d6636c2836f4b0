import { stringOfBase64 } from '../text/bytes.ts';
import type { Change, Entry } from './types.ts';

/**
 * What the API adds where a name is not UTF-8, which JSON cannot hold: the bytes
 * themselves.
 */
export interface WireEntry extends Entry {
  name_base64?: string;
}

export interface WireChange extends Change {
  path_base64?: string;
  from_base64?: string;
}

export function entryOf(wire: WireEntry): Entry {
  const { name_base64, ...entry } = wire;
  return name_base64 === undefined ? entry : { ...entry, name: stringOfBase64(name_base64) };
}

export function changeOf(wire: WireChange): Change {
  const { path_base64, from_base64, ...change } = wire;
  if (path_base64 !== undefined) change.path = stringOfBase64(path_base64);
  if (from_base64 !== undefined) change.from = stringOfBase64(from_base64);
  return change;
}
