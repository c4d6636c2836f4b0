import { nameParts } from '../text/names.ts';

/** The name of a file with every character visible: odd ones are shown as escapes. */
export function Name({ name }: { name: string }) {
  return (
    <bdi className="name">
      {nameParts(name).map((part, i) => (part.escaped ? <span key={i} className="escape">{part.text}</span> : part.text))}
    </bdi>
  );
}
