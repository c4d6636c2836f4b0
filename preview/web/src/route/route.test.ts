import { expect, test } from 'vitest';
import { encodePath, fileURL, linkTarget, parseKey, placeKey, rootOfTree } from './place.ts';
import { formatRoute, parseRoute } from './route.ts';

test.each([
  ['/', '', { place: { root: 'me', path: '' }, view: 'code', call: null }],
  ['/files/me', '', { place: { root: 'me', path: '' }, view: 'code', call: null }],
  ['/files/me/a/b.txt', '?view=diff&call=c_81', { place: { root: 'me', path: 'a/b.txt' }, view: 'diff', call: 'c_81' }],
  ['/files/shared/a%20b%23/', '?view=other', { place: { root: 'shared', path: 'a b#' }, view: 'code', call: null }],
  ['/files/me/caf%E9', '', { place: { root: 'me', path: 'caf\udce9' }, view: 'code', call: null }],
  ['/files/me/shared/a', '', { place: { root: 'shared', path: 'a' }, view: 'code', call: null }],
  ['/files/me/shared', '', { place: { root: 'shared', path: '' }, view: 'code', call: null }],
  ['/files/other/a', '', { place: null, view: 'code', call: null }],
  ['/nowhere', '', { place: null, view: 'code', call: null }],
])('parseRoute(%s%s)', (pathname, search, want) => {
  expect(parseRoute(pathname, search)).toEqual(want);
});

test.each(['a', 'a/b', 'odd/100% #1?.txt', 'line\nbreak', 'caf\udce9', '日本/🎉'])('the address of %j leads back to it', (path) => {
  const url = new URL(formatRoute({ root: 'me', path }, 'diff', 'c 1&2'), 'http://host');
  expect(parseRoute(url.pathname, url.search)).toEqual({ place: { root: 'me', path }, view: 'diff', call: 'c 1&2' });
});

test('a file address has no call', () => {
  expect(formatRoute({ root: 'me', path: 'a' }, 'code', 'c_1')).toBe('/files/me/a');
});

test('places have keys and addresses', () => {
  expect(placeKey({ root: 'me', path: '' })).toBe('me');
  expect(parseKey('chats/c1/a/b')).toEqual({ root: 'chats/c1', path: 'a/b' });
  expect(fileURL({ root: 'me', path: 'a b/c?' })).toBe('/v1/files/me/a%20b/c%3F');
  expect(encodePath('')).toBe('');
});

test('only trees that the member can browse have a root', () => {
  const me = { workspace: 'acme', user: 'ann' };
  expect(['acme/members/ann', 'acme/shared', 'acme/members/bob', 'acme/machines/i1'].map((t) => rootOfTree(t, me))).toEqual(['me', 'shared', null, null]);
});

test.each([
  ['me', 'a/link', 'b.txt', { root: 'me', path: 'a/b.txt' }],
  ['me', 'a/link', '../c/./d', { root: 'me', path: 'c/d' }],
  ['me', 'link', '..', null],
  ['me', 'a/link', '../../etc/passwd', null],
  ['me', 'link', '/etc/passwd', null],
  ['me', 'link', '/home/user/workspace/x/y', { root: 'me', path: 'x/y' }],
  ['me', 'link', 'shared/x', { root: 'shared', path: 'x' }],
  ['shared', 'link', '/home/user/workspace/x', null],
])('a link %s/%s to %s', (root, path, target, want) => {
  expect(linkTarget({ root, path }, target)).toEqual(want);
});
