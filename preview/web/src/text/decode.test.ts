import { expect, test } from 'vitest';
import { decodeText } from './decode.ts';

const utf8 = (s: string) => new TextEncoder().encode(s);

test('text is decoded by its marks', () => {
  expect(decodeText(utf8('día'), false)).toEqual({ text: 'día', encoding: 'UTF-8', lossy: false });
  expect(decodeText(Uint8Array.from([0xff, 0xfe, 0x61, 0x00]), false)).toEqual({ text: 'a', encoding: 'UTF-16LE', lossy: false });
  expect(decodeText(Uint8Array.from([0xfe, 0xff, 0x00, 0x61]), false)).toEqual({ text: 'a', encoding: 'UTF-16BE', lossy: false });
});

test('a NUL near the start makes it binary', () => {
  expect(decodeText(Uint8Array.from([0x50, 0x4b, 0x00, 0x01]), false)).toBeNull();
});

test('bytes without a character are shown and told', () => {
  expect(decodeText(Uint8Array.from([0x61, 0xff, 0x62]), false)).toEqual({ text: 'a\ufffdb', encoding: 'UTF-8', lossy: true });
});

test('a window may split a character at either end', () => {
  const bytes = utf8('é€é');
  expect(decodeText(bytes.subarray(1, bytes.length - 1), true)).toEqual({ text: '€', encoding: 'UTF-8', lossy: false });
});
