// A remote control for one Chromium page: reads one JSON command a line on
// standard input, answers each with one JSON line. The Go tests drive it, so
// that a story reads as one program.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const require = createRequire(new URL('../preview/web/package.json', import.meta.url))
const { chromium } = require('playwright-core')

const profile = mkdtempSync(join(tmpdir(), 'berth-chromium-'))
const context = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  headless: true,
  viewport: { width: 1280, height: 800 },
  args: [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync',
  ],
})
const page = context.pages()[0] ?? (await context.newPage())
const problems = []
page.on('console', (m) => m.type() === 'error' && problems.push(m.text()))
page.on('pageerror', (e) => problems.push(String(e)))

const deadline = 15000
const commands = {
  open: async ({ url }) => {
    const response = await page.goto(url, { waitUntil: 'load', timeout: deadline })
    return { status: response?.status() ?? 0, url: page.url() }
  },
  wait: ({ text }) => page.getByText(text).first().waitFor({ timeout: deadline }),
  waitSelector: ({ selector }) => page.locator(selector).first().waitFor({ timeout: deadline }),
  waitRole: ({ role, name }) => page.getByRole(role, { name: new RegExp(name) }).first().waitFor({ timeout: deadline }),
  clickSelector: ({ selector }) => page.locator(selector).first().click({ timeout: deadline }),
  fill: ({ selector, text }) => page.locator(selector).first().fill(text, { timeout: deadline }),
  size: ({ width, height }) => page.setViewportSize({ width, height }),
  overflow: async () => ({ overflow: await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth) }),
  cookies: async () => ({ cookies: await context.cookies() }),
  shot: ({ file }) => page.screenshot({ path: file }),
  problems: async () => ({ problems }),
}

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...args } = JSON.parse(line)
  try {
    const answer = (await commands[name](args)) ?? {}
    console.log(JSON.stringify(answer))
  } catch (e) {
    console.log(JSON.stringify({ error: String(e).slice(0, 2000) }))
  }
}
await context.close()
rmSync(profile, { recursive: true, force: true })
