import { decodeName, encodeName } from '../text/bytes.ts';

/**
 * A place is a file or directory as the page and the API address it: the root it
 * lies in (`me`, `shared` or `chats/{chat}`) and the path below. Its key is the
 * two joined by a slash; a name never holds one, so keys are unambiguous.
 */
export interface Place {
  root: string;
  path: string;
}

export function placeKey(p: Place): string {
  return p.path ? `${p.root}/${p.path}` : p.root;
}

export function parseKey(key: string): Place {
  const parts = key.split('/');
  const rootLength = parts[0] === 'chats' ? 2 : 1;
  return { root: parts.slice(0, rootLength).join('/'), path: parts.slice(rootLength).join('/') };
}

/** Writes a path for a URL: each name escaped, the slashes kept. */
export function encodePath(path: string): string {
  return path.split('/').map(encodeName).join('/');
}

/** Reads what encodePath wrote. */
export function decodePath(encoded: string): string {
  return encoded.split('/').map(decodeName).join('/');
}

/** The API's URL of a file, or of a directory's listing. */
export function fileURL(p: Place): string {
  return `/v1/files/${encodePath(placeKey(p))}`;
}

/** Which root shows a tree of the bucket to this member; null for trees it cannot browse. */
export function rootOfTree(tree: string, me: { workspace?: string; user?: string }): string | null {
  if (tree === `${me.workspace}/members/${me.user}`) return 'me';
  if (tree === `${me.workspace}/shared`) return 'shared';
  return null;
}

/** The bucket's name of the tree behind a root. */
export function treeOfRoot(root: string, me: { workspace?: string; user?: string }): string {
  return root === 'shared' ? `${me.workspace}/shared` : `${me.workspace}/members/${me.user}`;
}
