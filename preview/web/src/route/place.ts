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

/** Where a machine has the member's disk. */
const workspace = '/home/user/workspace/';

/** What a symbolic link points to; null when that is not in the page's trees. */
export function linkTarget(link: Place, target: string): Place | null {
  const isAbsolute = target.startsWith('/');
  if (isAbsolute && (!target.startsWith(workspace) || link.root !== 'me')) return null;
  const names = isAbsolute ? [] : link.path.split('/').slice(0, -1);
  for (const name of (isAbsolute ? target.slice(workspace.length) : target).split('/')) {
    if (name === '' || name === '.') continue;
    if (name !== '..') names.push(name);
    else if (names.pop() === undefined) return null;
  }
  return canonicalPlace({ root: link.root, path: names.join('/') });
}

/**
 * The name under which a member's disk shows the shared directory, as in a
 * machine. The page shows that directory once, as a root of its own.
 */
const sharedName = 'shared';

/** The place by which the page knows a file that has two. */
export function canonicalPlace(p: Place): Place {
  if (p.root !== 'me' || (p.path !== sharedName && !p.path.startsWith(`${sharedName}/`))) return p;
  return { root: 'shared', path: p.path.slice(sharedName.length + 1) };
}

/** Whether a name of a directory belongs to the page's tree there. */
export function isShownIn(directory: Place, name: string): boolean {
  return !(directory.root === 'me' && directory.path === '' && name === sharedName);
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

/** Whose disk and shared directory the roots are. */
export interface Owner {
  workspace?: string | undefined;
  user?: string | undefined;
}

/** Which root shows a tree of the bucket to this member; null for trees it cannot browse. */
export function rootOfTree(tree: string, me: Owner): string | null {
  if (tree === `${me.workspace}/members/${me.user}`) return 'me';
  if (tree === `${me.workspace}/shared`) return 'shared';
  return null;
}

/** The bucket's name of the tree behind a root. */
export function treeOfRoot(root: string, me: Owner): string {
  return root === 'shared' ? `${me.workspace}/shared` : `${me.workspace}/members/${me.user}`;
}
