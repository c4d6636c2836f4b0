import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { openTab, startBrowser, type Look, type Tab } from './browser.ts';
import { MockServer } from './mock.ts';
import { fillServer } from './sample.ts';

/** One browser for a file of tests; a filled server and a tab for each test. */
export class Stage {
  server!: MockServer;
  origin!: string;
  tab!: Tab;
  private browser!: Browser;

  constructor() {
    beforeAll(async () => {
      this.browser = await startBrowser();
    });
    afterAll(() => this.browser.close());
    beforeEach(async () => {
      this.server = new MockServer({});
      fillServer(this.server);
      this.origin = await this.server.listen();
    });
    afterEach(async () => {
      await this.tab.close();
      await this.server.close();
    });
  }

  /** Opens the page and waits until it is live. */
  async open(path: string, look: Partial<Look> = {}): Promise<Page> {
    this.tab = await openTab(this.browser, this.origin, path, look);
    await this.tab.page.locator('.live-open').waitFor({ state: 'attached' });
    return this.tab.page;
  }
}

/** The row of a file in the tree, by its root and path. */
export const row = (page: Page, key: string) => page.locator(`[role=treeitem][data-key="${key}"]`);

/** The list of changes. */
export const changes = (page: Page) => page.getByRole('region', { name: 'Changed files' });

/** The key of the tree's row that has the keyboard's focus. */
export const focusedKey = (page: Page) => page.evaluate(() => (document.activeElement as HTMLElement | null)?.dataset.key ?? '');
