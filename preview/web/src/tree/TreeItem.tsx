import { shownName } from '../text/names.ts';
import { formatSize } from '../text/format.ts';
import { Icon, type IconName } from '../ui/Icon.tsx';
import { Name } from '../ui/Name.tsx';
import type { TreeRow } from './model.ts';

const icons: Record<TreeRow['kind'], IconName> = { dir: 'folder', file: 'file', symlink: 'link', other: 'other' };

interface TreeItemProps {
  row: TreeRow;
  top: number;
  height: number;
  selected: boolean;
  tabStop: boolean;
  onActivate: () => void;
}

/** What a note row says; a name row says its name. */
function label(row: TreeRow): string {
  if (row.type === 'error') return `Try again: ${row.label}`;
  return shownName(row.label);
}

function title(row: TreeRow): string {
  if (row.entry?.kind === 'symlink') return `${label(row)} → ${shownName(row.entry.target ?? 'elsewhere')}`;
  if (row.entry?.kind === 'file') return `${label(row)}, ${formatSize(row.entry.size)}`;
  return label(row);
}

/** One row of the tree. */
export function TreeItem({ row, top, height, selected, tabStop, onActivate }: TreeItemProps) {
  const isNote = row.type !== 'entry';
  return (
    <div
      role="treeitem"
      className={`tree-row${isNote ? ' tree-note' : ''}`}
      data-key={row.key}
      data-type={row.type}
      aria-level={row.level}
      aria-posinset={row.position}
      aria-setsize={row.siblings}
      aria-selected={selected}
      aria-expanded={row.kind === 'dir' ? row.expanded : undefined}
      aria-disabled={row.type === 'loading' || row.type === 'empty' || undefined}
      aria-label={title(row)}
      title={title(row)}
      tabIndex={tabStop ? 0 : -1}
      style={{ height, transform: `translateY(${top}px)`, paddingInlineStart: 8 + (row.level - 1) * 14 }}
      onClick={onActivate}
    >
      {row.kind === 'dir' ? <Icon name="chevron" className={row.expanded ? 'tree-chevron open' : 'tree-chevron'} /> : <span className="tree-chevron" />}
      {!isNote && <Icon name={icons[row.kind]} className={`kind-${row.kind}`} />}
      <span className="tree-label">{isNote ? label(row) : <Name name={row.label} />}</span>
    </div>
  );
}
