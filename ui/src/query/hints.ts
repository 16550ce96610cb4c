// Mistakes that give a valid but unintended answer. Each hint is certain from the expression
// alone, and each has a change of the expression that avoids it.

import { listOf, isText, Stored } from "../state/stored";

export interface Hint {
  // Identifier under which the reader switches the hint off.
  id: string;
  text: string;
  why: string;
  // The expression without the mistake, and its name.
  expr: string;
  action: string;
}

const WINDOW = "5m";
const BUCKETS = /histogram_quantile\s*\(/;
// Buckets that no function of counters takes: the selector is alone or below an aggregation.
const PLAIN_BUCKETS = /([a-zA-Z_:][\w:]*_bucket(?:\s*\{[^}]*\})?)(?!\s*[[{\w])/;
const GROUPING = /\bby\s*\(([^)]*)\)/;
const COUNTER = /^[a-zA-Z_:][\w:]*_total(?:\s*\{[^}]*\})?$/;

export function hints(expr: string): Hint[] {
  return [quantileOfCounters(expr), quantileWithoutBounds(expr), growingCounter(expr)].filter((hint) => hint !== undefined);
}

function quantileOfCounters(expr: string): Hint | undefined {
  const found = BUCKETS.test(expr) ? PLAIN_BUCKETS.exec(expr) : null;
  if (found?.[1] === undefined) return undefined;
  return {
    id: "quantile-of-counters",
    text: "This quantile is over all observations since each process started.",
    why: "Buckets are counters: they hold every observation since the start, so recent changes hardly move the quantile. The rate of the buckets counts the observations of a window alone. Restarts are taken into account too.",
    expr: expr.replace(found[1], () => `rate(${found[1] ?? ""}[${WINDOW}])`),
    action: `Use rate(…[${WINDOW}])`,
  };
}

function quantileWithoutBounds(expr: string): Hint | undefined {
  if (!BUCKETS.test(expr) || !/_bucket\b/.test(expr)) return undefined;
  const found = GROUPING.exec(expr);
  const labels = found?.[1]?.split(",").map((label) => label.trim()).filter(Boolean);
  if (found === null || labels === undefined || labels.includes("le")) return undefined;
  return {
    id: "quantile-without-le",
    text: "The aggregation drops the label le, which holds the bounds of the buckets.",
    why: "histogram_quantile reads the bound of each bucket from the label le. An aggregation that does not keep le adds all buckets together, and no quantile can be computed from the sum.",
    expr: expr.replace(found[0], `by (${["le", ...labels].join(", ")})`),
    action: "Keep le",
  };
}

function growingCounter(expr: string): Hint | undefined {
  const trimmed = expr.trim();
  if (!COUNTER.test(trimmed)) return undefined;
  return {
    id: "growing-counter",
    text: "A counter only grows, and starts at zero with its process.",
    why: "The height of a counter depends on how long its process has run. Its rate is its growth per second, and takes restarts into account. Its increase is its growth in a window.",
    expr: `rate(${trimmed}[${WINDOW}])`,
    action: "Show per second",
  };
}

const off = new Stored<string[]>("firn.hints.off", 1, listOf(isText), []);

export const hintsOff = (): readonly string[] => off.read();
export const switchOff = (id: string) => {
  off.write([...hintsOff().filter((one) => one !== id), id]);
};
