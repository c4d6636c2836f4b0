import { fileURL, type Place } from '../route/place.ts';
import { ApiError, send } from './client.ts';

/** Files up to this size are read whole; of larger ones the page shows a window. */
export const wholeLimit = 10_000_000;
/** How much of a larger file a window holds. */
export const windowSize = 1_000_000;

/** Which part of a large file to read. */
export type Part = 'start' | 'end';

/** The content of a file, or the window of it that was read. */
export interface Content {
  bytes: Uint8Array;
  /** Where the bytes begin in the file, and how large the whole is. */
  offset: number;
  total: number;
  modified: string | null;
}

/** Reads `bytes 0-99/1234` of a Content-Range header. */
export function parseContentRange(header: string | null): { offset: number; total: number } | null {
  const match = /^bytes (\d+)-\d+\/(\d+)$/.exec(header ?? '');
  return match ? { offset: Number(match[1]), total: Number(match[2]) } : null;
}

/** Reads a body up to a limit, then gives up the rest. */
async function readUpTo(response: Response, limit: number): Promise<Uint8Array> {
  const reader = response.body?.getReader();
  if (!reader) return new Uint8Array();
  const chunks: Uint8Array[] = [];
  let length = 0;
  while (length < limit) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    length += value.length;
  }
  if (length >= limit) await reader.cancel();
  const all = new Uint8Array(Math.min(length, limit));
  let at = 0;
  for (const chunk of chunks) {
    const rest = chunk.subarray(0, all.length - at);
    all.set(rest, at);
    at += rest.length;
  }
  return all;
}

/** Reads a file whole up to wholeLimit, or the asked end of a larger one. */
export async function readContent(place: Place, part: Part, signal?: AbortSignal): Promise<Content> {
  const range = part === 'start' ? `bytes=0-${wholeLimit - 1}` : `bytes=-${windowSize}`;
  let response: Response;
  try {
    response = await send(fileURL(place), { headers: { Range: range }, ...(signal && { signal }) });
  } catch (error) {
    if (error instanceof ApiError && error.status === 416) return { bytes: new Uint8Array(), offset: 0, total: 0, modified: null };
    throw error;
  }
  // A file never comes as JSON: the name is a directory's by now.
  if (response.headers.get('Content-Type')?.startsWith('application/json')) throw new ApiError(409, 'conflict', 'it is a folder now');
  const modified = response.headers.get('Last-Modified');
  const window = response.status === 206 ? parseContentRange(response.headers.get('Content-Range')) : null;
  const total = window?.total ?? Number(response.headers.get('Content-Length') ?? 0);
  const offset = window?.offset ?? 0;
  const bytes = await readUpTo(response, part === 'start' && total > wholeLimit ? windowSize : wholeLimit);
  return { bytes, offset, total: Math.max(total, bytes.length), modified };
}
