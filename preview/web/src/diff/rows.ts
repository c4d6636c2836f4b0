import type { Diff, DiffLine } from '../api/types.ts';

/** Longer lines are cut in the view; the file itself has them whole. */
export const maxLineLength = 5000;

/** One row of the diff view. */
export type DiffRow =
  | { type: 'hunk'; label: string; first: boolean }
  | {
      type: 'line';
      mark: DiffLine['t'];
      before: number | null;
      after: number | null;
      text: string;
      /** How many characters are not shown. */
      cut: number;
    };

function lineRow(line: DiffLine): DiffRow {
  const text = line.s.replace(/\r?\n$/, '');
  return {
    type: 'line', mark: line.t, before: line.a || null, after: line.b || null,
    text: text.slice(0, maxLineLength), cut: Math.max(0, text.length - maxLineLength),
  };
}

/** The first line of a hunk that has a number on the given side, and how many have one. */
function hunkLabel(lines: readonly DiffLine[]): string {
  const after = lines.filter((l) => l.t !== '-');
  const side = after.length > 0 ? after : lines;
  const number = (l: DiffLine | undefined) => (after.length > 0 ? l?.b : l?.a) ?? 0;
  const first = number(side[0]);
  const last = number(side.at(-1));
  const what = after.length > 0 ? '' : 'removed ';
  return first === last ? `${what}line ${first}` : `${what}lines ${first}–${last}`;
}

/** Numbers lines whose numbers the server left out. */
function numbered(lines: readonly DiffLine[], a: number, b: number): DiffLine[] {
  let before = a;
  let after = b;
  return lines.map((l) => {
    const line: DiffLine = { t: l.t, s: l.s };
    if (l.t !== '+') line.a = l.a || before;
    if (l.t !== '-') line.b = l.b || after;
    if (l.t !== '+') before = (line.a ?? before) + 1;
    if (l.t !== '-') after = (line.b ?? after) + 1;
    return line;
  });
}

/** Lays a diff out as the rows to show. */
export function diffRows(diff: Diff): DiffRow[] {
  return diff.hunks.flatMap((h, i) => {
    const lines = numbered(h.lines, h.a, h.b);
    return [{ type: 'hunk', label: hunkLabel(lines), first: i === 0 } satisfies DiffRow, ...lines.map(lineRow)];
  });
}

/** What a screen reader is told of a line before its text. */
export function spokenMark(row: Extract<DiffRow, { type: 'line' }>): string {
  if (row.mark === '+') return `added line ${row.after ?? ''}`;
  if (row.mark === '-') return `removed line ${row.before ?? ''}`;
  return `line ${row.after ?? ''}`;
}

/** Where each run of changed lines begins, as indices of rows. */
export function changeStarts(rows: readonly DiffRow[]): number[] {
  const changed = (r: DiffRow | undefined) => r?.type === 'line' && r.mark !== ' ';
  return rows.flatMap((r, i) => (changed(r) && !changed(rows[i - 1]) ? [i] : []));
}
