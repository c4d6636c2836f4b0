import { expect, test } from 'vitest';
import { ago, formatSize, plural } from './format.ts';

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [1000, '1.0 KB'],
  [1_440_000, '1.4 MB'],
  [480_000_000, '480 MB'],
  [2 ** 63, '9.2 EB'],
])('formatSize(%d) is %s', (bytes, want) => {
  expect(formatSize(bytes)).toBe(want);
});

test.each([
  [0, 'now'],
  [59, '59 s ago'],
  [3599, '59 min ago'],
  [7200, '2 h ago'],
  [86400 * 3, '3 d ago'],
  [86400 * 400, '26 Oct 2025'],
  [-30, 'now'],
])('ago of %d s is %s', (seconds, want) => {
  const now = new Date('2026-11-30T12:00:00Z');
  expect(ago(new Date(now.getTime() - seconds * 1000), now)).toBe(want);
});

test('plural counts', () => {
  expect([plural(1, 'file'), plural(1200, 'file')]).toEqual(['1 file', '1,200 files']);
});
