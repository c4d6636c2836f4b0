import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { openTab, shoot, startBrowser, type Tab } from './browser.ts';
import { MockServer } from './mock.ts';
import { fillServer } from './sample.ts';

let browser: Browser;
let server: MockServer;
let origin: string;
let tab: Tab;

beforeAll(async () => {
  browser = await startBrowser();
});
afterAll(() => browser.close());
beforeEach(async () => {
  server = new MockServer({});
  fillServer(server);
  origin = await server.listen();
});
afterEach(async () => {
  await tab.close();
  await server.close();
});

async function open(path: string, look = {}): Promise<Page> {
  tab = await openTab(browser, origin, path, look);
  await tab.page.locator('.live-open').waitFor({ state: 'attached' });
  return tab.page;
}

/** The row of a file in the tree, by its root and path. */
const row = (page: Page, key: string) => page.locator(`[role=treeitem][data-key="${key}"]`);
const changes = (page: Page) => page.getByRole('region', { name: 'Changed files' });
const focusedKey = (page: Page) => page.evaluate(() => (document.activeElement as HTMLElement | null)?.dataset.key ?? '');

test('a file that appears is in the tree, the list and the folder without reload', async () => {
  const page = await open('/files/me');
  await page.getByRole('region', { name: 'Folder content' }).waitFor();
  server.write('me/hello.py', 'print("hi")\n', { call: 'c_1', chat: 'report' });
  await row(page, 'me/hello.py').waitFor();
  await page.getByRole('region', { name: 'Folder content' }).getByText('hello.py').waitFor();
  await changes(page).getByText('hello.py').waitFor();
  await expect.poll(() => page.getByRole('status').allTextContents()).toContain('1 file changed');
  expect(tab.complaints).toEqual([]);
});

test('a change leads to the diff against the content before its call', async () => {
  const page = await open('/files/me');
  server.write('me/profy/report/analysis.py', 'changed\n', { call: 'c_81', chat: 'report' });
  await changes(page).getByText('analysis.py').click();
  await page.getByRole('table', { name: 'Diff' }).waitFor();
  expect(new URL(page.url()).pathname + new URL(page.url()).search).toBe('/files/me/profy/report/analysis.py?view=diff&call=c_81');
  await expect.poll(() => page.getByRole('table').getByText('rows.sort').count()).toBe(1);
  expect(await page.getByRole('row').filter({ hasText: 'rows.sort' }).textContent()).toContain('added line 13');

  // The shown diff follows the file.
  server.diffs.set('profy/report/analysis.py@c_81', { call: 'c_81', before_exists: true, after_exists: true, added: 1, removed: 0, hunks: [{ a: 1, b: 1, lines: [{ t: '+', b: 1, s: 'a later edit' }] }] });
  server.write('me/profy/report/analysis.py', 'later\n', { call: 'c_81', chat: 'report' });
  await page.getByRole('table').getByText('a later edit').waitFor();
  await page.goBack();
  await page.getByRole('region', { name: 'Folder content' }).waitFor();
  expect(tab.complaints).toEqual([]);
});

test('an open file follows edits and keeps its scroll position', async () => {
  const lines = Array.from({ length: 3000 }, (_, i) => `line number ${i + 1}`);
  server.files.write('me/long.txt', lines.join('\n'));
  const page = await open('/files/me/long.txt');
  await page.getByText('line number 1', { exact: true }).waitFor();
  const scroller = page.locator('.cm-scroller');
  await scroller.evaluate((s) => s.scrollTo(0, 20_000));
  await page.getByText('line number 1010', { exact: true }).waitFor();
  const before = await scroller.evaluate((s) => s.scrollTop);
  lines[1009] = 'edited here';
  server.write('me/long.txt', lines.join('\n'));
  await page.getByText('edited here').waitFor();
  expect(await scroller.evaluate((s) => s.scrollTop)).toBe(before);
  server.remove('me/long.txt');
  await page.getByText('This file does not exist').waitFor();
  server.write('me/long.txt', 'back again\n');
  await page.getByText('back again').waitFor();
});

test('the tree is used by keyboard, and changes leave the focus alone', async () => {
  const page = await open('/files/me');
  await row(page, 'me/README.md').waitFor();
  await page.getByRole('treeitem', { name: 'My disk' }).focus();
  await page.keyboard.press('ArrowDown');
  expect(await focusedKey(page)).toBe('me/odd');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowRight');
  await row(page, 'me/profy/report').waitFor();
  await page.keyboard.press('ArrowRight');
  expect(await focusedKey(page)).toBe('me/profy/report');
  await page.keyboard.press('ArrowRight');
  await row(page, 'me/profy/report/old.csv').waitFor();
  await page.keyboard.type('old');
  expect(await focusedKey(page)).toBe('me/profy/report/old.csv');

  server.write('me/another.txt', 'x');
  await row(page, 'me/another.txt').waitFor();
  expect(await focusedKey(page)).toBe('me/profy/report/old.csv');
  server.remove('me/profy/report/old.csv');
  await expect.poll(() => focusedKey(page)).toBe('me/profy/report/orders.csv');

  await page.keyboard.press('Enter');
  await page.getByText('2026-10-01').waitFor();
  expect(await focusedKey(page)).toBe('me/profy/report/orders.csv');
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('ArrowLeft');
  expect(await row(page, 'me/profy/report/orders.csv').count()).toBe(0);
  await page.keyboard.press('End');
  expect(await focusedKey(page)).toBe('shared/handbook.md');
  expect(await page.locator('[role=treeitem][tabindex="0"]').count()).toBe(1);
  expect(tab.complaints).toEqual([]);
});

test('a renamed folder stays open and a removed one goes', async () => {
  const page = await open('/files/me/profy/site/src/main.ts');
  await row(page, 'me/profy/site/src/main.ts').waitFor();
  server.rename('me/profy/site', 'me/profy/web');
  await row(page, 'me/profy/web').waitFor();
  await row(page, 'me/profy/web/src/main.ts').waitFor();
  await page.getByText('This file does not exist').waitFor();
  server.remove('me/profy');
  await expect.poll(() => row(page, 'me/profy').count()).toBe(0);
});

test('odd names are shown escaped and can be opened', async () => {
  const page = await open('/files/me/odd');
  const folder = page.getByRole('region', { name: 'Folder content' });
  for (const [shown, text] of [['line\\nbreak.txt', 'odd'], ['caf\\xe9.txt', 'latin'], ['100% #1?.txt', 'escaped'], ['txt\\u{202e}exe.gpj', 'not a picture']] as const) {
    await folder.getByRole('link', { name: shown }).click();
    await page.locator('.cm-content').getByText(text).waitFor();
    await page.reload();
    await page.locator('.cm-content').getByText(text).waitFor();
    await page.getByRole('navigation', { name: 'Path' }).getByRole('link', { name: 'odd' }).click();
  }
  await shoot(page, 'odd-names');
  expect(tab.complaints).toEqual([]);
});

test('a deep link opens the folders that lead to it', async () => {
  const page = await open('/files/me/profy/site/src/very/deep/down/in/the/tree/leaf.txt');
  await page.getByText('found').waitFor();
  await row(page, 'me/profy/site/src/very/deep/down/in/the/tree/leaf.txt').waitFor();
  expect(await row(page, 'me/profy/site/src/very/deep/down/in/the/tree/leaf.txt').getAttribute('aria-level')).toBe('11');
  expect(await row(page, 'me/profy/site/src/very/deep/down/in/the/tree/leaf.txt').getAttribute('aria-selected')).toBe('true');
});

test('binary, empty, linked, missing and too large files say so', async () => {
  server.files.write('me/big.log', Buffer.concat([Buffer.from('first line\n'), Buffer.alloc(12_000_000, 'x'), Buffer.from('\nlast line\n')]));
  const page = await open('/files/me/profy/report/data.bin');
  await page.getByText('This is a binary file of 4 B.').waitFor();
  await page.goto(`${origin}/files/me/profy/report/chart.png`);
  await page.getByText('2 × 2').waitFor();
  await page.goto(`${origin}/files/me/empty.txt`);
  await page.getByText('Empty file').waitFor();
  await page.goto(`${origin}/files/me/latest`);
  await page.getByText('It points to').waitFor();
  await page.getByRole('link', { name: 'Go there' }).click();
  await page.getByRole('region', { name: 'Folder content' }).getByText('analysis.py').waitFor();
  await page.goto(`${origin}/files/me/no/such/file`);
  await page.getByText('This file does not exist').waitFor();
  await page.goto(`${origin}/files/elsewhere/a`);
  await page.getByText('There is no such page').waitFor();
  await page.goto(`${origin}/files/me/big.log`);
  await page.getByText('Showing the first 1.0 MB of 12.0 MB').waitFor();
  await page.getByText('first line').waitFor();
  await page.getByRole('button', { name: 'End' }).click();
  await page.getByText('Showing the last').waitFor();
  await page.locator('.cm-scroller').evaluate((s) => s.scrollTo(0, s.scrollHeight));
  await page.getByText('last line').waitFor();
});

test('a folder with 100,000 names is listed by pages', async () => {
  for (let i = 0; i < 100_000; i++) server.files.write(`me/many/file-${String(i).padStart(6, '0')}`, '');
  const page = await open('/files/me/many');
  await page.getByRole('link', { name: 'file-000000' }).waitFor();
  await page.getByRole('treeitem', { name: 'My disk' }).focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowRight');
  await page.getByRole('treeitem', { name: 'Show more' }).waitFor({ state: 'detached' });
  expect(await page.getByRole('treeitem').count()).toBeLessThan(120);
  await page.getByRole('button', { name: 'Show more' }).click();
  await expect.poll(() => server.requests.filter((r) => r.includes('after=1000')).length).toBe(1);
});

test('the stream is resumed without loss, and a reset reads everything again', async () => {
  const page = await open('/files/me');
  server.write('me/one.txt', '1');
  await changes(page).getByText('one.txt').waitFor();
  server.dropStreams();
  server.write('me/two.txt', '2');
  await changes(page).getByText('two.txt').waitFor();
  await row(page, 'me/two.txt').waitFor();

  server.files.write('me/unseen.txt', 'never announced');
  server.reset();
  await row(page, 'me/unseen.txt').waitFor();
  await page.getByText('may be missing here').waitFor();
  server.write('me/three.txt', '3');
  await changes(page).getByText('three.txt').waitFor();
});

test('the list begins with what changed before the page was opened', async () => {
  server.write('me/early.txt', '1', { call: 'c_7' });
  const page = await open('/files/me');
  await changes(page).getByText('early.txt').waitFor();
  expect(await page.getByRole('status').allTextContents()).not.toContain('1 file changed');
});

test('while the server is away the page says so, and goes on when it is back', async () => {
  const page = await open('/files/me');
  await row(page, 'me/README.md').waitFor();
  const port = server.port;
  await server.close();
  await page.getByText('Reconnecting…').waitFor();
  await page.getByText('last contact').waitFor();
  await shoot(page, 'offline');
  expect(await row(page, 'me/README.md').count()).toBe(1);
  await server.listen(port);
  await page.locator('.live-open').waitFor();
  await page.getByText('Reconnecting…').waitFor({ state: 'detached' });
});

test('what cannot be read says why and can be tried again', async () => {
  server.failing = 500;
  const page = await open('/files/me');
  await page.getByText('Cannot list this folder').waitFor();
  await page.getByText('Cannot list the chats').waitFor();
  await shoot(page, 'errors');
  expect(tab.complaints.every((c) => c.includes('500'))).toBe(true);
  server.failing = 0;
  const again = page.getByRole('button', { name: 'Try again' });
  await again.last().click();
  await page.getByText('Quarterly report').waitFor();
  await again.click();
  await page.getByRole('region', { name: 'Folder content' }).waitFor();
});

test('a machine is stopped, woken, and destroyed only after the word', async () => {
  const page = await open('/files/me');
  const chat = page.getByRole('region', { name: 'Chat Quarterly report' });
  await chat.getByRole('button', { name: 'Stop' }).click();
  await chat.getByText('Sleeping').waitFor();
  await chat.getByRole('button', { name: 'Wake' }).click();
  await chat.getByText('Running').waitFor();
  await chat.getByRole('button', { name: 'Destroy' }).click();
  const dialog = page.getByRole('dialog');
  const destroy = dialog.getByRole('button', { name: 'Destroy machine' });
  expect(await destroy.isDisabled()).toBe(true);
  await page.keyboard.type('destroi');
  await page.keyboard.press('Enter');
  expect(await destroy.isDisabled()).toBe(true);
  await page.keyboard.press('Escape');
  expect(await dialog.count()).toBe(0);
  expect(server.requests.some((r) => r.startsWith('DELETE'))).toBe(false);
  await chat.getByRole('button', { name: 'Destroy' }).click();
  await page.keyboard.type('destroy');
  await page.keyboard.press('Enter');
  await chat.getByText('Destroyed').waitFor();
  expect(server.requests).toContain('DELETE /v1/chats/report/machine');
  server.setMachine('site', 'running');
  await page.getByRole('region', { name: 'Chat Landing page' }).getByText('Running').waitFor();
  expect(tab.complaints).toEqual([]);
});

test('signing out leaves nothing on the screen, and a revoked session ends', async () => {
  let page = await open('/files/me/README.md');
  await page.getByText('Notes and reports').waitFor();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in with your link' }).waitFor();
  expect(await page.getByText('README.md').count()).toBe(0);
  expect(tab.complaints).toEqual([]);
  await tab.close();

  server.signedIn = true;
  page = await open('/files/me');
  server.signedIn = false;
  server.dropStreams();
  await page.getByRole('heading', { name: 'Sign in with your link' }).waitFor();
});

test('20,000 files at once leave the page responsive', async () => {
  const page = await open('/files/me');
  await row(page, 'me/README.md').waitFor();
  await page.evaluate(() => {
    const longest = { ms: 0 };
    Object.assign(window, { longest });
    new PerformanceObserver((list) => list.getEntries().forEach((e) => (longest.ms = Math.max(longest.ms, e.duration)))).observe({ type: 'longtask' });
  });
  server.storm(Array.from({ length: 20_000 }, (_, i) => `me/app/d${i % 100}/f${i}`));
  server.storm(Array.from({ length: 5_000 }, (_, i) => `me/app/node_modules/p${i % 50}/f${i}`));
  server.write('me/last.txt', 'end');
  await row(page, 'me/last.txt').waitFor();
  await changes(page).getByText('5,000 changes').waitFor();
  const longest = await page.evaluate(() => (window as unknown as { longest: { ms: number } }).longest.ms);
  expect(longest).toBeLessThan(500);
});

test('colours follow the choice and stay chosen', async () => {
  const page = await open('/files/me');
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.getByRole('button', { name: 'Colours: as the system' }).click();
  await page.getByRole('button', { name: 'Colours: light' }).click();
  const dark = await background();
  expect(dark).not.toBe(light);
  await page.reload();
  await page.getByRole('button', { name: 'Colours: dark' }).waitFor();
  expect(await background()).toBe(dark);
});

test('on a phone, opening a file or change shows it', async () => {
  const page = await open('/', { width: 375, height: 740 });
  await row(page, 'me/README.md').click();
  await page.getByText('Notes and reports').waitFor();
  server.write('me/profy/report/analysis.py', 'x', { call: 'c_81' });
  await page.getByRole('button', { name: 'Changes' }).click();
  await page.getByRole('link', { name: 'analysis.py' }).click();
  await page.getByRole('table', { name: 'Diff' }).waitFor();
});
