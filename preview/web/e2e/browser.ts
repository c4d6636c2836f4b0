import axe from 'axe-core';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core';

const shots = join(import.meta.dirname, 'shots');
mkdirSync(shots, { recursive: true });

export async function startBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
}

export interface Look {
  width: number;
  height: number;
  scheme: 'light' | 'dark';
}

/** A tab whose console errors and requests to other hosts fail the test. */
export interface Tab {
  page: Page;
  context: BrowserContext;
  /** What went wrong so far; browsers log each failed request as an error, and tests may expect those. */
  complaints: string[];
  close(): Promise<void>;
}

export async function openTab(browser: Browser, origin: string, path: string, look: Partial<Look> = {}): Promise<Tab> {
  const context = await browser.newContext({
    viewport: { width: look.width ?? 1280, height: look.height ?? 800 },
    colorScheme: look.scheme ?? 'light',
    hasTouch: (look.width ?? 1280) < 500,
  });
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on('console', (m) => m.type() === 'error' && complaints.push(`console: ${m.text()} ${m.location().url}`));
  page.on('pageerror', (e) => complaints.push(`error: ${e.message}`));
  page.on('request', (r) => {
    if (!r.url().startsWith(origin) && !/^(data|blob):/.test(r.url())) complaints.push(`request to ${r.url()}`);
  });
  await page.goto(origin + path);
  return { page, context, complaints, close: () => context.close() };
}

export async function shoot(page: Page, name: string): Promise<void> {
  await page.screenshot({ path: join(shots, `${name}.png`) });
}

/** The serious and critical findings of axe on the page as it is. */
export async function findings(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const result = await page.evaluate(async () => {
    const run = (window as unknown as { axe: typeof import('axe-core') }).axe.run;
    return run(document, { resultTypes: ['violations'] });
  });
  return result.violations
    .filter((v) => v.impact === 'serious' || v.impact === 'critical')
    .map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target.join(' ')} ${n.failureSummary ?? ''}`).join(' | ')}`);
}
