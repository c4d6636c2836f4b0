import { expect, test } from 'vitest';
import { parseContentRange } from './content.ts';
import { changeOf, entryOf } from './wire.ts';

test('Content-Range is read', () => {
  expect(parseContentRange('bytes 100-199/480000000')).toEqual({ offset: 100, total: 480_000_000 });
  expect(parseContentRange('bytes */10')).toBeNull();
  expect(parseContentRange(null)).toBeNull();
});

test('names that are not UTF-8 come as bytes', () => {
  const base64 = btoa('caf\xe9');
  expect(entryOf({ name: 'caf\ufffd', name_base64: base64, kind: 'file', size: 1, mtime: 't' })).toEqual({ name: 'caf\udce9', kind: 'file', size: 1, mtime: 't' });
  const change = changeOf({ seq: 1, time: 't', tree: 'acme/shared', path: '?', path_base64: base64, from: '?', from_base64: base64, op: 'rename', kind: 'file', size: 1 });
  expect([change.path, change.from]).toEqual(['caf\udce9', 'caf\udce9']);
});
