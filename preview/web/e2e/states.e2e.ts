import { expect, test } from 'vitest';
import { shoot } from './browser.ts';
import { row, Stage } from './stage.ts';

const stage = new Stage();

test('odd names are shown escaped and can be opened', async () => {
  const page = await stage.open('/files/me/odd');
  const folder = page.getByRole('region', { name: 'Folder content' });
  for (const [shown, text] of [['line\\nbreak.txt', 'odd'], ['caf\\xe9.txt', 'latin'], ['100% #1?.txt', 'escaped'], ['txt\\u{202e}exe.gpj', 'not a picture']] as const) {
    await folder.getByRole('link', { name: shown }).click();
    await page.locator('.cm-content').getByText(text).waitFor();
    await page.reload();
    await page.locator('.cm-content').getByText(text).waitFor();
    await page.getByRole('navigation', { name: 'Path' }).getByRole('link', { name: 'odd' }).click();
  }
  await shoot(page, 'odd-names');
  expect(stage.tab.complaints).toEqual([]);
});

test('a deep link opens the folders that lead to it', async () => {
  const page = await stage.open('/files/me/profy/site/src/very/deep/down/in/the/tree/leaf.txt');
  await page.getByText('found').waitFor();
  await row(page, 'me/profy/site/src/very/deep/down/in/the/tree/leaf.txt').waitFor();
  expect(await row(page, 'me/profy/site/src/very/deep/down/in/the/tree/leaf.txt').getAttribute('aria-level')).toBe('11');
  expect(await row(page, 'me/profy/site/src/very/deep/down/in/the/tree/leaf.txt').getAttribute('aria-selected')).toBe('true');
});

test('binary, empty, linked, missing and too large files say so', async () => {
  stage.server.files.write('me/big.log', Buffer.concat([Buffer.from('first line\n'), Buffer.alloc(12_000_000, 'x'), Buffer.from('\nlast line\n')]));
  const page = await stage.open('/files/me/profy/report/data.bin');
  await page.getByText('This is a binary file of 4 B.').waitFor();
  await page.goto(`${stage.origin}/files/me/profy/report/chart.png`);
  await page.getByText('2 × 2').waitFor();
  await page.goto(`${stage.origin}/files/me/empty.txt`);
  await page.getByText('Empty file').waitFor();
  await page.goto(`${stage.origin}/files/me/latest`);
  await page.getByText('It points to').waitFor();
  await page.getByRole('link', { name: 'Go there' }).click();
  await page.getByRole('region', { name: 'Folder content' }).getByText('analysis.py').waitFor();
  await page.goto(`${stage.origin}/files/me/no/such/file`);
  await page.getByText('This file does not exist').waitFor();
  await page.goto(`${stage.origin}/files/elsewhere/a`);
  await page.getByText('There is no such page').waitFor();
  await page.goto(`${stage.origin}/files/me/big.log`);
  await page.getByText('Showing the first 1.0 MB of 12.0 MB').waitFor();
  await page.getByText('first line').waitFor();
  await page.getByRole('button', { name: 'End' }).click();
  await page.getByText('Showing the last').waitFor();
  await page.locator('.cm-scroller').evaluate((s) => s.scrollTo(0, s.scrollHeight));
  await page.getByText('last line').waitFor();
});

test('a folder with 100,000 names is listed by pages', async () => {
  for (let i = 0; i < 100_000; i++) stage.server.files.write(`me/many/file-${String(i).padStart(6, '0')}`, '');
  const page = await stage.open('/files/me/many');
  await page.getByRole('link', { name: 'file-000000' }).waitFor();
  await page.getByRole('treeitem', { name: 'My disk' }).focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowRight');
  await page.getByRole('treeitem', { name: 'Show more' }).waitFor({ state: 'detached' });
  expect(await page.getByRole('treeitem').count()).toBeLessThan(120);
  await page.getByRole('button', { name: 'Show more' }).click();
  await expect.poll(() => stage.server.requests.filter((r) => r.includes('after=1000')).length).toBe(1);
});

test('what cannot be read says why and can be tried again', async () => {
  stage.server.failing = 500;
  const page = await stage.open('/files/me');
  await page.getByText('Cannot list this folder').waitFor();
  await page.getByText('Cannot list the chats').waitFor();
  await shoot(page, 'errors');
  expect(stage.tab.complaints.every((c) => c.includes('500'))).toBe(true);
  stage.server.failing = 0;
  const again = page.getByRole('button', { name: 'Try again' });
  await again.last().click();
  await page.getByText('Quarterly report').waitFor();
  await again.click();
  await page.getByRole('region', { name: 'Folder content' }).waitFor();
});

test('a machine is stopped, woken, and destroyed only after the word', async () => {
  const page = await stage.open('/files/me');
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
  expect(stage.server.requests.some((r) => r.startsWith('DELETE'))).toBe(false);
  await chat.getByRole('button', { name: 'Destroy' }).click();
  await page.keyboard.type('destroy');
  await page.keyboard.press('Enter');
  await chat.getByText('Destroyed').waitFor();
  expect(stage.server.requests).toContain('DELETE /v1/chats/report/machine');
  stage.server.setMachine('site', 'running');
  await page.getByRole('region', { name: 'Chat Landing page' }).getByText('Running').waitFor();
  expect(stage.tab.complaints).toEqual([]);
});

test('signing out leaves nothing on the screen, and a revoked session ends', async () => {
  let page = await stage.open('/files/me/README.md');
  await page.getByText('Notes and reports').waitFor();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in with your link' }).waitFor();
  expect(await page.getByText('README.md').count()).toBe(0);
  expect(stage.tab.complaints).toEqual([]);
  await stage.tab.close();

  stage.server.signedIn = true;
  page = await stage.open('/files/me');
  stage.server.signedIn = false;
  stage.server.dropStreams();
  await page.getByRole('heading', { name: 'Sign in with your link' }).waitFor();
});

test('colours follow the choice and stay chosen', async () => {
  const page = await stage.open('/files/me');
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
  const page = await stage.open('/', { width: 375, height: 740 });
  await row(page, 'me/README.md').click();
  await page.getByText('Notes and reports').waitFor();
  stage.server.write('me/profy/report/analysis.py', 'x', { call: 'c_81' });
  await page.getByRole('button', { name: 'Changes' }).click();
  await page.getByRole('link', { name: 'analysis.py' }).click();
  await page.getByRole('table', { name: 'Diff' }).waitFor();
});
