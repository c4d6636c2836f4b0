import { useId, type ReactNode } from 'react';

interface PaneProps {
  name: 'files' | 'changes' | 'chats';
  title: string;
  shown: boolean;
  count?: number;
  children: ReactNode;
}

/** One titled part of the page. Hidden panes stay alive and keep their state. */
export function Pane({ name, title, shown, count, children }: PaneProps) {
  const heading = useId();
  return (
    <section className={`pane pane-${name}`} aria-labelledby={heading} hidden={!shown}>
      <h2 id={heading} className="pane-title">
        {title}
        {count !== undefined && <span className="count">{count}</span>}
      </h2>
      <div className="pane-body">{children}</div>
    </section>
  );
}
