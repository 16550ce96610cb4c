// The selectors of an expression, by Prometheus's grammar.

import {
  LabelMatchers,
  MatrixSelector,
  OffsetExpr,
  parser,
  StringLiteral,
  SubqueryExpr,
  UnquotedLabelMatcher,
  VectorSelector,
  QuotedLabelMatcher,
} from "@prometheus-io/lezer-promql";
import type { SyntaxNode } from "@lezer/common";

export interface Matcher {
  label: string;
  // "=", "!=", "=~" or "!~".
  operator: string;
  value: string;
}

export interface Selector {
  // As written, without range and offset.
  text: string;
  from: number;
  to: number;
  metric: string;
  matchers: Matcher[];
}

// Selectors of `expr` from left to right, also of an expression with mistakes.
export function selectorsOf(expr: string): Selector[] {
  const found: Selector[] = [];
  parser.parse(expr).iterate({
    enter: ({ node }) => {
      if (node.type.id !== VectorSelector) return true;
      found.push(readSelector(expr, node));
      return false;
    },
  });
  return found.filter(({ text }) => text !== "");
}

function readSelector(expr: string, node: SyntaxNode): Selector {
  const text = expr.slice(node.from, node.to);
  const name = /^[a-zA-Z_:][\w:]*/.exec(text)?.[0] ?? "";
  const matchers: Matcher[] = [];
  let metric = name;
  for (const list of node.getChildren(LabelMatchers)) {
    for (let child = list.firstChild; child !== null; child = child.nextSibling) {
      const isMatcher = child.type.id === UnquotedLabelMatcher || child.type.id === QuotedLabelMatcher;
      if (isMatcher) matchers.push(readMatcher(expr.slice(child.from, child.to)));
      // A string alone is the name of the metric.
      else if (child.name === "QuotedLabelName") metric = unquote(expr.slice(child.from, child.to));
    }
  }
  const named = matchers.find(({ label, operator }) => label === "__name__" && operator === "=");
  return { text, from: node.from, to: node.to, metric: metric || (named?.value ?? ""), matchers };
}

function readMatcher(text: string): Matcher {
  const [, label = "", operator = "=", value = ""] = /^\s*("[^"]*"|[\w:]+)\s*(=~|!~|!=|=)\s*([^]*)$/.exec(text) ?? [];
  return { label: unquote(label), operator, value: unquote(value.trim()) };
}

function unquote(text: string): string {
  const quote = text[0];
  if (quote === "`") return text.slice(1, -1);
  if (quote !== '"' && quote !== "'") return text;
  const inner = text.slice(1, -1);
  try {
    return JSON.parse(`"${quote === "'" ? inner.replaceAll('"', '\\"').replaceAll("\\'", "'") : inner}"`) as string;
  } catch {
    return inner;
  }
}

// Whether the grammar finds a mistake in `expr`.
export function hasMistake(expr: string): boolean {
  let found = false;
  parser.parse(expr).iterate({ enter: ({ type }) => { found ||= type.isError; } });
  return found;
}

// Whether `expr` is a selector of its own: its samples can be shown as they are stored.
export function isPlainSelector(expr: string): boolean {
  const [only, ...others] = selectorsOf(expr);
  return only !== undefined && others.length === 0 && only.text === expr.trim();
}

// The selector with a range in which `expr` can be shown raw, or undefined if it has none.
export function rawExpression(expr: string, seconds: number): { expr: string; selector: string } | undefined {
  const [selector] = selectorsOf(expr);
  if (selector === undefined) return undefined;
  return { expr: `${selector.text}[${Math.max(1, Math.ceil(seconds))}s]`, selector: selector.text };
}

// Whether an expression has a range of its own, so that only a table can show it.
export function isRange(expr: string): boolean {
  const trimmed = expr.trim();
  let top = parser.parse(trimmed).topNode.firstChild;
  while (top !== null && (top.type.id === OffsetExpr || top.name === "StepInvariantExpr" || top.name === "ParenExpr")) {
    top = top.firstChild;
  }
  return top !== null && (top.type.id === MatrixSelector || top.type.id === SubqueryExpr);
}

// Whether an expression is a string literal, which only an instant query can show.
export const isString = (expr: string) => parser.parse(expr.trim()).topNode.firstChild?.type.id === StringLiteral;
