import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { findings, openTab, shoot, startBrowser } from './browser.ts';
import { MockServer } from './mock.ts';
import { fillServer } from './sample.ts';

let browser: Browser;
let server: MockServer;
let origin: string;

beforeAll(async () => {
  server = new MockServer({});
  fillServer(server);
  origin = await server.listen();
  browser = await startBrowser();
});

afterAll(async () => {
  await browser.close();
  await server.close();
});

const sizes = [
  { width: 1280, height: 800 },
  { width: 900, height: 700 },
  { width: 375, height: 740 },
];
const looks = sizes.flatMap((size) => (['light', 'dark'] as const).map((scheme) => ({ ...size, scheme })));

describe.each(looks)('at $width px, $scheme', (look) => {
  const name = (what: string) => `${what}-${look.width}-${look.scheme}`;

  test('the page with a file open', async () => {
    const tab = await openTab(browser, origin, '/files/me/profy/report/analysis.py', look);
    await tab.page.getByText('def monthly_totals').waitFor();
    await expect.poll(() => server.streamCount).toBeGreaterThan(0);
    server.write('me/profy/report/notes.md', '# Notes\n', { call: 'c_80', chat: 'report' });
    server.write('me/profy/report/analysis.py', sampleOf(server), { call: 'c_81', chat: 'report' });
    server.remove('me/profy/report/old.csv');
    server.files.write('me/profy/report/old.csv', 'a,b\n1,2\n');
    await tab.page.locator('.live-open').waitFor();
    await expect.poll(() => tab.page.locator('.count').first().textContent()).toBe('3');
    expect(await findings(tab.page)).toEqual([]);
    await shoot(tab.page, name('file'));
    if (look.width < 768) {
      for (const pane of ['Files', 'Changes', 'Chats']) {
        await tab.page.getByRole('navigation', { name: 'Panes' }).getByRole('button', { name: pane }).click();
        await shoot(tab.page, name(pane.toLowerCase()));
        expect(await findings(tab.page)).toEqual([]);
      }
    }
    expect(tab.complaints).toEqual([]);
    await tab.close();
  });

  test('a diff', async () => {
    const tab = await openTab(browser, origin, '/files/me/profy/report/analysis.py?view=diff&call=c_81', look);
    await tab.page.getByText('rows.sort').first().waitFor();
    expect(await findings(tab.page)).toEqual([]);
    await shoot(tab.page, name('diff'));
    expect(tab.complaints).toEqual([]);
    await tab.close();
  });

  test('the folder and the question before a machine is destroyed', async () => {
    const tab = await openTab(browser, origin, '/files/me', look);
    if (look.width < 768) {
      await tab.page.getByRole('button', { name: 'Open', exact: true }).click();
      await tab.page.getByRole('region', { name: 'Folder content' }).waitFor();
      await shoot(tab.page, name('folder'));
    }
    if (look.width < 1200) await tab.page.getByRole('button', { name: 'Chats' }).click();
    await tab.page.getByRole('region', { name: 'Chat Quarterly report' }).getByRole('button', { name: 'Destroy' }).click();
    await tab.page.getByRole('dialog').waitFor();
    expect(await findings(tab.page)).toEqual([]);
    await shoot(tab.page, name('destroy'));
    expect(tab.complaints).toEqual([]);
    await tab.close();
  });
});

test.each(['light', 'dark'] as const)('the page of a visitor without a session, %s', async (scheme) => {
  const visitors = new MockServer({});
  visitors.signedIn = false;
  const tab = await openTab(browser, await visitors.listen(), '/', { width: 375, height: 740, scheme });
  await tab.page.getByRole('heading', { name: 'Sign in with your link' }).waitFor();
  expect(await findings(tab.page)).toEqual([]);
  await shoot(tab.page, `signin-${scheme}`);
  await tab.close();
  await visitors.close();
});

test('nothing is wider than a screen of 320 px', async () => {
  for (const path of ['/files/me/profy/report/analysis.py', '/files/me/profy/report/analysis.py?view=diff&call=c_81', '/files/me']) {
    const tab = await openTab(browser, origin, path, { width: 320, height: 600 });
    await tab.page.locator('.viewer-body > *').first().waitFor({ state: 'attached' });
    for (const pane of ['Files', 'Open', 'Changes', 'Chats']) {
      await tab.page.getByRole('navigation', { name: 'Panes' }).getByRole('button', { name: pane }).click();
      expect(await tab.page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320);
      await shoot(tab.page, `narrow-${pane.toLowerCase()}`);
    }
    await tab.close();
  }
});

function sampleOf(s: MockServer): Buffer {
  const node = s.files.read('me/profy/report/analysis.py');
  return node === 'dir' || !node ? Buffer.of() : node.bytes;
}
