import { describe, expect, test } from 'vitest';
import type { Entry } from '../api/types.ts';
import { applyChanges, type PlacedChange } from './apply.ts';
import { treeKey, typeAhead } from './keys.ts';
import { ancestors, flatten, focusAfter, type Directory, type TreeState } from './model.ts';

const roots = [{ key: 'me', label: 'My disk' }, { key: 'shared', label: 'Shared' }];
const file = (name: string, size = 1): Entry => ({ name, kind: 'file', size, mtime: 't0' });
const dir = (name: string): Entry => ({ name, kind: 'dir', size: 0, mtime: 't0' });
const ready = (...entries: Entry[]): Directory => ({ entries, next: null, status: 'ready' });

function stateOf(directories: Record<string, Directory>, expanded: string[]): TreeState {
  return { directories: new Map(Object.entries(directories)), expanded: new Set(expanded) };
}

function change(op: PlacedChange['op'], path: string, more: Partial<PlacedChange> = {}): PlacedChange {
  return { seq: 1, time: 't1', tree: 'acme/members/ann', root: 'me', path, op, kind: 'file', size: 5, ...more };
}

const base = stateOf({ me: ready(dir('src'), file('a.txt')), 'me/src': ready(file('x.ts')) }, ['me', 'me/src']);
const names = (state: TreeState, key: string) => state.directories.get(key)?.entries.map((e) => e.name);

describe('flatten', () => {
  test('lists visible rows with their place among siblings', () => {
    const rows = flatten(base, roots).map((r) => [r.key, r.level, r.position, r.siblings, r.expanded]);
    expect(rows).toEqual([
      ['me', 1, 1, 2, true],
      ['me/src', 2, 1, 2, true],
      ['me/src/x.ts', 3, 1, 1, false],
      ['me/a.txt', 2, 2, 2, false],
      ['shared', 1, 2, 2, false],
    ]);
  });

  test('says what a listing lacks', () => {
    const state = stateOf(
      {
        me: { entries: [dir('empty'), dir('bad'), dir('big'), dir('new')], next: null, status: 'ready' },
        'me/empty': ready(),
        'me/bad': { entries: [], next: null, status: 'error', error: 'the store is away' },
        'me/big': { entries: [file('f')], next: 'cursor', status: 'ready' },
      },
      ['me', 'me/empty', 'me/bad', 'me/big', 'me/new'],
    );
    const notes = flatten(state, roots).filter((r) => r.type !== 'entry').map((r) => [r.parent, r.type, r.label]);
    expect(notes).toEqual([
      ['me/empty', 'empty', 'Empty'],
      ['me/bad', 'error', 'the store is away'],
      ['me/big', 'more', 'Show more'],
      ['me/new', 'loading', 'Loading…'],
    ]);
  });

  test('100,000 rows take well under a second', () => {
    const directories: Record<string, Directory> = { me: ready(...Array.from({ length: 500 }, (_, i) => dir(`d${i}`))) };
    for (let i = 0; i < 500; i++) directories[`me/d${i}`] = ready(...Array.from({ length: 200 }, (_, j) => file(`f${j}`)));
    const state = stateOf(directories, ['me', ...Array.from({ length: 500 }, (_, i) => `me/d${i}`)]);
    const start = performance.now();
    expect(flatten(state, roots)).toHaveLength(100_502);
    expect(performance.now() - start).toBeLessThan(500);
  });

  test('a tree 5,000 deep costs no stack', () => {
    const directories: Record<string, Directory> = {};
    const expanded: string[] = [];
    for (let key = 'me', i = 0; i < 5000; i++, key += '/d') {
      directories[key] = ready(dir('d'));
      expanded.push(key);
    }
    expect(flatten(stateOf(directories, expanded), roots)).toHaveLength(5002);
  });
});

describe('applyChanges', () => {
  test('adds new names in order, folders first', () => {
    const next = applyChanges(base, [change('create', 'b.txt'), change('create', 'a10.txt'), change('create', 'a9.txt'), change('create', 'zoo', { kind: 'dir' })]);
    expect(names(next, 'me')).toEqual(['src', 'zoo', 'a.txt', 'a9.txt', 'a10.txt', 'b.txt']);
  });

  test('a write changes size and time in place', () => {
    const next = applyChanges(base, [change('write', 'src/x.ts', { size: 99 })]);
    expect(next.directories.get('me/src')?.entries).toEqual([{ name: 'x.ts', kind: 'file', size: 99, mtime: 't1' }]);
  });

  test('a removed folder takes what was known below it', () => {
    const next = applyChanges(base, [change('remove', 'src', { kind: 'dir' })]);
    expect([names(next, 'me'), next.directories.has('me/src'), next.expanded.has('me/src')]).toEqual([['a.txt'], false, false]);
  });

  test('a renamed folder keeps what was known and stays open', () => {
    const next = applyChanges(base, [change('rename', 'lib', { from: 'src', kind: 'dir' }), change('create', 'lib/y.ts')]);
    expect([names(next, 'me'), names(next, 'me/lib'), next.expanded.has('me/lib'), next.directories.has('me/src')]).toEqual([
      ['lib', 'a.txt'], ['x.ts', 'y.ts'], true, false,
    ]);
  });

  test('a file renamed onto another replaces it', () => {
    const next = applyChanges(base, [change('create', '.a.tmp'), change('rename', 'a.txt', { from: '.a.tmp', size: 7 })]);
    expect(names(next, 'me')).toEqual(['src', 'a.txt']);
    expect(next.directories.get('me')?.entries[1]?.size).toBe(7);
  });

  test('a file in an unread folder makes the folder known', () => {
    const next = applyChanges(base, [change('create', 'new/one.txt')]);
    expect([names(next, 'me'), next.directories.has('me/new')]).toEqual([['new', 'src', 'a.txt'], false]);
  });

  test('other roots and the state before are left alone', () => {
    const next = applyChanges(base, [change('create', 'c.txt', { root: 'shared' })]);
    expect([names(next, 'me'), names(base, 'me')]).toEqual([['src', 'a.txt'], ['src', 'a.txt']]);
  });
});

describe('keys', () => {
  const rows = flatten(base, roots);
  test.each([
    ['me', 'ArrowDown', { type: 'focus', key: 'me/src' }],
    ['me', 'ArrowUp', { type: 'focus', key: 'me' }],
    ['me/src', 'ArrowRight', { type: 'focus', key: 'me/src/x.ts' }],
    ['me/src', 'ArrowLeft', { type: 'collapse', keys: ['me/src'] }],
    ['me/src/x.ts', 'ArrowLeft', { type: 'focus', key: 'me/src' }],
    ['me/src/x.ts', 'ArrowRight', null],
    ['shared', 'ArrowRight', { type: 'expand', keys: ['shared'] }],
    ['me/a.txt', 'Home', { type: 'focus', key: 'me' }],
    ['me', 'End', { type: 'focus', key: 'shared' }],
    ['me/a.txt', 'Enter', { type: 'activate', key: 'me/a.txt' }],
    ['me', '*', { type: 'expand', keys: ['shared'] }],
    ['gone', 'ArrowDown', { type: 'focus', key: 'me' }],
    ['me', 'Tab', null],
  ])('%s %s', (focused, key, want) => {
    expect(treeKey(rows, focused, key, 10)).toEqual(want);
  });

  test('typing finds names, and the same letter goes on', () => {
    expect(typeAhead(rows, 0, 's')).toEqual({ type: 'focus', key: 'me/src' });
    expect(typeAhead(rows, 1, 's')).toEqual({ type: 'focus', key: 'shared' });
    expect(typeAhead(rows, 1, 'sh')).toEqual({ type: 'focus', key: 'shared' });
    expect(typeAhead(rows, 0, 'zz')).toBeNull();
  });
});

test('the focus goes to the next row when its own is gone, then to the one before', () => {
  const rows = flatten(base, roots);
  const without = (...keys: string[]) => rows.filter((r) => !keys.includes(r.key));
  expect(focusAfter(rows, without('me/src/x.ts'), 'me/src/x.ts')).toBe('me/a.txt');
  expect(focusAfter(rows, without('shared'), 'shared')).toBe('me/a.txt');
  expect(focusAfter(rows, rows, 'me/a.txt')).toBe('me/a.txt');
});

test('ancestors lead from the root', () => {
  expect(ancestors('me/a/b/c', 'me')).toEqual(['me', 'me/a', 'me/a/b']);
  expect(ancestors('me', 'me')).toEqual([]);
});
