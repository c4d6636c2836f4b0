import { describe, expect, test } from 'vitest';
import type { PlacedChange } from '../tree/apply.ts';
import { Batcher, type Clock } from './batch.ts';
import { isAtOrBefore, positionBefore } from './stream.ts';
import { addChanges, bulkPath, changedPathCount } from './coalesce.ts';

function change(op: PlacedChange['op'], path: string, more: Partial<PlacedChange> = {}): PlacedChange {
  return { seq: 1, time: 't', tree: 'acme/members/ann', root: 'me', path, op, kind: 'file', size: 5, ...more };
}

const shown = (changes: PlacedChange[]) => addChanges([], changes, 100).map((r) => `${r.op} ${r.path}`);

describe('addChanges', () => {
  test.each<[string, PlacedChange[], string[]]>([
    ['the latest is first', [change('write', 'a'), change('write', 'b')], ['write b', 'write a']],
    ['a path has one row', [change('write', 'a'), change('write', 'b'), change('write', 'a')], ['write a', 'write b']],
    ['made and changed is new', [change('create', 'a'), change('write', 'a')], ['create a']],
    ['made and removed is nothing', [change('create', 'a'), change('remove', 'a')], []],
    ['removed and made is changed', [change('remove', 'a'), change('create', 'a')], ['write a']],
    ['attributes are no news', [change('attr', 'a')], []],
    ['a rename takes the old row', [change('write', 'a'), change('rename', 'b', { from: 'a' })], ['rename b']],
    ['renamed and changed is renamed', [change('rename', 'b', { from: 'a' }), change('write', 'b')], ['rename b']],
    ['a removed folder stands for its files', [change('write', 'd/x'), change('remove', 'd/y'), change('remove', 'd', { kind: 'dir' })], ['remove d']],
    ['packages are one row', [change('create', 'n/node_modules/a/b'), change('create', 'n/node_modules/c')], ['write n/node_modules']],
  ])('%s', (_, changes, want) => {
    expect(shown(changes)).toEqual(want);
  });

  test('rows keep the latest call and count', () => {
    const [row] = addChanges([], [change('write', 'a', { calls: ['c1', 'c2'], chat: 'x' }), change('write', 'a')], 10);
    expect(row).toMatchObject({ call: 'c2', count: 2 });
  });

  test('the list ends at its limit and starts with the latest', () => {
    const first = addChanges([], Array.from({ length: 10 }, (_, i) => change('write', `f${i}`)), 5);
    expect(addChanges(first, [change('write', 'new')], 5).map((r) => r.path)).toEqual(['new', 'f9', 'f8', 'f7', 'f6']);
  });

  test('20,000 changes take well under a second', () => {
    const changes = Array.from({ length: 20_000 }, (_, i) => change('create', `d${i % 200}/f${i}`));
    const start = performance.now();
    addChanges([], changes, 500);
    expect(performance.now() - start).toBeLessThan(500);
  });
});

test('the outermost bulky folder counts', () => {
  expect(bulkPath('a/node_modules/b/.git/c')).toBe('a/node_modules');
  expect(bulkPath('a/b')).toBeNull();
});

test('spoken counts are of paths', () => {
  expect(changedPathCount([change('write', 'a'), change('write', 'a'), change('attr', 'b'), change('create', 'node_modules/x'), change('create', 'node_modules/y')])).toBe(2);
});

describe('Batcher', () => {
  class FakeClock implements Clock {
    time = 0;
    private readonly timers: { at: number; run: () => void }[] = [];
    now = () => this.time;
    later = (run: () => void, ms: number) => void this.timers.push({ at: this.time + ms, run });
    advance(ms: number): void {
      const end = this.time + ms;
      for (;;) {
        const due = this.timers.filter((t) => t.at <= end).sort((a, b) => a.at - b.at)[0];
        if (!due) break;
        this.timers.splice(this.timers.indexOf(due), 1);
        this.time = due.at;
        due.run();
      }
      this.time = end;
    }
  }

  test('collects what comes together, and keeps batches apart', () => {
    const clock = new FakeClock();
    const batches: [number, number[]][] = [];
    const batcher = new Batcher<number>((items) => batches.push([clock.time, items]), clock, 75, 200);
    batcher.add([1]);
    clock.advance(50);
    batcher.add([2, 3]);
    clock.advance(30);
    batcher.add([4]);
    clock.advance(1000);
    batcher.add([]);
    batcher.add([5]);
    clock.advance(1000);
    expect(batches).toEqual([[75, [1, 2, 3]], [275, [4]], [1155, [5]]]);
  });

  test('a storm comes in pieces', () => {
    const clock = new FakeClock();
    const batches: [number, number][] = [];
    const batcher = new Batcher<number>((items) => batches.push([clock.time, items.length]), clock, 75, 200, 100);
    batcher.add(Array.from({ length: 250 }, (_, i) => i));
    clock.advance(1000);
    expect(batches).toEqual([[75, 100], [275, 100], [475, 50]]);
  });
});

test('positions of the stream are compared within an epoch', () => {
  expect([positionBefore('k3.250', 200), positionBefore('k3.7', 200), positionBefore('', 200)]).toEqual(['k3.50', 'k3.0', '']);
  expect([isAtOrBefore('k3.7', 'k3.8'), isAtOrBefore('k3.9', 'k3.8'), isAtOrBefore('k4.1', 'k3.8')]).toEqual([true, false, false]);
});
