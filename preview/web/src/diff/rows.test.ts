import { expect, test } from 'vitest';
import type { Diff } from '../api/types.ts';
import { changeStarts, diffRows, maxLineLength, spokenMark, type DiffRow } from './rows.ts';

const diff: Diff = {
  before_exists: true,
  after_exists: true,
  added: 2,
  removed: 1,
  hunks: [
    { a: 3, b: 3, lines: [{ t: ' ', s: 'same' }, { t: '-', s: 'old' }, { t: '+', s: 'new' }, { t: '+', s: 'more' }, { t: ' ', s: 'end\r' }] },
    { a: 40, b: 41, lines: [{ t: '-', a: 40, s: 'x'.repeat(maxLineLength + 7) }] },
  ],
};

test('hunks become rows with numbers on both sides', () => {
  const shown = diffRows(diff).map((r) => (r.type === 'hunk' ? r.label : [r.mark, r.before, r.after, r.text.length, r.cut]));
  expect(shown).toEqual([
    'lines 3–6',
    [' ', 3, 3, 4, 0],
    ['-', 4, null, 3, 0],
    ['+', null, 4, 3, 0],
    ['+', null, 5, 4, 0],
    [' ', 5, 6, 4, 0],
    'removed line 40',
    ['-', 40, null, maxLineLength, 7],
  ]);
});

test('lines are spoken with their mark', () => {
  const lines = diffRows(diff).filter((r): r is Extract<DiffRow, { type: 'line' }> => r.type === 'line');
  expect(lines.slice(0, 3).map(spokenMark)).toEqual(['line 3', 'removed line 4', 'added line 4']);
});

test('runs of changed lines are found', () => {
  expect(changeStarts(diffRows(diff))).toEqual([2, 7]);
});

test('no hunks are no rows', () => {
  expect(diffRows({ ...diff, hunks: [] })).toEqual([]);
});
