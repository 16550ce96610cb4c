// Completion of PromQL. Prometheus's grammar gives the kinds of terms at the cursor; names and values
// come from the server; ranking and help are the page's own. At most SHOWN_MAX entries are given to
// the editor, so that a key stays quick with tens of thousands of metrics.

import { snippetCompletion, type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { ensureSyntaxTree, syntaxTree } from "@codemirror/language";
import type { EditorState } from "@codemirror/state";
import {
  analyzeCompletion,
  computeEndCompletePosition,
  computeStartCompletePosition,
  ContextKind,
  type Context,
} from "@prometheus-io/codemirror-promql/dist/esm/complete/hybrid";
import {
  aggregateOpModifierTerms,
  atModifierTerms,
  binOpModifierTerms,
  binOpTerms,
  durationTerms,
  matchOpTerms,
} from "@prometheus-io/codemirror-promql/dist/esm/complete/promql.terms";
import { labelMatchersToString } from "@prometheus-io/codemirror-promql/dist/esm/parser/matcher";
import { AGGREGATIONS, DURATIONS, FUNCTIONS, type FunctionHelp } from "../functions";
import { helpOf } from "../names";
import { best } from "../rank";

export interface MetricHelp {
  type: string;
  unit: string;
  help: string;
}

// Data of the server for completion. A failed request gives no suggestions.
export interface Names {
  metrics(word: string): Promise<readonly string[]>;
  metadata(): Promise<ReadonlyMap<string, MetricHelp>>;
  labels(match: string | undefined): Promise<readonly string[]>;
  // Values of a label; `word` narrows them on the server when there are too many.
  values(label: string, match: string | undefined, word: string): Promise<readonly string[]>;
  // Whether the server refuses a function, an aggregation or a keyword.
  isRefused(name: string): boolean;
  history(): readonly string[];
}

const SHOWN_MAX = 100;
const HISTORY_SHOWN = 5;
// An expression is parsed in well under this; a busy machine may have left it unfinished.
const PARSE_MS = 200;

function callOption(name: string, { signature, help }: FunctionHelp, boost: number): Completion {
  const isEmpty = signature.endsWith("()");
  // The list itself shows the help: nothing is chosen when it opens, so CodeMirror shows no help beside it.
  const detail = `${signature.slice(name.length)} – ${help}`;
  const option = { label: name, detail, info: help, type: "function", boost };
  return snippetCompletion(isEmpty ? `${name}()` : `${name}(\${})`, option);
}

// A call that already has its parenthesis is completed by its name alone.
function calls(state: EditorState, to: number, names: Names, table: ReadonlyMap<string, FunctionHelp>) {
  const isCalled = /^\s*\(/.test(state.sliceDoc(to, to + 20));
  return [...table]
    .filter(([name]) => !names.isRefused(name))
    .map(([name, help]) => {
      const option = callOption(name, help, 0);
      return isCalled ? { ...option, apply: name } : option;
    });
}

const keywords = (terms: readonly { label: string; info?: string }[], names: Names): Completion[] =>
  terms
    .filter(({ label }) => !names.isRefused(label))
    .map(({ label, info }) => ({ label, type: "keyword", ...(info ? { info } : {}) }));

async function metricOptions(names: Names, word: string): Promise<Completion[]> {
  const [found, metadata] = await Promise.all([names.metrics(word), names.metadata()]);
  return best(found, (name) => name, word, SHOWN_MAX).map((label) => {
    const known = helpOf(metadata, label);
    const kind = [known?.type, known?.unit].filter(Boolean).join(", ") || "metric";
    const detail = known?.help ? `${kind} – ${known.help}` : kind;
    const isPlain = /^[a-zA-Z_:][\w:]*$/.test(label);
    return {
      label,
      type: "metric",
      detail,
      ...(isPlain ? {} : { apply: `{${JSON.stringify(label)}}` }),
      ...(known?.help ? { info: known.help } : {}),
    };
  });
}

const match = ({ metricName, matchers, labelName }: Context): string | undefined => {
  const text = labelMatchersToString(metricName ?? "", matchers, labelName);
  return text === "" || text === "{}" ? undefined : text;
};

// Text of a label value inside quotes.
const escaped = (value: string) => JSON.stringify(value).slice(1, -1);

async function optionsOf(context: Context, state: EditorState, to: number, word: string, names: Names) {
  switch (context.kind) {
    case ContextKind.MetricName:
      return metricOptions(names, word);
    case ContextKind.Function:
      return calls(state, to, names, FUNCTIONS);
    case ContextKind.Aggregation:
      return calls(state, to, names, AGGREGATIONS);
    case ContextKind.LabelName: {
      const found = await names.labels(match(context));
      return found.filter((label) => label !== "__name__").map((label) => ({ label, type: "label" }));
    }
    case ContextKind.LabelValue: {
      if (context.labelName === undefined) return [];
      const found = await names.values(context.labelName, match(context), word);
      return found.map((label) => ({ label, type: "value", apply: escaped(label) }));
    }
    case ContextKind.BinOpModifier:
      return keywords(binOpModifierTerms, names);
    case ContextKind.BinOp:
      // Signs are quicker to type than to choose.
      return keywords(binOpTerms.filter(({ label }) => /\w/.test(label)), names);
    case ContextKind.MatchOp:
      return keywords(matchOpTerms, names);
    case ContextKind.AggregateOpModifier:
      return keywords(aggregateOpModifierTerms, names);
    case ContextKind.Duration:
      return keywords(durationTerms, names);
    case ContextKind.Offset:
      return keywords([{ label: "offset" }], names);
    case ContextKind.Bool:
      return keywords([{ label: "bool" }], names);
    case ContextKind.AtModifiers:
      return keywords(atModifierTerms, names);
    default:
      return [];
  }
}

// Options for a range that has just been opened: `[`, or `[` and the beginning of a number.
function durations({ state, pos }: CompletionContext): CompletionResult | undefined {
  const open = /\[(\d*)$/.exec(state.sliceDoc(Math.max(0, pos - 20), pos));
  if (open === null) return undefined;
  const typed = open[1] ?? "";
  const options = DURATIONS.filter(([label]) => label.startsWith(typed)).map(([label, info], i) => ({
    label,
    detail: info,
    type: "duration",
    boost: -i,
  }));
  return options.length === 0 ? undefined : { from: pos - typed.length, options };
}

// Queries of the past that begin with all that was typed.
function fromHistory({ state }: CompletionContext, names: Names): CompletionResult | null {
  const text = state.doc.toString();
  const trimmed = text.trim();
  if (trimmed.length < 2) return null;
  const options = names
    .history()
    .filter((expr) => expr !== trimmed && expr.startsWith(trimmed) && !expr.includes("\n"))
    .slice(0, HISTORY_SHOWN)
    .map((label) => ({ label, type: "history", detail: "run before", boost: -90 }));
  return options.length === 0 ? null : { from: 0, to: text.length, options, filter: false };
}

// The part of a label that was typed, which the list shows in bold.
function matchOf(label: string, word: string): readonly number[] {
  const at = word === "" ? -1 : label.toLowerCase().indexOf(word.toLowerCase());
  return at < 0 ? [] : [at, at + word.length];
}

// The completion sources of the editor.
export function sources(names: Names) {
  const language = async (context: CompletionContext): Promise<CompletionResult | null> => {
    const opened = durations(context);
    if (opened) return opened;
    const { state, pos } = context;
    const node = (ensureSyntaxTree(state, pos, PARSE_MS) ?? syntaxTree(state)).resolve(pos, -1);
    const kinds = analyzeCompletion(state, node, pos);
    const from = Math.min(pos, computeStartCompletePosition(state, node, pos));
    const to = Math.max(pos, computeEndCompletePosition(state, node, pos));
    const word = state.sliceDoc(from, pos);
    // An empty word would list all metrics after each space.
    const isOpen = kinds.some(({ kind }) => kind === ContextKind.LabelName || kind === ContextKind.LabelValue);
    if (word.trim() === "" && !isOpen && !context.explicit) return null;
    const all = await Promise.all(kinds.map((kind) => optionsOf(kind, state, to, word, names)));
    const options = best(all.flat(), ({ label }) => label, word.trim(), SHOWN_MAX);
    return options.length === 0 ? null : { from, to, options, filter: false, getMatch: ({ label }) => matchOf(label, word) };
  };
  return [language, (context: CompletionContext) => fromHistory(context, names)];
}
