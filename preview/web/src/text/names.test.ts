import { expect, test } from 'vitest';
import { decodeName, encodeName, stringOfBase64, stringOfBytes } from './bytes.ts';
import { baseName, nameParts, parentPath, shownName } from './names.ts';

test.each([
  ['plain.txt', 'plain.txt'],
  ['日本 🎉.md', '日本 🎉.md'],
  ['line\nbreak', 'line\\nbreak'],
  ['tab\there\r', 'tab\\there\\r'],
  ['bell\u0007', 'bell\\x07'],
  ['txt\u202eexe.gpj', 'txt\\u{202e}exe.gpj'],
  ['zero\u200bwidth', 'zero\\u{200b}width'],
  [' padded  ', '\\x20padded\\x20\\x20'],
  ['caf\udce9', 'caf\\xe9'],
  ['half\ud83d', 'half\\u{d83d}'],
])('shownName(%j) is %j', (name, want) => {
  expect(shownName(name)).toBe(want);
});

test('escapes are marked, text is not', () => {
  expect(nameParts('a\n\nb')).toEqual([
    { text: 'a', escaped: false },
    { text: '\\n\\n', escaped: true },
    { text: 'b', escaped: false },
  ]);
});

test.each([
  ['a b', 'a%20b'],
  ['100% #1?.txt', '100%25%20%231%3F.txt'],
  ['line\nbreak', 'line%0Abreak'],
  ['é🎉', '%C3%A9%F0%9F%8E%89'],
  ['caf\udce9.txt', 'caf%E9.txt'],
])('encodeName(%j) is %j and back', (name, want) => {
  expect(encodeName(name)).toBe(want);
  expect(decodeName(want)).toBe(name);
});

test('escapes that are not valid stand for themselves', () => {
  expect(decodeName('50%')).toBe('50%');
  expect(decodeName('%zz')).toBe('%zz');
});

test('every byte of a name survives', () => {
  const bytes = Uint8Array.from([0x61, 0xff, 0xc3, 0xa9, 0xc3, 0xed, 0xa0, 0x80, 0xf0, 0x9f]);
  const name = stringOfBytes(bytes);
  expect(encodeName(name)).toBe('a%FF%C3%A9%C3%ED%A0%80%F0%9F');
  expect(stringOfBase64(btoa(String.fromCharCode(...bytes)))).toBe(name);
});

test('paths are taken apart', () => {
  expect([baseName('a/b/c'), baseName('c'), parentPath('a/b/c'), parentPath('c')]).toEqual(['c', 'c', 'a/b', '']);
});
