import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { App } from './app/App.tsx';
import { ApiError } from './api/client.ts';
import { startTheme } from './ui/theme.ts';
import './styles/tokens.css';
import './styles/base.css';
import './styles/layout.css';
import './styles/tree.css';
import './styles/viewer.css';
import './styles/diff.css';
import './styles/panes.css';

/** Only what may pass by itself is tried again: no answer, or a server in trouble. */
function isPassing(error: Error): boolean {
  return error instanceof ApiError && (error.status === 0 || error.status === 502 || error.status === 503);
}

/** An answer 401 says that the session ended. */
function noticeEnd(error: Error): void {
  if (error instanceof ApiError && error.status === 401) client.setQueryData(['me'], null);
}

const client = new QueryClient({
  queryCache: new QueryCache({ onError: noticeEnd }),
  mutationCache: new MutationCache({ onError: noticeEnd }),
  defaultOptions: {
    queries: {
      // The event stream says when something is out of date.
      staleTime: Infinity,
      // The server may be this very machine: no network is needed.
      networkMode: 'always',
      gcTime: 60_000,
      refetchOnWindowFocus: false,
      retry: (failures, error) => failures < 2 && isPassing(error),
    },
    mutations: { networkMode: 'always' },
  },
});

startTheme();
const root = document.getElementById('app');
if (!root) throw new Error('BUG: index.html has no element #app');
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
