// The PromQL editor: CodeMirror in a shadow root, where it styles itself by constructed style sheets,
// which the content policy allows. In the document it would be unstyled.

import {
  acceptCompletion,
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  closeCompletion,
  completionKeymap,
  completionStatus,
  insertBracket,
  setSelectedCompletion,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, insertNewlineAndIndent, isolateHistory } from "@codemirror/commands";
import { bracketMatching, forceParsing, syntaxHighlighting } from "@codemirror/language";
import { forceLinting, linter, type Diagnostic } from "@codemirror/lint";
import { EditorState, Prec, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, hoverTooltip, keymap, placeholder, type Tooltip } from "@codemirror/view";
import { LanguageType, promQLLanguage } from "@prometheus-io/codemirror-promql/dist/esm/promql";
import { Parser } from "@prometheus-io/codemirror-promql/dist/esm/parser/parser";
import { functionHelp } from "../functions";
import { helpOf } from "../names";
import { sources, type Names } from "./completion";
import { accepted } from "./keys";
import { offsetOf, placeOf, rangeAt } from "./place";
import { highlight, theme } from "./theme";

export interface EditorOptions {
  text: string;
  label: string;
  hint: string;
  names: Names;
  onchange: (text: string) => void;
  onrun: () => void;
  // Escape without an open list. Returns whether it was used.
  onescape: () => boolean;
}

export interface Editor {
  focus(): void;
  text(): string;
  // Replaces the text, as a step that Undo takes back.
  replace(text: string): void;
  // Underlines the place that an error of the server names, until the text changes.
  mark(message: string | undefined): void;
  // Marks a part of the text, or none.
  point(part: { from: number; to: number } | undefined): void;
  destroy(): void;
}

const LINT_DELAY_MS = 400;
const PARSE_MS = 200;

const setFault = StateEffect.define<Diagnostic | undefined>();
const fault = StateField.define<Diagnostic | undefined>({
  create: () => undefined,
  update: (value, change) => {
    for (const effect of change.effects) if (effect.is(setFault)) return effect.value;
    return change.docChanged ? undefined : value;
  },
});

const setPart = StateEffect.define<{ from: number; to: number } | undefined>();
const marked = Decoration.mark({ class: "cm-part" });
const part = StateField.define({
  create: () => Decoration.none,
  update: (value, change) => {
    for (const effect of change.effects) {
      if (!effect.is(setPart)) continue;
      const { from, to } = effect.value ?? { from: 0, to: 0 };
      return from < to && to <= change.newDoc.length ? Decoration.set([marked.range(from, to)]) : Decoration.none;
    }
    return change.docChanged ? Decoration.none : value;
  },
  provide: (field) => EditorView.decorations.from(field),
});

// Mistakes that the grammar finds while typing, and the last error of the server.
function diagnostics(view: EditorView): Diagnostic[] {
  const known = view.state.field(fault);
  if (known !== undefined) return [known];
  if (view.state.doc.toString().trim() === "") return [];
  // On a busy machine the tree may end early, and an unfinished tree looks like a mistake.
  if (!forceParsing(view, view.state.doc.length, PARSE_MS)) return [];
  const parser = new Parser(view.state);
  parser.analyze();
  const end = view.state.doc.length;
  return parser.getDiagnostics().map((found) => {
    const from = Math.min(found.from, end);
    // A mistake without a width is shown at the letter before it.
    return { ...found, from: found.from === found.to ? Math.max(0, from - 1) : from, to: Math.min(found.to, end) };
  });
}

function help(title: string, ...lines: string[]): HTMLElement {
  const root = document.createElement("div");
  root.className = "cm-help";
  const heading = document.createElement("code");
  heading.textContent = title;
  const texts = lines.filter(Boolean).map((line) => {
    const text = document.createElement("p");
    text.textContent = line;
    return text;
  });
  root.append(heading, ...texts);
  return root;
}

// Help of the function or metric under the pointer.
function hover(names: Names) {
  return hoverTooltip(async (view, pos): Promise<Tooltip | null> => {
    const line = view.state.doc.lineAt(pos);
    const isWord = (at: number) => /[\w:]/.test(line.text[at - line.from] ?? "");
    let [from, to] = [pos, pos];
    while (from > line.from && isWord(from - 1)) from -= 1;
    while (to < line.to && isWord(to)) to += 1;
    const word = view.state.sliceDoc(from, to);
    if (word === "") return null;
    const known = /^\s*[({]?/.exec(view.state.sliceDoc(to, to + 40)) && functionHelp(word);
    if (known) return tooltip(from, to, help(known.signature, known.help));
    const metric = helpOf(await names.metadata(), word);
    if (metric === undefined) return null;
    return tooltip(from, to, help(word, [metric.type, metric.unit].filter(Boolean).join(", "), metric.help));
  });
}

const tooltip = (pos: number, end: number, dom: HTMLElement): Tooltip => ({ pos, end, above: true, create: () => ({ dom }) });

function enter(view: EditorView, run: () => void): boolean {
  const index = accepted(view.state);
  if (index !== undefined) {
    view.dispatch({ effects: setSelectedCompletion(index) });
    return acceptCompletion(view);
  }
  closeCompletion(view);
  run();
  return true;
}

function tab(view: EditorView): boolean {
  if (completionStatus(view.state) !== "active") return false;
  const index = accepted(view.state) ?? 0;
  view.dispatch({ effects: setSelectedCompletion(index) });
  return acceptCompletion(view);
}

function keys({ onrun, onescape }: EditorOptions) {
  const run = (view: EditorView) => {
    closeCompletion(view);
    onrun();
    return true;
  };
  return [
    Prec.highest(
      keymap.of([
        { key: "Mod-Enter", run },
        { key: "Shift-Enter", run: insertNewlineAndIndent },
        { key: "Enter", run: (view) => enter(view, onrun) },
        { key: "Tab", run: tab },
        { key: "Escape", run: (view) => closeCompletion(view) || onescape() },
        ...completionKeymap.filter(({ key }) => key !== "Enter" && key !== "Escape"),
      ]),
    ),
    keymap.of([...closeBracketsKeymap, ...historyKeymap, ...defaultKeymap]),
  ];
}

function extensions(options: EditorOptions) {
  return [
    promQLLanguage(LanguageType.PromQL),
    syntaxHighlighting(highlight),
    theme,
    fault,
    part,
    linter(diagnostics, { delay: LINT_DELAY_MS, needsRefresh: (update) => hasFault(update.transactions) }),
    hover(options.names),
    autocompletion({
      override: sources(options.names),
      defaultKeymap: false,
      selectOnOpen: false,
      interactionDelay: 0,
      icons: false,
      maxRenderedOptions: 100,
      aboveCursor: false,
    }),
    history(),
    bracketMatching(),
    closeBrackets(),
    replaceSelected,
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ "aria-label": options.label, autocapitalize: "off", spellcheck: "false" }),
    placeholder(options.hint),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) options.onchange(update.state.doc.toString());
    }),
    keys(options),
  ];
}

// Typing over selected text. Left to itself, the browser keeps the colour of the old text in a style
// attribute, which the content policy refuses.
const replaceSelected = EditorView.domEventHandlers({
  beforeinput: (event, view) => {
    const { state } = view;
    if (event.inputType !== "insertText" || event.data === null || state.selection.main.empty) return false;
    event.preventDefault();
    const bracket = insertBracket(state, event.data);
    view.dispatch(bracket ?? state.update(state.replaceSelection(event.data), { userEvent: "input.type" }));
    return true;
  },
});

const hasFault = (transactions: readonly { effects: readonly StateEffect<unknown>[] }[]) =>
  transactions.some(({ effects }) => effects.some((effect) => effect.is(setFault)));

// Puts an editor into a shadow root of `host`.
export function mountEditor(host: HTMLElement, options: EditorOptions): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const state = EditorState.create({ doc: options.text, extensions: extensions(options) });
  const view = new EditorView({ state, parent: root, root });
  return {
    focus: () => {
      view.focus();
    },
    text: () => view.state.doc.toString(),
    replace: (text) => {
      if (text === view.state.doc.toString()) return;
      view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: text },
        selection: { anchor: text.length },
        annotations: isolateHistory.of("full"),
      });
      closeCompletion(view);
    },
    mark: (message) => {
      const found = message === undefined ? undefined : faultOf(view.state.doc.toString(), message);
      view.dispatch({ effects: setFault.of(found) });
      forceLinting(view);
    },
    point: (found) => {
      view.dispatch({ effects: setPart.of(found) });
    },
    destroy: () => {
      view.destroy();
    },
  };
}

function faultOf(text: string, message: string): Diagnostic | undefined {
  const place = placeOf(message);
  if (place === undefined || text === "") return undefined;
  return { ...rangeAt(text, offsetOf(text, place)), severity: "error", message };
}
