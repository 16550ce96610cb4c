// Hints of the server with the change of the expression that avoids them, where there is only one such change.

import { FUNCTION_OF_GAUGES, hintKind, RATE_WINDOW, type Hint } from "../hints";
import { selectorsOf, type Selector } from "../selectors";
import type { Operation, Part, ServerHint } from "./plan";

interface Fix {
  expr: string;
  action: string;
}

// The hints of all operations, those of the same change once.
export function hintsOf(operations: readonly Operation[], expr: string): Hint[] {
  const found = new Map<string, Hint>();
  for (const operation of operations) {
    for (const hint of operation.node.hints) found.set(`${operation.path} ${hint.text}`, complete(hint, operation, expr));
  }
  return [...found.values()];
}

function complete({ kind, text }: ServerHint, operation: Operation, expr: string): Hint {
  const known = { ...hintKind(kind), text: sentence(text) };
  const fix = operation.part && FIXES[kind]?.(operation.part, operation, expr, text);
  if (fix) return { ...known, ...fix };
  if (kind !== "join_drops_series") return known;
  return { ...known, open: operation.node.children.map((child) => child.text), action: "Show both sides" };
}

const sentence = (text: string) => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;

const replaced = (expr: string, { from, to }: Part, by: string) => expr.slice(0, from) + by + expr.slice(to);

type Fixer = (part: Part, operation: Operation, expr: string, text: string) => Fix | undefined;

const FIXES: Record<string, Fixer> = {
  // The server names the shortest range that works.
  short_range: (part, _operation, expr, text) => {
    const range = /at least (\w+)/.exec(text)?.[1];
    const own = expr.slice(part.from, part.to);
    const [open, close] = [own.lastIndexOf("["), own.lastIndexOf("]")];
    if (range === undefined || open < 0 || close < open) return undefined;
    const better = `${own.slice(0, open)}[${range}]${own.slice(close + 1)}`;
    return { expr: replaced(expr, part, better), action: `Use [${range}]` };
  },
  counter_without_rate: (part, _operation, expr) => {
    const selector = selectorAt(expr, part);
    if (selector === undefined) return undefined;
    const rest = expr.slice(selector.to, part.to);
    const better = `rate(${selector.text}[${RATE_WINDOW}]${rest})`;
    return { expr: replaced(expr, part, better), action: `Use rate(…[${RATE_WINDOW}])` };
  },
  rate_of_gauge: (_part, { parent }, expr) => {
    const name = parent?.part && /^\w+/.exec(expr.slice(parent.part.from))?.[0];
    const better = FUNCTION_OF_GAUGES[name ?? ""];
    if (parent?.part === undefined || name === undefined || better === undefined) return undefined;
    const { from } = parent.part;
    return { expr: replaced(expr, { from, to: from + name.length }, better), action: `Use ${better}` };
  },
  // A selector needs another matcher that excludes something, so the last one stays.
  matches_everything: (part, _operation, expr, text) => {
    const selector = text.endsWith("; remove it") ? selectorAt(expr, part) : undefined;
    const useless = selector?.matchers.find(({ label, operator, value }) =>
      text.includes(`matcher ${label}${operator}${JSON.stringify(value)} matches`),
    );
    if (selector === undefined || useless === undefined) return undefined;
    const others = selector.matchers.filter((matcher) => matcher !== useless);
    const isLast = others.length === 0;
    if (isLast && selector.metric === "") return undefined;
    const action = "Remove the matcher";
    // `up{job=~".*"}` is `up`; a name in quotes needs its braces.
    if (isLast && selector.text.startsWith(selector.metric)) return { expr: replaced(expr, selector, selector.metric), action };
    const before = expr.slice(0, useless.from).replace(/\s*,?\s*$/, "");
    const after = expr.slice(useless.to).replace(/^\s*,?\s*/, "");
    const isJoined = before.endsWith("{") || after.startsWith("}");
    return { expr: before + (isJoined ? "" : ", ") + after, action };
  },
};

const selectorAt = (expr: string, { from, to }: Part): Selector | undefined =>
  selectorsOf(expr).find((selector) => selector.from >= from && selector.to <= to);
