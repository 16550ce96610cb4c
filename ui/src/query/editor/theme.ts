// Colours of the editor, as constructed style sheets: in a shadow root the content policy allows
// them. Custom properties of the page reach into the shadow root, so both themes need one sheet.

import { HighlightStyle } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

export const highlight = HighlightStyle.define([
  { tag: tags.number, color: "var(--good)" },
  { tag: tags.string, color: "var(--good)" },
  { tag: tags.keyword, color: "var(--keyword)" },
  { tag: tags.function(tags.variableName), color: "var(--accent)" },
  { tag: tags.labelName, color: "var(--warn)" },
  { tag: tags.operator, color: "var(--text)" },
  { tag: tags.modifier, color: "var(--keyword)" },
  { tag: tags.operatorKeyword, color: "var(--keyword)" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

const MONO = 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace';

export const theme = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "transparent", fontSize: "12px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: MONO, lineHeight: "18px", maxHeight: "260px", overflow: "auto" },
  ".cm-content": { padding: "5px 0", caretColor: "var(--text)" },
  ".cm-line": { padding: "0 10px" },
  ".cm-placeholder": { color: "var(--muted)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {
    background: "var(--accent-soft)",
  },
  ".cm-content ::selection": { background: "var(--accent-soft)" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": {
    backgroundColor: "var(--accent-soft)",
    outline: "1px solid var(--control)",
  },
  ".cm-nonmatchingBracket, &.cm-focused .cm-nonmatchingBracket": { backgroundColor: "var(--bad-soft)" },
  // CodeMirror's own underline is an image with a `data:` address, which the policy refuses.
  ".cm-lintRange": { backgroundImage: "none !important", paddingBottom: "0" },
  ".cm-lintRange-error": { textDecoration: "underline wavy var(--bad) 1px", textUnderlineOffset: "3px" },
  ".cm-lintRange-warning": { textDecoration: "underline wavy var(--warn) 1px", textUnderlineOffset: "3px" },
  ".cm-part": { background: "var(--accent-soft)", outline: "1px solid var(--accent)" },
  ".cm-tooltip": {
    background: "var(--card)",
    color: "var(--text)",
    border: "1px solid var(--line)",
    borderRadius: "8px",
    boxShadow: "0 6px 24px rgb(0 0 0 / 18%)",
    zIndex: "40",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": {
    fontFamily: MONO,
    fontSize: "12px",
    maxHeight: "264px",
    minWidth: "min(340px, 80vw)",
    maxWidth: "min(720px, 92vw)",
    padding: "4px",
  },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li": {
    padding: "3px 8px",
    borderRadius: "5px",
    display: "flex",
    gap: "16px",
    lineHeight: "18px",
  },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--accent-soft)", color: "var(--text)" },
  ".cm-completionLabel": { overflow: "hidden", textOverflow: "ellipsis", flex: "none", maxWidth: "70%" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "700", color: "var(--accent)" },
  ".cm-completionDetail": {
    marginLeft: "auto",
    fontStyle: "normal",
    color: "var(--muted)",
    overflow: "hidden",
    textOverflow: "ellipsis",
  },
  ".cm-tooltip.cm-completionInfo": {
    padding: "8px 10px",
    maxWidth: "360px",
    font: "12px/17px system-ui, sans-serif",
    overflowWrap: "anywhere",
  },
  ".cm-diagnostic": { font: "12px/17px system-ui, sans-serif", padding: "6px 10px", whiteSpace: "pre-wrap" },
  ".cm-diagnostic-error": { borderLeft: "3px solid var(--bad)" },
  ".cm-diagnostic-warning": { borderLeft: "3px solid var(--warn)" },
  ".cm-help": { padding: "8px 10px", maxWidth: "420px", font: "12px/17px system-ui, sans-serif" },
  ".cm-help code": { fontFamily: MONO },
  ".cm-help p": { margin: "4px 0 0", color: "var(--muted)", overflowWrap: "anywhere" },
});
