import type { AnchorHTMLAttributes, MouseEvent } from 'react';
import { navigate } from './useRoute.ts';

type LinkProps = AnchorHTMLAttributes<HTMLAnchorElement> & { href: string };

/** A link within the page. With a modifier key it opens as the browser likes. */
export function Link({ href, onClick, ...rest }: LinkProps) {
  const follow = (e: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(e);
    if (e.defaultPrevented || e.button !== 0 || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    navigate(href);
  };
  return <a {...rest} href={href} onClick={follow} />;
}
