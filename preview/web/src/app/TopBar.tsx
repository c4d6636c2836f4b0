import { useMutation, useQueryClient } from '@tanstack/react-query';
import { signOut } from '../api/calls.ts';
import { messageOf } from '../api/client.ts';
import type { Me } from '../api/types.ts';
import { announce } from '../live/announce.ts';
import { useFeed } from '../live/feed.ts';
import { Link } from '../route/Link.tsx';
import { Icon } from '../ui/Icon.tsx';
import { ThemeButton } from './ThemeButton.tsx';

const words = { open: 'Live', connecting: 'Connecting', lost: 'Offline' };

interface TopBarProps {
  me: Me;
  /** Called with true before the session is ended, with false if that fails. */
  onLeaving: (leaving: boolean) => void;
}

/** The head of the page: where I am, whether it is live, and the way out. */
export function TopBar({ me, onLeaving }: TopBarProps) {
  const client = useQueryClient();
  const connection = useFeed((f) => f.connection);
  const leave = useMutation({
    mutationFn: signOut,
    onMutate: () => onLeaving(true),
    onSuccess: () => client.setQueryData(['me'], null),
    onError: (error) => {
      announce(`Cannot sign out: ${messageOf(error)}`);
      onLeaving(false);
    },
  });
  return (
    <header className="topbar">
      <Link href="/files/me" className="brand" aria-label="Berth, my disk"><Icon name="berth" /><span>Berth</span></Link>
      <p className="who">
        <span className="who-workspace">{me.workspace}</span>
        <span className="who-user">{me.user}</span>
      </p>
      <span className={`live live-${connection}`}>{words[connection]}</span>
      {leave.isError && <span className="topbar-error">Cannot sign out</span>}
      <ThemeButton />
      <button type="button" className="icon-button" onClick={() => leave.mutate()} disabled={leave.isPending} aria-label="Sign out" title="Sign out">
        <Icon name="signout" />
      </button>
    </header>
  );
}
