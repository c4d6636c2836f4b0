/** Part of a shown name: plain text, or a character written as an escape. */
export interface NamePart {
  text: string;
  escaped: boolean;
}

const short: Record<string, string> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/**
 * Characters that would lie about a name when shown as they are: controls, marks
 * that change the direction of text, invisible ones, halves of surrogate pairs
 * and the mark of undecodable bytes.
 */
const unsafe =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffd]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

function escapeOne(c: string): string {
  const known = short[c];
  if (known) return known;
  const code = c.charCodeAt(0);
  // A byte that is not text; see bytes.ts.
  if (code >= 0xdc80 && code <= 0xdcff) return `\\x${(code - 0xdc00).toString(16)}`;
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
}

/** Splits a name into parts to show, so that every character of it is visible. */
export function nameParts(name: string): NamePart[] {
  const parts: NamePart[] = [];
  const add = (text: string, escaped: boolean) => {
    const last = parts.at(-1);
    if (last?.escaped === escaped) last.text += text;
    else if (text) parts.push({ text, escaped });
  };
  // A space at either end cannot be seen.
  const body = name.replace(/^ +| +$/g, (s) => '\u0000'.repeat(s.length));
  let at = 0;
  for (const match of body.matchAll(unsafe)) {
    add(name.slice(at, match.index), false);
    const c = name.charAt(match.index);
    add(c === ' ' ? '\\x20' : escapeOne(c), true);
    at = match.index + 1;
  }
  add(name.slice(at), false);
  return parts;
}

/** The name as one line of visible text, for labels and titles. */
export function shownName(name: string): string {
  return nameParts(name)
    .map((p) => p.text)
    .join('');
}

/** The last segment of a path. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** The path without its last segment; empty when it has one only. */
export function parentPath(path: string): string {
  const slash = path.lastIndexOf('/');
  return slash < 0 ? '' : path.slice(0, slash);
}
