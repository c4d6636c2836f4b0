import type { MachineEvent } from '../api/types.ts';
import { changeOf, type WireChange } from '../api/wire.ts';
import type { Change } from '../api/types.ts';

export type Connection = 'connecting' | 'open' | 'lost';

/** Who is told what the stream says. */
export interface StreamListener {
  /** Earlier changes are from before the page was opened. */
  changes(changes: Change[], earlier: boolean): void;
  machine(event: MachineEvent): void;
  /** What is shown may miss changes: read everything again. */
  resync(): void;
  connection(state: Connection): void;
}

const firstRetry = 1000;
const lastRetry = 30_000;
/** A hidden tab lets go of its stream after this time. */
const hiddenLimit = 10 * 60_000;

function parsePosition(position: string): { epoch: string; seq: number } {
  const dot = position.lastIndexOf('.');
  return { epoch: position.slice(0, Math.max(0, dot)), seq: Number(position.slice(dot + 1)) };
}

/** The position some events earlier. The server may not have those any more and then says so. */
export function positionBefore(position: string, events: number): string {
  const { epoch, seq } = parsePosition(position);
  return epoch === '' ? position : `${epoch}.${Math.max(0, seq - events)}`;
}

export function isAtOrBefore(a: string, b: string): boolean {
  const [x, y] = [parsePosition(a), parsePosition(b)];
  return x.epoch === y.epoch && x.seq <= y.seq;
}

/**
 * The tab's one event stream. The browser resumes it by itself after a broken
 * connection; after an answer that is no stream the browser gives up, and the
 * stream is opened again here, after the last event that was seen.
 */
export class EventStream {
  private source: EventSource | null = null;
  private seen: string;
  private readonly opened: string;
  private retry = firstRetry;
  private timer: number | undefined;
  private hidden: number | undefined;
  private readonly listener: StreamListener;

  /** start is the position up to which everything else that is shown is known. */
  constructor(listener: StreamListener, start: string, history: number) {
    this.listener = listener;
    this.opened = start;
    this.seen = positionBefore(start, history);
  }

  /** The last event that was seen. */
  get position(): string {
    return this.seen;
  }

  start(): void {
    document.addEventListener('visibilitychange', this.onVisibility);
    window.addEventListener('online', this.onOnline);
    this.open();
  }

  stop(): void {
    document.removeEventListener('visibilitychange', this.onVisibility);
    window.removeEventListener('online', this.onOnline);
    window.clearTimeout(this.hidden);
    this.close();
  }

  private close(): void {
    window.clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  private open(): void {
    this.close();
    this.listener.connection('connecting');
    const source = new EventSource(`/v1/events?${new URLSearchParams({ since: this.seen })}`);
    this.source = source;
    source.onopen = () => {
      this.retry = firstRetry;
      this.listener.connection('open');
    };
    source.onerror = () => {
      this.listener.connection('lost');
      if (source.readyState === EventSource.CLOSED) this.openLater();
    };
    source.addEventListener('fs', (e) => {
      this.seen = e.lastEventId;
      const data = JSON.parse(e.data) as { changes: WireChange[] };
      this.listener.changes(data.changes.map(changeOf), isAtOrBefore(e.lastEventId, this.opened));
    });
    source.addEventListener('machine', (e) => {
      this.seen = e.lastEventId;
      this.listener.machine(JSON.parse(e.data) as MachineEvent);
    });
    source.addEventListener('reset', (e) => {
      this.seen = e.lastEventId;
      this.listener.resync();
    });
  }

  private openLater(): void {
    this.close();
    // Not all tabs at the same moment.
    const wait = this.retry * (0.75 + Math.random() / 2);
    this.retry = Math.min(this.retry * 2, lastRetry);
    this.timer = window.setTimeout(() => this.open(), wait);
  }

  private readonly onOnline = () => {
    if (this.source?.readyState !== EventSource.OPEN && document.visibilityState === 'visible') this.open();
  };

  private readonly onVisibility = () => {
    window.clearTimeout(this.hidden);
    if (document.visibilityState === 'hidden') {
      this.hidden = window.setTimeout(() => this.close(), hiddenLimit);
    } else if (!this.source) {
      this.open();
    }
  };
}
