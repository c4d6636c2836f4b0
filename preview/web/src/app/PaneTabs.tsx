import { Icon, type IconName } from '../ui/Icon.tsx';

export type PaneName = 'files' | 'view' | 'changes' | 'chats';

const looks: Record<PaneName, { word: string; icon: IconName }> = {
  files: { word: 'Files', icon: 'folder' },
  view: { word: 'Open', icon: 'view' },
  changes: { word: 'Changes', icon: 'changes' },
  chats: { word: 'Chats', icon: 'chat' },
};

interface PaneTabsProps {
  chosen: PaneName;
  panes: readonly PaneName[];
  /** How many changes are listed. */
  count: number;
  onChoose: (pane: PaneName) => void;
}

/** The choice of the pane to show, where there is no room for all. */
export function PaneTabs({ chosen, panes, count, onChoose }: PaneTabsProps) {
  return (
    <nav className="pane-tabs" aria-label="Panes">
      {panes.map((pane) => (
        <button key={pane} type="button" className="pane-tab" aria-current={pane === chosen ? 'true' : undefined} onClick={() => onChoose(pane)}>
          <Icon name={looks[pane].icon} />
          <span>{looks[pane].word}</span>
          {pane === 'changes' && count > 0 && <span className="count">{count}</span>}
        </button>
      ))}
    </nav>
  );
}
