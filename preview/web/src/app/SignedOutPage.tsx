import { useEffect } from 'react';
import { Icon } from '../ui/Icon.tsx';
import { ThemeButton } from './ThemeButton.tsx';

/** For a visitor without a session: how to get one. */
export function SignedOutPage() {
  useEffect(() => {
    document.title = 'Sign in · Berth';
  }, []);
  return (
    <main className="lone">
      <div className="signin">
        <div className="signin-head">
          <p className="brand"><Icon name="berth" />Berth</p>
          <ThemeButton />
        </div>
        <h1>Sign in with your link</h1>
        <p>Berth has no passwords. A sign-in link opens this page once and stays valid for ten minutes.</p>
        <ul>
          <li>Ask your operator for a new link,</li>
          <li>or, on the machine itself, run <code>berth up</code>: it prints one.</li>
        </ul>
        <p className="muted">If you came here by a link, it was used before or is too old.</p>
      </div>
    </main>
  );
}
