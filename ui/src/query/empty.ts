// Why an answer is empty: the metric ended, no series has such a label value, or there is no such metric.

import { get, post } from "../api/client";
import type { QueryData } from "../api/types";
import { formatDuration, parseDuration } from "../format/duration";
import { quote } from "../format/labels";
import { metricNames } from "./names";
import { nearest } from "./rank";
import { usualDistance } from "./raw";
import { selectorsOf, type Matcher, type Selector } from "./selectors";

export interface Suggestion {
  text: string;
  expr: string;
}

export type Reason =
  // The newest sample before the range, in milliseconds.
  | { kind: "ended"; selector: string; newest: number }
  | { kind: "unknown-metric"; metric: string; suggestions: Suggestion[] }
  | { kind: "unknown-value"; matcher: Matcher; suggestions: Suggestion[] }
  | { kind: "unknown-label"; matcher: Matcher; metric: string }
  // A range that is too short to hold two samples; `interval` is their distance in seconds.
  | { kind: "short-range"; selector: string; range: string; interval: number; suggestions: Suggestion[] }
  // Every selector has samples: the expression itself leaves nothing.
  | { kind: "filtered" };

const HOUR = 3600;
// Windows of the search for the newest sample. They grow, so that the usual case is quick.
const WINDOWS = [HOUR, 6 * HOUR, 24 * HOUR, 7 * 24 * HOUR, 30 * 24 * HOUR];
const NEAREST = 3;

// `start` and `end` are seconds.
export async function explainEmpty(expr: string, start: number, end: number, signal: AbortSignal): Promise<Reason> {
  for (const selector of selectorsOf(expr)) {
    if (await exists(selector.text, start, end, signal)) continue;
    const newest = await newestSample(selector.text, end, signal);
    if (newest !== undefined) return { kind: "ended", selector: selector.text, newest };
    return explainUnknown(expr, selector, signal);
  }
  return (await explainRange(expr, end, signal)) ?? { kind: "filtered" };
}

// Functions of counters and gauges need two samples in their range; four scrapes leave room for a lost one.
const LEAST_SAMPLES = 2;
const GOOD_SCRAPES = 4;

async function explainRange(expr: string, end: number, signal: AbortSignal): Promise<Reason | undefined> {
  for (const { text, to } of selectorsOf(expr)) {
    const range = /^\s*\[([^\]:]+)\]/.exec(expr.slice(to))?.[1]?.trim();
    const seconds = range === undefined ? undefined : parseDuration(range);
    if (range === undefined || seconds === undefined) continue;
    const interval = await intervalOf(text, end, signal);
    if (interval === undefined || seconds >= interval * LEAST_SAMPLES) continue;
    const better = formatDuration(Math.ceil(interval * GOOD_SCRAPES));
    const suggestion = { text: `[${better}]`, expr: expr.slice(0, to) + expr.slice(to).replace(range, better) };
    return { kind: "short-range", selector: text, range, interval, suggestions: [suggestion] };
  }
  return undefined;
}

// The distance of the samples of a selector, from a few of its series.
async function intervalOf(match: string, end: number, signal: AbortSignal): Promise<number | undefined> {
  const outcome = await post<QueryData>("query", { query: `${match}[${HOUR}s]`, time: end, limit: 3 }, { signal });
  if (!outcome.ok || outcome.data.resultType !== "matrix") return undefined;
  const distances = outcome.data.result.flatMap(({ times }) => usualDistance(times) ?? []);
  return distances.length === 0 ? undefined : Math.min(...distances);
}

async function exists(match: string, start: number, end: number, signal: AbortSignal): Promise<boolean> {
  const outcome = await get<unknown[]>("series", { "match[]": match, start, end, limit: 1 }, { signal });
  // Without an answer the selector counts as one with samples.
  return !outcome.ok || outcome.data.length > 0;
}

async function newestSample(match: string, end: number, signal: AbortSignal): Promise<number | undefined> {
  for (const window of WINDOWS) {
    if (!(await exists(match, end - window, end, signal))) continue;
    const query = `${match}[${window}s]`;
    const outcome = await post<QueryData>("query", { query, time: end, limit: 50 }, { signal });
    if (!outcome.ok || outcome.data.resultType !== "matrix") return undefined;
    const times = outcome.data.result.map(({ times: own, histograms }) =>
      Math.max(own.at(-1) ?? 0, histograms.at(-1)?.[0] ?? 0),
    );
    const newest = Math.max(0, ...times);
    if (newest > 0) return Math.round(newest * 1000);
  }
  return undefined;
}

async function explainUnknown(expr: string, selector: Selector, signal: AbortSignal): Promise<Reason> {
  const { metric, matchers } = selector;
  const names = await metricNames(metric);
  if (metric !== "" && !names.includes(metric)) {
    const suggestions = nearest(names, metric, NEAREST).map((name) => ({ text: name, expr: replaced(expr, selector, metric, name) }));
    return { kind: "unknown-metric", metric, suggestions };
  }
  for (const matcher of matchers) {
    const reason = await explainMatcher(expr, selector, matcher, signal);
    if (reason !== undefined) return reason;
  }
  return { kind: "filtered" };
}

async function explainMatcher(
  expr: string,
  selector: Selector,
  matcher: Matcher,
  signal: AbortSignal,
): Promise<Reason | undefined> {
  const { label, operator, value } = matcher;
  if (label === "__name__" || (operator !== "=" && operator !== "=~") || value === "") return undefined;
  const match = selector.metric === "" ? undefined : `{__name__=${quote(selector.metric)}}`;
  const path = `label/${encodeURIComponent(label)}/values`;
  const outcome = await get<string[]>(path, { "match[]": match, limit: 10_000 }, { signal });
  if (!outcome.ok) return undefined;
  if (outcome.data.length === 0) return { kind: "unknown-label", matcher, metric: selector.metric };
  const isKnown = operator === "=" ? outcome.data.includes(value) : outcome.data.some((one) => fits(value, one));
  if (isKnown) return undefined;
  const near = nearest(outcome.data, value, NEAREST);
  const offered = near.length > 0 ? near : outcome.data.slice(0, NEAREST);
  const suggestions = offered.map((one) => ({ text: one, expr: replaced(expr, selector, quote(value), quote(one)) }));
  return { kind: "unknown-value", matcher, suggestions };
}

function fits(pattern: string, value: string): boolean {
  try {
    return new RegExp(`^(?:${pattern})$`).test(value);
  } catch {
    // RE2 has forms that the browser lacks: they count as matches.
    return true;
  }
}

// The expression with a part of one selector replaced.
function replaced(expr: string, { from, to }: Selector, old: string, by: string): string {
  const selector = expr.slice(from, to).replace(old, () => by);
  return expr.slice(0, from) + selector + expr.slice(to);
}
