import { useEffect, useState, type ReactNode } from 'react';
import { Icon, type IconName } from './Icon.tsx';

interface NoticeProps {
  icon: IconName;
  title: string;
  children?: ReactNode;
  actions?: ReactNode;
}

/** What a pane shows instead of content: that it is empty, and what to do next. */
export function Notice({ icon, title, children, actions }: NoticeProps) {
  return (
    <div className="notice">
      <Icon name={icon} className="notice-icon" />
      <p className="notice-title">{title}</p>
      {children && <div className="notice-text">{children}</div>}
      {actions && <div className="notice-actions">{actions}</div>}
    </div>
  );
}

/** Why a pane has no content, with a way to try again. */
export function ErrorNotice({ title, cause, onRetry }: { title: string; cause: string; onRetry: () => void }) {
  return (
    <div role="alert">
      <Notice icon="warning" title={title} actions={<button type="button" className="button" onClick={onRetry}>Try again</button>}>
        <p>{cause}</p>
      </Notice>
    </div>
  );
}

/** The outline of content to come; not shown for waits that nobody notices. */
export function Skeleton({ label, lines = 8 }: { label: string; lines?: number }) {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => setShown(true), 150);
    return () => window.clearTimeout(timer);
  }, []);
  return (
    <div className="skeleton" aria-busy="true">
      <span className="visually-hidden">{label}</span>
      {shown && Array.from({ length: lines }, (_, i) => <span key={i} className="skeleton-line" style={{ width: `${40 + ((i * 37) % 50)}%` }} />)}
    </div>
  );
}
