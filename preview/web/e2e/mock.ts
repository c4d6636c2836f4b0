import { createReadStream, existsSync, readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join } from 'node:path';
import { Files } from './files.ts';

const dist = join(import.meta.dirname, '..', 'dist');
const types: Record<string, string> = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
const policy =
  "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'";

export interface MockChat {
  id: string;
  title?: string;
  machine: { id: string; state: string; reason?: string; since?: string; image?: string; isolation?: string[] };
}

interface Change {
  tree: string;
  path: string;
  from?: string;
  op: string;
  kind: string;
  size: number;
  calls?: string[];
  chat?: string;
}

const trees: Record<string, string> = { me: 'acme/members/ann', shared: 'acme/shared' };

/** A small server with the shapes of the real API, over real HTTP and SSE. */
export class MockServer {
  signedIn = true;
  /** When set, files, diffs and chats answer this status. */
  failing = 0;
  chats: MockChat[] = [];
  readonly diffs = new Map<string, object>();
  readonly requests: string[] = [];
  readonly files: Files;
  private readonly streams = new Set<ServerResponse>();
  private readonly log: { id: number; event: string; data: string }[] = [];
  private epoch = 'k1';
  private seq = 0;
  private readonly server: Server;

  constructor(initial: Record<string, string | Buffer>) {
    this.files = new Files(initial);
    this.server = createServer((req, res) => this.answer(req, res));
  }

  async listen(port = 0): Promise<string> {
    await new Promise<void>((done) => this.server.listen(port, '127.0.0.1', done));
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  /** Ends the open streams, as a restarted server does. */
  dropStreams(): void {
    this.streams.forEach((s) => s.destroy());
    this.streams.clear();
  }

  get streamCount(): number {
    return this.streams.size;
  }

  write(path: string, content: string | Buffer, cause: { call?: string; chat?: string } = {}): void {
    const op = this.files.read(path) ? 'write' : 'create';
    this.files.write(path, content);
    this.changed([{ ...this.changeOf(path, op), size: Buffer.byteLength(content), ...(cause.call && { calls: [cause.call] }), ...(cause.chat && { chat: cause.chat }) }]);
  }

  remove(path: string): void {
    const change = this.changeOf(path, 'remove');
    this.files.remove(path);
    this.changed([change]);
  }

  rename(from: string, to: string): void {
    this.files.rename(from, to);
    this.changed([{ ...this.changeOf(to, 'rename'), from: from.slice(from.indexOf('/') + 1) }]);
  }

  /** Publishes many new files at once, as an installation of packages does. */
  storm(paths: readonly string[]): void {
    for (let at = 0; at < paths.length; at += 500) {
      const part = paths.slice(at, at + 500);
      part.forEach((p) => this.files.write(p, 'x'));
      this.changed(part.map((p) => this.changeOf(p, 'create')));
    }
  }

  setMachine(chat: string, state: string): void {
    const found = this.chats.find((c) => c.id === chat);
    if (!found) return;
    found.machine = { ...found.machine, state, since: new Date().toISOString() };
    this.publish('machine', { chat, machine: found.machine.id, state, since: found.machine.since });
  }

  reset(): void {
    this.epoch = `k${Number(this.epoch.slice(1)) + 1}`;
    this.log.length = 0;
    this.seq = 0;
    this.streams.forEach((s) => this.sendReset(s, 'overflow'));
  }

  private changeOf(path: string, op: string): Change {
    const root = path.slice(0, path.indexOf('/'));
    return { tree: trees[root] ?? root, path: path.slice(root.length + 1), op, kind: this.files.read(path) === 'dir' ? 'dir' : 'file', size: 1 };
  }

  private changed(changes: Change[]): void {
    const time = new Date().toISOString();
    this.publish('fs', { changes: changes.map((c, i) => ({ seq: this.seq + i, time, version: '1', ...c })) });
  }

  private publish(event: string, data: object): void {
    const entry = { id: ++this.seq, event, data: JSON.stringify(data) };
    this.log.push(entry);
    this.streams.forEach((s) => this.send(s, entry));
  }

  private send(stream: ServerResponse, e: { id: number; event: string; data: string }): void {
    stream.write(`id: ${this.epoch}.${e.id}\nevent: ${e.event}\ndata: ${e.data}\n\n`);
  }

  private sendReset(stream: ServerResponse, reason: string): void {
    stream.write(`id: ${this.epoch}.${this.seq}\nevent: reset\ndata: ${JSON.stringify({ reason, epoch: this.epoch })}\n\n`);
  }

  private answer(req: IncomingMessage, res: ServerResponse): void {
    const url = new URL(req.url ?? '/', 'http://mock');
    this.requests.push(`${req.method} ${req.url}`);
    res.setHeader('Content-Security-Policy', policy);
    if (!url.pathname.startsWith('/v1/')) return this.app(url.pathname, res);
    if (!this.signedIn) return this.problem(res, 401, 'unauthorized', 'not signed in');
    if (url.pathname === '/v1/me') {
      res.setHeader('Berth-Cursor', `${this.epoch}.${this.seq}`);
      return this.json(res, { kind: 'member', workspace: 'acme', user: 'ann', sandboxes: true });
    }
    if (url.pathname === '/v1/events') return this.stream(req, url, res);
    if (url.pathname === '/v1/signout') {
      this.signedIn = false;
      this.dropStreams();
      res.writeHead(204).end();
      return;
    }
    if (this.failing) return this.problem(res, this.failing, 'unavailable', 'the store cannot be reached');
    if (url.pathname === '/v1/chats') return this.json(res, { chats: this.chats });
    if (url.pathname === '/v1/diff') {
      const diff = this.diffs.get(`${url.searchParams.get('path')}@${url.searchParams.get('call') ?? ''}`);
      return diff ? this.json(res, diff) : this.problem(res, 404, 'not_found', 'no tool call is known before which the content was kept');
    }
    const machine = /^\/v1\/chats\/([^/]+)(\/machine(?:\/(stop|wake))?)?$/.exec(url.pathname);
    if (machine) return this.machine(req, res, decodeURIComponent(machine[1] ?? ''), machine[3] ?? (machine[2] ? 'destroy' : 'get'));
    if (url.pathname.startsWith('/v1/files/')) return this.file(req, url, res);
    return this.problem(res, 404, 'not_found', 'there is no such path');
  }

  private machine(req: IncomingMessage, res: ServerResponse, id: string, what: string): void {
    const chat = this.chats.find((c) => c.id === id);
    if (!chat) return this.problem(res, 404, 'not_found', 'there is no such chat');
    if (what === 'get' && req.method === 'GET') return this.json(res, chat);
    const next = { stop: 'sleeping', wake: 'running', destroy: 'terminated' }[what];
    if (next) this.setMachine(id, next);
    res.writeHead(204).end();
  }

  private file(req: IncomingMessage, url: URL, res: ServerResponse): void {
    const path = url.pathname.slice('/v1/files/'.length).replace(/\/$/, '').split('/').map(decodeBytes).join('/');
    const node = this.files.read(path);
    if (node === undefined) return this.problem(res, 404, 'not_found', `cannot read "/${path}": it does not exist`);
    if (node === 'dir' || url.searchParams.has('list')) return this.list(url, path, res);
    const range = /^bytes=(\d*)-(\d*)$/.exec(req.headers.range ?? '');
    const size = node.bytes.length;
    res.setHeader('Last-Modified', node.mtime.toUTCString());
    res.setHeader('Content-Type', path.endsWith('.png') ? 'image/png' : 'application/octet-stream');
    res.setHeader('Cache-Control', 'no-store');
    if (!range || size === 0) {
      res.writeHead(200, { 'Content-Length': size }).end(node.bytes);
      return;
    }
    const from = range[1] ? Number(range[1]) : Math.max(0, size - Number(range[2]));
    const to = range[1] && range[2] ? Math.min(Number(range[2]), size - 1) : size - 1;
    res.writeHead(206, { 'Content-Range': `bytes ${from}-${to}/${size}`, 'Content-Length': to - from + 1 }).end(node.bytes.subarray(from, to + 1));
  }

  private list(url: URL, path: string, res: ServerResponse): void {
    const all = this.files.list(path);
    const from = Number(url.searchParams.get('after') ?? 0);
    const to = from + Number(url.searchParams.get('limit') ?? 1000);
    this.json(res, { entries: all.slice(from, to), ...(to < all.length && { next: String(to) }) });
  }

  private stream(req: IncomingMessage, url: URL, res: ServerResponse): void {
    res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache' });
    res.write('retry: 200\n\n');
    this.streams.add(res);
    res.on('close', () => this.streams.delete(res));
    const last = String(req.headers['last-event-id'] ?? url.searchParams.get('since') ?? '');
    if (!last) return;
    const [epoch, seq] = last.split('.');
    if (epoch !== this.epoch) this.sendReset(res, 'gap');
    else this.log.filter((e) => e.id > Number(seq)).forEach((e) => this.send(res, e));
  }

  private app(pathname: string, res: ServerResponse): void {
    const asked = join(dist, pathname);
    const isAsset = extname(pathname) !== '' && !pathname.startsWith('/files/') && existsSync(asked);
    if (!isAsset) {
      res.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' }).end(readFileSync(join(dist, 'index.html')));
      return;
    }
    res.writeHead(200, { 'Content-Type': types[extname(asked)] ?? 'application/octet-stream' });
    createReadStream(asked).pipe(res);
  }

  private json(res: ServerResponse, body: object): void {
    res.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
  }

  private problem(res: ServerResponse, status: number, code: string, message: string): void {
    res.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify({ code, message }));
  }
}

/** Reads one escaped name; bytes that are not text become lone surrogates, as in the page. */
function decodeBytes(encoded: string): string {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return encoded.replace(/%([8-9A-F][0-9A-F])/gi, (_, hex: string) => String.fromCharCode(0xdc00 + parseInt(hex, 16)));
  }
}
