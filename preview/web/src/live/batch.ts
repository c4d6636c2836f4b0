/** Timers, so that tests can bring their own. */
export interface Clock {
  now(): number;
  later(run: () => void, ms: number): void;
}

/**
 * Collects items and hands them on in batches: a first item waits `collect` ms
 * for company, batches are at least `apart` ms apart and hold at most `most`
 * items, so that a storm of changes costs a few short renders a second.
 */
export class Batcher<T> {
  private items: T[] = [];
  private waiting = false;
  private last = -Infinity;
  private readonly flush: (items: T[]) => void;
  private readonly clock: Clock;
  private readonly collect: number;
  private readonly apart: number;
  private readonly most: number;

  constructor(flush: (items: T[]) => void, clock: Clock, collect = 75, apart = 200, most = 4000) {
    this.flush = flush;
    this.clock = clock;
    this.collect = collect;
    this.apart = apart;
    this.most = most;
  }

  add(items: readonly T[]): void {
    for (const item of items) this.items.push(item);
    this.schedule();
  }

  private schedule(): void {
    if (this.waiting || this.items.length === 0) return;
    this.waiting = true;
    const wait = Math.max(this.collect, this.last + this.apart - this.clock.now());
    this.clock.later(() => this.run(), wait);
  }

  private run(): void {
    this.waiting = false;
    this.last = this.clock.now();
    this.flush(this.items.splice(0, this.most));
    this.schedule();
  }
}
