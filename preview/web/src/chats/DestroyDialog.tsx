import { useEffect, useId, useRef, useState } from 'react';

const word = 'destroy';

interface DestroyDialogProps {
  title: string;
  onClose: () => void;
  onDestroy: () => void;
}

/** Asks before a machine is destroyed; the word has to be typed. */
export function DestroyDialog({ title, onClose, onDestroy }: DestroyDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState('');
  const heading = useId();
  const field = useId();
  useEffect(() => dialog.current?.showModal(), []);
  const confirmed = typed.trim().toLowerCase() === word;

  return (
    <dialog ref={dialog} className="dialog" aria-labelledby={heading} onClose={onClose}>
      <form
        method="dialog"
        onSubmit={(e) => {
          e.preventDefault();
          if (confirmed) onDestroy();
        }}
      >
        <h2 id={heading}>Destroy the machine of “{title}”?</h2>
        <p><strong>This cannot be undone.</strong> Lost for good:</p>
        <ul>
          <li>the machine’s home: everything in <code>/home/user</code> outside <code>workspace</code>, such as installed packages, settings and caches;</li>
          <li>all running processes and what is in <code>/tmp</code>.</li>
        </ul>
        <p>Your disk and the shared files stay: nothing in <code>workspace</code> is removed.</p>
        <label htmlFor={field}>Type <strong>{word}</strong> to confirm</label>
        <input id={field} value={typed} onChange={(e) => setTyped(e.target.value)} autoComplete="off" autoCapitalize="none" spellCheck={false} autoFocus />
        <div className="dialog-actions">
          <button type="button" className="button" onClick={() => dialog.current?.close()}>Cancel</button>
          <button type="submit" className="button danger solid" disabled={!confirmed}>Destroy machine</button>
        </div>
      </form>
    </dialog>
  );
}
