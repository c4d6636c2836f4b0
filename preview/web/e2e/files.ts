/** The files of the mock server: paths below a root, each with its bytes. */
export class Files {
  private readonly nodes = new Map<string, { bytes: Buffer; mtime: Date } | 'dir'>();
  private readonly links = new Map<string, string>();

  constructor(initial: Record<string, string | Buffer>) {
    this.nodes.set('me', 'dir');
    this.nodes.set('shared', 'dir');
    for (const [path, content] of Object.entries(initial)) this.write(path, content, new Date(Date.now() - 3_600_000));
  }

  write(path: string, content: string | Buffer, mtime = new Date()): void {
    for (let at = path.indexOf('/'); at > 0; at = path.indexOf('/', at + 1)) this.nodes.set(path.slice(0, at), 'dir');
    if (path.endsWith('/')) return;
    this.nodes.set(path, { bytes: Buffer.from(content), mtime });
  }

  link(path: string, target: string): void {
    this.write(path, '');
    this.links.set(path, target);
  }

  remove(path: string): void {
    for (const key of [...this.nodes.keys()]) if (key === path || key.startsWith(`${path}/`)) this.nodes.delete(key);
  }

  rename(from: string, to: string): void {
    for (const [key, node] of [...this.nodes]) {
      if (key !== from && !key.startsWith(`${from}/`)) continue;
      this.nodes.delete(key);
      this.nodes.set(to + key.slice(from.length), node);
    }
  }

  read(path: string): { bytes: Buffer; mtime: Date } | 'dir' | undefined {
    return this.nodes.get(path);
  }

  list(path: string): object[] {
    const names = [...this.nodes.keys()].filter((k) => k.startsWith(`${path}/`) && !k.slice(path.length + 1).includes('/'));
    return names.sort().map((key) => {
      const node = this.nodes.get(key);
      const target = this.links.get(key);
      const name = key.slice(path.length + 1);
      const attributes = node === 'dir' || !node ? { size: 4096, mtime: new Date(0) } : { size: node.bytes.length, mtime: node.mtime };
      // The mock writes bytes that are not UTF-8 as the page does: see src/text/bytes.ts.
      const odd = /[\udc80-\udcff]/.test(name) && { name_base64: Buffer.from(name.replace(/[\udc80-\udcff]/g, (c) => String.fromCharCode(c.charCodeAt(0) - 0xdc00)), 'latin1').toString('base64') };
      return { name: odd ? name.replace(/[\udc80-\udcff]/g, '\ufffd') : name, ...odd, kind: target !== undefined ? 'symlink' : node === 'dir' ? 'dir' : 'file', ...attributes, ...(target !== undefined && { target }) };
    });
  }
}
