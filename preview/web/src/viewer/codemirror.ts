import { HighlightStyle, LanguageDescription, bracketMatching, foldGutter, foldKeymap, syntaxHighlighting } from '@codemirror/language';
import { languages } from '@codemirror/language-data';
import { search, searchKeymap, highlightSelectionMatches } from '@codemirror/search';
import { standardKeymap } from '@codemirror/commands';
import { Compartment, EditorState, type Extension, type ChangeSpec } from '@codemirror/state';
import { EditorView, drawSelection, highlightSpecialChars, keymap, lineNumbers } from '@codemirror/view';
import { tags as t } from '@lezer/highlight';

/** Colours come from tokens.css, so that themes need no new editor. */
const colours = HighlightStyle.define([
  { tag: [t.keyword, t.operatorKeyword, t.modifier], color: 'var(--syntax-keyword)' },
  { tag: [t.string, t.special(t.string), t.regexp], color: 'var(--syntax-string)' },
  { tag: [t.number, t.bool, t.null, t.atom], color: 'var(--syntax-number)' },
  { tag: [t.comment, t.meta], color: 'var(--syntax-comment)', fontStyle: 'italic' },
  { tag: [t.function(t.variableName), t.function(t.propertyName), t.labelName], color: 'var(--syntax-function)' },
  { tag: [t.typeName, t.className, t.namespace, t.tagName], color: 'var(--syntax-type)' },
  { tag: [t.propertyName, t.attributeName], color: 'var(--syntax-property)' },
  { tag: t.heading, fontWeight: '600', color: 'var(--syntax-keyword)' },
  { tag: [t.link, t.url], color: 'var(--accent-text)', textDecoration: 'underline' },
  { tag: t.strong, fontWeight: '600' },
  { tag: t.emphasis, fontStyle: 'italic' },
  { tag: t.invalid, color: 'var(--danger-text)' },
]);

const look = EditorView.theme({
  '&': { height: '100%', fontSize: 'var(--code-size)', color: 'var(--text)', backgroundColor: 'transparent' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: 'var(--code-line)' },
  '.cm-content': { caretColor: 'var(--accent)' },
  '.cm-cursor': { borderLeftColor: 'var(--accent)' },
  '.cm-gutters': { backgroundColor: 'var(--surface)', color: 'var(--faint)', border: 'none', borderRight: '1px solid var(--line)' },
  '.cm-lineNumbers .cm-gutterElement': { padding: '0 8px 0 12px' },
  '.cm-foldGutter .cm-gutterElement': { padding: '0 4px 0 0', cursor: 'pointer' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { background: 'var(--selection)' },
  '.cm-selectionMatch, .cm-searchMatch': { backgroundColor: 'var(--match)' },
  '.cm-searchMatch-selected': { backgroundColor: 'var(--match-current)' },
  '.cm-panels': { backgroundColor: 'var(--surface)', color: 'var(--text)', borderColor: 'var(--line)' },
  '.cm-textfield, .cm-button': { background: 'var(--background)', color: 'var(--text)', border: '1px solid var(--line-strong)', borderRadius: '4px' },
  '.cm-specialChar': { color: 'var(--danger-text)' },
});

/** A read-only view of a text that can be given a later text. */
export class CodeViewer {
  private readonly view: EditorView;
  private readonly language = new Compartment();
  private languageName = '';

  constructor(parent: HTMLElement, label: string, text: string, numbered: boolean) {
    this.view = new EditorView({ parent, state: EditorState.create({ doc: text, extensions: this.extensions(label, numbered) }) });
  }

  private extensions(label: string, numbered: boolean): Extension[] {
    return [
      // Editable for the browser, so that the caret and selection work from the
      // keyboard; read-only for the document.
      EditorState.readOnly.of(true),
      EditorView.contentAttributes.of({ 'aria-label': label, 'aria-readonly': 'true', spellcheck: 'false', inputmode: 'none', tabindex: '0' }),
      numbered ? [lineNumbers(), foldGutter()] : [],
      highlightSpecialChars(),
      drawSelection(),
      bracketMatching(),
      highlightSelectionMatches(),
      search({ top: true }),
      syntaxHighlighting(colours),
      look,
      keymap.of([...searchKeymap, ...foldKeymap, ...standardKeymap]),
      this.language.of([]),
    ];
  }

  /** Shows a later text. What did not change keeps its place on the screen. */
  setText(text: string): void {
    const change = changeBetween(this.view.state.doc.toString(), text);
    if (change) this.view.dispatch({ changes: change });
  }

  /** Colours the text by the file's name; nothing when `name` is null. */
  async setLanguage(name: string | null): Promise<void> {
    const found = name === null ? null : LanguageDescription.matchFilename(languages, name);
    this.languageName = found?.name ?? '';
    const support = found ? await found.load() : [];
    // Another file may have been opened while the language was loading.
    if (this.languageName === (found?.name ?? '')) this.view.dispatch({ effects: this.language.reconfigure(support) });
  }

  destroy(): void {
    this.view.destroy();
  }
}

/** The smallest replacement that makes one text the other; null when they are equal. */
export function changeBetween(before: string, after: string): ChangeSpec | null {
  if (before === after) return null;
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && before.charCodeAt(start) === after.charCodeAt(start)) start++;
  let end = 0;
  while (end < shorter - start && before.charCodeAt(before.length - 1 - end) === after.charCodeAt(after.length - 1 - end)) end++;
  return { from: start, to: before.length - end, insert: after.slice(start, after.length - end) };
}
