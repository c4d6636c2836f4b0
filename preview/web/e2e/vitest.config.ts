import { defineConfig } from 'vitest/config';

export default defineConfig({
  cacheDir: '../node_modules/.vite',
  test: { root: import.meta.dirname, include: ['*.e2e.ts'], testTimeout: 30_000, hookTimeout: 30_000, fileParallelism: false },
});
