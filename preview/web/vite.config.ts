import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// The server answers with `script-src 'self'`: nothing may be inlined.
export default defineConfig({
  plugins: [react()],
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
  },
  // `npm run dev` shows the page from source against a running `berth up`.
  server: { proxy: { '/v1': process.env.BERTH_URL ?? 'http://127.0.0.1:8080', '/signin': process.env.BERTH_URL ?? 'http://127.0.0.1:8080' } },
});
