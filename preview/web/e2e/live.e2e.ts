import { expect, test } from 'vitest';
import { shoot } from './browser.ts';
import { changes, focusedKey, row, Stage } from './stage.ts';

const stage = new Stage();

test('a file that appears is in the tree, the list and the folder without reload', async () => {
  const page = await stage.open('/files/me');
  await page.getByRole('region', { name: 'Folder content' }).waitFor();
  stage.server.write('me/hello.py', 'print("hi")\n', { call: 'c_1', chat: 'report' });
  await row(page, 'me/hello.py').waitFor();
  await page.getByRole('region', { name: 'Folder content' }).getByText('hello.py').waitFor();
  await changes(page).getByText('hello.py').waitFor();
  await expect.poll(() => page.getByRole('status').allTextContents()).toContain('1 file changed');
  expect(stage.tab.complaints).toEqual([]);
});

test('a change leads to the diff against the content before its call', async () => {
  const page = await stage.open('/files/me');
  stage.server.write('me/profy/report/analysis.py', 'changed\n', { call: 'c_81', chat: 'report' });
  await changes(page).getByText('analysis.py').click();
  await page.getByRole('table', { name: 'Diff' }).waitFor();
  expect(new URL(page.url()).pathname + new URL(page.url()).search).toBe('/files/me/profy/report/analysis.py?view=diff&call=c_81');
  await expect.poll(() => page.getByRole('table').getByText('rows.sort').count()).toBe(1);
  expect(await page.getByRole('row').filter({ hasText: 'rows.sort' }).textContent()).toContain('added line 13');

  // The shown diff follows the file.
  stage.server.diffs.set('profy/report/analysis.py@c_81', { call: 'c_81', before_exists: true, after_exists: true, added: 1, removed: 0, hunks: [{ a: 1, b: 1, lines: [{ t: '+', b: 1, s: 'a later edit' }] }] });
  stage.server.write('me/profy/report/analysis.py', 'later\n', { call: 'c_81', chat: 'report' });
  await page.getByRole('table').getByText('a later edit').waitFor();
  await page.goBack();
  await page.getByRole('region', { name: 'Folder content' }).waitFor();
  expect(stage.tab.complaints).toEqual([]);
});

test('an open file follows edits and keeps its scroll position', async () => {
  const lines = Array.from({ length: 3000 }, (_, i) => `line number ${i + 1}`);
  stage.server.files.write('me/long.txt', lines.join('\n'));
  const page = await stage.open('/files/me/long.txt');
  await page.getByText('line number 1', { exact: true }).waitFor();
  const scroller = page.locator('.cm-scroller');
  await scroller.evaluate((s) => s.scrollTo(0, 20_000));
  await page.getByText('line number 1010', { exact: true }).waitFor();
  const before = await scroller.evaluate((s) => s.scrollTop);
  lines[1009] = 'edited here';
  stage.server.write('me/long.txt', lines.join('\n'));
  await page.getByText('edited here').waitFor();
  expect(await scroller.evaluate((s) => s.scrollTop)).toBe(before);
  stage.server.remove('me/long.txt');
  await page.getByText('This file does not exist').waitFor();
  stage.server.write('me/long.txt', 'back again\n');
  await page.getByText('back again').waitFor();
});

test('the tree is used by keyboard, and changes leave the focus alone', async () => {
  const page = await stage.open('/files/me');
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

  stage.server.write('me/another.txt', 'x');
  await row(page, 'me/another.txt').waitFor();
  expect(await focusedKey(page)).toBe('me/profy/report/old.csv');
  stage.server.remove('me/profy/report/old.csv');
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
  expect(stage.tab.complaints).toEqual([]);
});

test('a renamed folder stays open and a removed one goes', async () => {
  const page = await stage.open('/files/me/profy/site/src/main.ts');
  await row(page, 'me/profy/site/src/main.ts').waitFor();
  stage.server.rename('me/profy/site', 'me/profy/web');
  await row(page, 'me/profy/web').waitFor();
  await row(page, 'me/profy/web/src/main.ts').waitFor();
  await page.getByText('This file does not exist').waitFor();
  stage.server.remove('me/profy');
  await expect.poll(() => row(page, 'me/profy').count()).toBe(0);
});

test('the stream is resumed without loss, and a reset reads everything again', async () => {
  const page = await stage.open('/files/me');
  stage.server.write('me/one.txt', '1');
  await changes(page).getByText('one.txt').waitFor();
  stage.server.dropStreams();
  stage.server.write('me/two.txt', '2');
  await changes(page).getByText('two.txt').waitFor();
  await row(page, 'me/two.txt').waitFor();

  stage.server.files.write('me/unseen.txt', 'never announced');
  stage.server.reset();
  await row(page, 'me/unseen.txt').waitFor();
  await page.getByText('may be missing here').waitFor();
  stage.server.write('me/three.txt', '3');
  await changes(page).getByText('three.txt').waitFor();
});

test('the list begins with what changed before the page was opened', async () => {
  stage.server.write('me/early.txt', '1', { call: 'c_7' });
  const page = await stage.open('/files/me');
  await changes(page).getByText('early.txt').waitFor();
  expect(await page.getByRole('status').allTextContents()).not.toContain('1 file changed');
});

test('while the server is away the page says so, and goes on when it is back', async () => {
  const page = await stage.open('/files/me');
  await row(page, 'me/README.md').waitFor();
  const port = stage.server.port;
  await stage.server.close();
  await page.getByText('Reconnecting…').waitFor();
  await page.getByText('last contact').waitFor();
  await shoot(page, 'offline');
  expect(await row(page, 'me/README.md').count()).toBe(1);
  await stage.server.listen(port);
  await page.locator('.live-open').waitFor();
  await page.getByText('Reconnecting…').waitFor({ state: 'detached' });
});

test('20,000 files at once leave the page responsive', async () => {
  const page = await stage.open('/files/me');
  await row(page, 'me/README.md').waitFor();
  await page.evaluate(() => {
    const longest = { ms: 0 };
    Object.assign(window, { longest });
    new PerformanceObserver((list) => list.getEntries().forEach((e) => (longest.ms = Math.max(longest.ms, e.duration)))).observe({ type: 'longtask' });
  });
  stage.server.storm(Array.from({ length: 20_000 }, (_, i) => `me/app/d${i % 100}/f${i}`));
  stage.server.storm(Array.from({ length: 5_000 }, (_, i) => `me/app/node_modules/p${i % 50}/f${i}`));
  stage.server.write('me/last.txt', 'end');
  await row(page, 'me/last.txt').waitFor();
  await changes(page).getByText('5,000 changes').waitFor();
  const longest = await page.evaluate(() => (window as unknown as { longest: { ms: number } }).longest.ms);
  expect(longest).toBeLessThan(500);
});

test('a change never takes the focus back to the tree', async () => {
  const page = await stage.open('/files/me');
  await row(page, 'me/README.md').waitFor();
  await page.getByRole('treeitem', { name: 'My disk' }).focus();
  await page.keyboard.press('End');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Tab');
  const folder = page.getByRole('region', { name: 'Folder content' });
  expect(await folder.evaluate((e) => e === document.activeElement)).toBe(true);
  stage.server.write('me/news.txt', 'x');
  await row(page, 'me/news.txt').waitFor();
  expect(await folder.evaluate((e) => e === document.activeElement)).toBe(true);
});
