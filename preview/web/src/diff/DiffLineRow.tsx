import { memo } from 'react';
import { plural } from '../text/format.ts';
import { spokenMark, type DiffRow } from './rows.ts';

const classes = { '+': 'diff-row added', '-': 'diff-row removed', ' ': 'diff-row' };
const glyphs = { '+': '+', '-': '−', ' ': ' ' };

/** One row of a diff: the number before and after, the mark and the text. */
export const DiffLineRow = memo(function DiffLineRow({ row }: { row: DiffRow }) {
  if (row.type === 'hunk') {
    return (
      <div className={row.first ? 'diff-hunk first' : 'diff-hunk'} role="cell" aria-colspan={3}>
        {row.label}
      </div>
    );
  }
  return (
    <div className={classes[row.mark]} role="presentation">
      <span className="diff-number" role="cell" aria-hidden="true">{row.before ?? ''}</span>
      <span className="diff-number" role="cell" aria-hidden="true">{row.after ?? ''}</span>
      <span className="diff-text" role="cell">
        <span className="visually-hidden">{spokenMark(row)}: </span>
        <span className="diff-glyph" aria-hidden="true">{glyphs[row.mark]}</span>
        {row.text}
        {row.cut > 0 && <em className="diff-cut"> … {plural(row.cut, 'character')} more</em>}
      </span>
    </div>
  );
});
