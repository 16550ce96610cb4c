// Mistakes that give a valid but unintended answer. The hints of this file are certain from the expression
// alone, and each has a change of the expression that avoids it; other ones come from the server with an analysis.

import { HINT_KINDS } from "./hintKinds";

export interface Hint {
  // The kind, by which the reader switches the hint off.
  id: string;
  text: string;
  why: string;
  // Document of Firn that explains more.
  page: string;
  // The expression without the mistake, and its name.
  expr?: string;
  action?: string;
  // Expressions to look at instead, if no change is certain.
  open?: readonly string[];
}

export const RATE_WINDOW = "5m";
export const FUNCTION_OF_GAUGES: Record<string, string> = { rate: "deriv", increase: "delta", irate: "deriv" };

const BUCKETS = /histogram_quantile\s*\(/;
// Buckets that no function of counters takes: the selector is alone or below an aggregation.
const PLAIN_BUCKETS = /([a-zA-Z_:][\w:]*_bucket(?:\s*\{[^}]*\})?)(?!\s*[[{\w])/;
const GROUPING = /\bby\s*\(([^)]*)\)/;
const COUNTER = /^[a-zA-Z_:][\w:]*_total(?:\s*\{[^}]*\})?$/;

// A hint of a kind, without its place. Kinds of newer servers have no explanation.
export function hintKind(id: string): Hint {
  const { text, why, page } = HINT_KINDS[id] ?? { text: id, why: "", page: "" };
  return { id, text, why, page };
}

export function hints(expr: string): Hint[] {
  return [quantileOfCounters(expr), quantileWithoutBounds(expr), growingCounter(expr)].filter((hint) => hint !== undefined);
}

function quantileOfCounters(expr: string): Hint | undefined {
  const found = BUCKETS.test(expr) ? PLAIN_BUCKETS.exec(expr) : null;
  if (found?.[1] === undefined) return undefined;
  return {
    ...hintKind("quantile-of-counters"),
    expr: expr.replace(found[1], () => `rate(${found[1] ?? ""}[${RATE_WINDOW}])`),
    action: `Use rate(…[${RATE_WINDOW}])`,
  };
}

function quantileWithoutBounds(expr: string): Hint | undefined {
  if (!BUCKETS.test(expr) || !/_bucket\b/.test(expr)) return undefined;
  const found = GROUPING.exec(expr);
  const labels = found?.[1]?.split(",").map((label) => label.trim()).filter(Boolean);
  if (found === null || labels === undefined || labels.includes("le")) return undefined;
  return {
    ...hintKind("quantile-without-le"),
    expr: expr.replace(found[0], `by (${["le", ...labels].join(", ")})`),
    action: "Keep le",
  };
}

function growingCounter(expr: string): Hint | undefined {
  const trimmed = expr.trim();
  if (!COUNTER.test(trimmed)) return undefined;
  return {
    ...hintKind("counter_without_rate"),
    expr: `rate(${trimmed}[${RATE_WINDOW}])`,
    action: "Show per second",
  };
}
