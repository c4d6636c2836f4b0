/** A file's bytes as text to show. */
export interface DecodedText {
  text: string;
  encoding: 'UTF-8' | 'UTF-16LE' | 'UTF-16BE';
  /** True when some bytes have no character in the encoding and are shown as U+FFFD. */
  lossy: boolean;
}

function markOf(bytes: Uint8Array): DecodedText['encoding'] | null {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return 'UTF-16LE';
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return 'UTF-16BE';
  return null;
}

/**
 * Decodes text; null for binary content, which is content with a NUL byte among
 * the first 8,000 (the rule of git), unless it begins with the mark of UTF-16.
 * The end of a window may split a character: at most three bytes are left off.
 */
export function decodeText(bytes: Uint8Array, isWindow: boolean): DecodedText | null {
  const mark = markOf(bytes);
  if (!mark && bytes.subarray(0, 8000).includes(0)) return null;
  const encoding = mark ?? 'UTF-8';
  const strict = new TextDecoder(encoding, { fatal: true });
  const starts = isWindow ? [0, 1, 2, 3] : [0];
  for (const start of starts) {
    try {
      return { text: strict.decode(bytes.subarray(start), { stream: isWindow }), encoding, lossy: false };
    } catch {
      strict.decode(new Uint8Array());
    }
  }
  return { text: new TextDecoder(encoding).decode(bytes), encoding, lossy: true };
}
