/**
 * Names of files are bytes. Inside the page they are strings: valid UTF-8 as
 * itself, and each other byte b as the lone surrogate U+DC00+b, which no decoded
 * text holds. So every name has exactly one string, and can be sent back.
 */

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

function decodeOrNull(bytes: Uint8Array): string | null {
  try {
    return strict.decode(bytes);
  } catch {
    return null;
  }
}

function sequenceLength(lead: number): number {
  if (lead < 0x80) return 1;
  if (lead >= 0xf0) return 4;
  return lead >= 0xe0 ? 3 : 2;
}

export function stringOfBytes(bytes: Uint8Array): string {
  const whole = decodeOrNull(bytes);
  if (whole !== null) return whole;
  let out = '';
  for (let i = 0; i < bytes.length; ) {
    const lead = bytes[i] ?? 0;
    const length = sequenceLength(lead);
    const text = i + length <= bytes.length ? decodeOrNull(bytes.subarray(i, i + length)) : null;
    out += text ?? String.fromCharCode(0xdc00 + lead);
    i += text === null ? 1 : length;
  }
  return out;
}

export function stringOfBase64(base64: string): string {
  return stringOfBytes(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
}

const percent = (byte: number) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;

/** Escapes one name for a URL, byte by byte where it is not text. */
export function encodeName(name: string): string {
  let out = '';
  for (const c of name) {
    const code = c.codePointAt(0) ?? 0;
    if (code >= 0xdc80 && code <= 0xdcff) out += percent(code - 0xdc00);
    else if (code >= 0xd800 && code <= 0xdfff) out += encodeURIComponent('\ufffd');
    else out += encodeURIComponent(c);
  }
  return out;
}

/** Reads what encodeName wrote. Escapes that are not valid stand for themselves. */
export function decodeName(encoded: string): string {
  const bytes: number[] = [];
  for (const part of encoded.match(/%[0-9a-fA-F]{2}|[^%]+|%/g) ?? []) {
    if (part.length === 3 && part.startsWith('%')) bytes.push(parseInt(part.slice(1), 16));
    else bytes.push(...encoder.encode(part));
  }
  return stringOfBytes(Uint8Array.from(bytes));
}
