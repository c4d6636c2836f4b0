import { create } from 'zustand';

/** The colours: the system's choice, or the user's own. */
export type Theme = 'system' | 'light' | 'dark';

const stored = 'berth-theme';
const order: readonly Theme[] = ['system', 'light', 'dark'];

function isTheme(value: string | null): value is Theme {
  return order.some((t) => t === value);
}

/** Storage can be forbidden by the browser; the theme then lasts as long as the page. */
function readStored(): Theme {
  try {
    const value = window.localStorage.getItem(stored);
    return isTheme(value) ? value : 'system';
  } catch {
    return 'system';
  }
}

function show(theme: Theme): void {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

interface ThemeStore {
  theme: Theme;
  next(): void;
}

export const useTheme = create<ThemeStore>((set, get) => ({
  theme: 'system',
  next() {
    const theme = order[(order.indexOf(get().theme) + 1) % order.length] ?? 'system';
    try {
      window.localStorage.setItem(stored, theme);
    } catch {
      // Shown all the same.
    }
    show(theme);
    set({ theme });
  },
}));

/** Shows the stored theme; to be called before the first render. */
export function startTheme(): void {
  const theme = readStored();
  show(theme);
  useTheme.setState({ theme });
}
