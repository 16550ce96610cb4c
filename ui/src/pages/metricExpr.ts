// The expression that shows a metric, by its type.

import type { MetricHelp } from "../query/names";
import { withEqual } from "./matchers";

const WINDOW = "5m";

export type MetricKind = "counter" | "gauge" | "histogram" | "summary" | "unknown";
export const KINDS: readonly MetricKind[] = ["counter", "gauge", "histogram", "summary", "unknown"];

// The kind of a metric by its metadata, or by its name where there is none.
export function kindOf(name: string, help: MetricHelp | undefined): MetricKind {
  const type = help?.type;
  if (type === "gaugehistogram") return "histogram";
  if (type === "info" || type === "stateset") return "gauge";
  if (type !== undefined && (KINDS as readonly string[]).includes(type) && type !== "unknown") return type as MetricKind;
  if (name.endsWith("_bucket")) return "histogram";
  return name.endsWith("_total") ? "counter" : "unknown";
}

// Whether the values only grow, so that their rate is shown.
function isCumulative(name: string, kind: MetricKind): boolean {
  return kind === "counter" || kind === "histogram" || (kind === "summary" && /_(?:count|sum)$/.test(name));
}

const isBuckets = (name: string, kind: MetricKind) => kind === "histogram" && name.endsWith("_bucket");

// For the query page: one line for each series, or a heat map.
export function graphExpr(name: string, kind: MetricKind, match: string): string {
  const selector = withEqual(match, "__name__", name);
  if (isBuckets(name, kind)) return `sum by (le) (rate(${selector}[${WINDOW}]))`;
  return isCumulative(name, kind) ? `rate(${selector}[${WINDOW}])` : selector;
}

// For a small picture: few lines, however many series the metric has. Rates are sums; other values their mean.
export function smallExpr(name: string, kind: MetricKind, match: string): string {
  const selector = withEqual(match, "__name__", name);
  if (isBuckets(name, kind)) return `sum(rate(${withEqual(selector, "le", "+Inf")}[${WINDOW}]))`;
  return isCumulative(name, kind) ? `sum(rate(${selector}[${WINDOW}]))` : `avg(${selector})`;
}
