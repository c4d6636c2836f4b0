import { useEffect, useState } from 'react';
import { useFeed } from '../live/feed.ts';
import { RelativeTime } from '../ui/RelativeTime.tsx';

/** Short losses heal by themselves and are not worth a banner. */
const patience = 2000;

/** Says that what is shown may be old, while the server cannot be reached. */
export function OfflineBanner() {
  const lost = useFeed((f) => f.connection !== 'open');
  const lastSeen = useFeed((f) => f.lastSeen);
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (!lost) return undefined;
    const timer = window.setTimeout(() => setShown(true), patience);
    return () => {
      window.clearTimeout(timer);
      setShown(false);
    };
  }, [lost]);
  return (
    <div role="status">
      {shown && (
        <p className="offline">
          Reconnecting…{' '}
          {lastSeen ? <span>What you see may be old: last contact <RelativeTime time={lastSeen} every={1000} />.</span> : 'Changes are not shown live yet.'}
        </p>
      )}
    </div>
  );
}
