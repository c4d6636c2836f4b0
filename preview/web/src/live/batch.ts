/** Timers, so that tests can bring their own. */
export interface Clock {
  now(): number;
  later(run: () => void, ms: number): void;
}

/**
 * Collects items and hands them on in batches: a first item waits `collect` ms
 * for company, and batches are at least `apart` ms apart, so that a storm of
 * changes costs a few renders a second.
 */
export class Batcher<T> {
  private items: T[] = [];
  private waiting = false;
  private last = -Infinity;
  private readonly flush: (items: T[]) => void;
  private readonly clock: Clock;
  private readonly collect: number;
  private readonly apart: number;

  constructor(flush: (items: T[]) => void, clock: Clock, collect = 75, apart = 200) {
    this.flush = flush;
    this.clock = clock;
    this.collect = collect;
    this.apart = apart;
  }

  add(items: readonly T[]): void {
    for (const item of items) this.items.push(item);
    if (this.waiting || this.items.length === 0) return;
    this.waiting = true;
    const wait = Math.max(this.collect, this.last + this.apart - this.clock.now());
    this.clock.later(() => this.run(), wait);
  }

  private run(): void {
    const items = this.items;
    this.items = [];
    this.waiting = false;
    this.last = this.clock.now();
    if (items.length > 0) this.flush(items);
  }
}
