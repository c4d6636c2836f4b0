import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useMemo, useState } from 'react';
import type { Session } from '../api/types.ts';
import { ChangeList } from '../changes/ChangeList.tsx';
import { ChatList } from '../chats/ChatList.tsx';
import { useFeed } from '../live/feed.ts';
import { useLive } from '../live/useLive.ts';
import { placeKey } from '../route/place.ts';
import { useRoute } from '../route/useRoute.ts';
import { FileTree } from '../tree/FileTree.tsx';
import type { TreeRoot } from '../tree/model.ts';
import { useTree } from '../tree/store.ts';
import { useLayout } from '../ui/useLayout.ts';
import { Viewer } from '../viewer/Viewer.tsx';
import { Announcer } from './Announcer.tsx';
import { OfflineBanner } from './OfflineBanner.tsx';
import { PaneTabs, type PaneName } from './PaneTabs.tsx';
import { Pane } from './Pane.tsx';
import { TopBar } from './TopBar.tsx';

/** When the session ends, nothing of it stays in memory. */
function useForgetting(): void {
  const client = useQueryClient();
  useEffect(
    () => () => {
      useTree.getState().clear();
      useFeed.getState().clear();
      client.removeQueries({ predicate: ({ queryKey: [what] }) => what !== 'me' });
    },
    [client],
  );
}

/**
 * The page of a signed-in member. Three panes beside each other where there is
 * room; else two, of which the first is chosen; on a phone one, chosen below.
 */
export function Workspace({ session }: { session: Session }) {
  const { me } = session;
  const [leaving, setLeaving] = useState(false);
  useLive(session, leaving);
  const route = useRoute();
  const layout = useLayout();
  const [chosen, setChosen] = useState<PaneName>(route.place?.path ? 'view' : 'files');
  const roots = useMemo<TreeRoot[]>(() => [{ key: 'me', label: 'My disk' }, { key: 'shared', label: 'Shared' }], []);
  const selected = route.place ? placeKey(route.place) : '';
  const count = useFeed((f) => f.changes.length);
  useEffect(() => useTree.getState().expand(roots.map((r) => r.key)), [roots]);
  useForgetting();

  // With two panes the viewer has its own place and is not chosen.
  const side = chosen === 'view' ? 'files' : chosen;
  const isShown = (pane: PaneName) => {
    if (layout === 'three') return true;
    return layout === 'two' ? pane === 'view' || pane === side : pane === chosen;
  };
  const showViewer = () => layout === 'one' && setChosen('view');

  if (me.kind !== 'member') {
    return (
      <main className="lone">
        <p>This page shows a member’s files. You are signed in as {me.kind}.</p>
      </main>
    );
  }
  return (
    <div className={`workspace layout-${layout}`}>
      <a className="skip" href="#viewer" onClick={() => setChosen('view')}>Skip to the open file</a>
      <TopBar me={me} onLeaving={setLeaving} />
      <OfflineBanner />
      {layout === 'two' && <PaneTabs chosen={side} panes={['files', 'changes', 'chats']} count={count} onChoose={setChosen} />}
      <Pane name="files" title="Files" shown={isShown('files')}>
        <FileTree roots={roots} selected={selected} onOpenFile={showViewer} />
      </Pane>
      <main id="viewer" className="pane pane-view" hidden={!isShown('view')} tabIndex={-1}>
        <Viewer route={route} me={me} />
      </main>
      <Pane name="chats" title="Chats" shown={isShown('chats')}>
        <ChatList me={me} />
      </Pane>
      <Pane name="changes" title="Changes" shown={isShown('changes')} {...(count > 0 && { count })}>
        <ChangeList selected={selected} onOpen={showViewer} />
      </Pane>
      {layout === 'one' && <PaneTabs chosen={chosen} panes={['files', 'view', 'changes', 'chats']} count={count} onChoose={setChosen} />}
      <Announcer />
    </div>
  );
}
