import { useEffect, useState } from 'react';
import { ago } from '../text/format.ts';

/** The time now, renewed so that shown ages stay about right. */
function useNow(every: number): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = window.setInterval(() => setNow(new Date()), every);
    return () => window.clearInterval(timer);
  }, [every]);
  return now;
}

/** How long ago something was; the exact time is in the title. */
export function RelativeTime({ time, every = 10_000 }: { time: string | Date; every?: number }) {
  const now = useNow(every);
  const date = typeof time === 'string' ? new Date(time) : time;
  // Directories that are only part of a path have no time of their own.
  if (!(date.getTime() > 0)) return null;
  return (
    <time dateTime={date.toISOString()} title={date.toLocaleString()}>
      {ago(date, now)}
    </time>
  );
}
