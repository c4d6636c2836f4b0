import { useEffect, useRef } from 'react';
import { CodeViewer } from './codemirror.ts';

interface CodeViewProps {
  /** The file's name; null for text to show without colours. */
  language: string | null;
  label: string;
  text: string;
  /** False for a window that does not begin at the file's first line. */
  numbered: boolean;
}

/** A text file. Later text is shown in place: the scroll position stays. */
export default function CodeView({ language, label, text, numbered }: CodeViewProps) {
  const parent = useRef<HTMLDivElement>(null);
  const viewer = useRef<CodeViewer | null>(null);
  const latest = useRef(text);
  latest.current = text;

  useEffect(() => {
    if (!parent.current) return undefined;
    const created = new CodeViewer(parent.current, label, latest.current, numbered);
    viewer.current = created;
    return () => {
      viewer.current = null;
      created.destroy();
    };
  }, [label, numbered]);
  useEffect(() => viewer.current?.setText(text), [text]);
  useEffect(() => void viewer.current?.setLanguage(language), [language, label, numbered]);

  return <div className="code" ref={parent} />;
}
