// Names and values of the server for completion, kept for half a minute. A request that fails means no
// suggestions; the error of the query itself names the cause.

import { get } from "../api/client";
import { time } from "../state/time.svelte";
import type { MetricHelp, Names } from "./editor/completion";
import { readHistory } from "./history";

export type { MetricHelp } from "./editor/completion";

const KEPT_MS = 30_000;
const METRICS_MAX = 20_000;
const VALUES_MAX = 1000;

interface Features {
  promql?: Record<string, boolean>;
  promql_functions?: Record<string, boolean>;
  promql_operators?: Record<string, boolean>;
}

const cache = new Map<string, { since: number; answer: Promise<unknown> }>();

function cached<T>(key: string, load: () => Promise<T>): Promise<T> {
  const known = cache.get(key);
  if (known !== undefined && performance.now() - known.since < KEPT_MS) return known.answer as Promise<T>;
  const answer = load();
  cache.set(key, { since: performance.now(), answer });
  return answer;
}

async function list(path: string, params: Record<string, string | number | undefined>): Promise<readonly string[]> {
  const outcome = await get<string[]>(path, params);
  return outcome.ok ? outcome.data : [];
}

// The shown range, widened to whole minutes so that answers can be kept.
function window(): { start: number; end: number } {
  const end = Math.ceil((time.end ?? Date.now()) / 60_000) * 60;
  return { start: end - Math.ceil(time.range / 60) * 60, end };
}

const escapedRegex = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// A match with one matcher more.
function withMatcher(match: string | undefined, matcher: string): string {
  if (match === undefined) return `{${matcher}}`;
  return match.endsWith("}") ? match.replace(/,?\s*\}$/, `,${matcher}}`) : `${match}{${matcher}}`;
}

// Metric names of the shown range. Beyond METRICS_MAX the server searches for the word.
export async function metricNames(word = ""): Promise<readonly string[]> {
  const { start, end } = window();
  const all = await cached(`metrics ${start} ${end}`, () =>
    list("label/__name__/values", { start, end, limit: METRICS_MAX }),
  );
  if (all.length < METRICS_MAX || word === "") return all;
  const match = `{__name__=~".*${escapedRegex(word)}.*"}`;
  return cached(`metrics ${match}`, () => list("label/__name__/values", { "match[]": match, limit: VALUES_MAX }));
}

export async function labelValues(label: string, match: string | undefined, word = ""): Promise<readonly string[]> {
  const { start, end } = window();
  const path = `label/${encodeURIComponent(label)}/values`;
  const all = await cached(`${path} ${match ?? ""} ${start}`, () =>
    list(path, { "match[]": match, start, end, limit: VALUES_MAX }),
  );
  if (all.length < VALUES_MAX || word === "" || !/^[a-zA-Z_]\w*$/.test(label)) return all;
  const narrowed = withMatcher(match, `${label}=~${JSON.stringify(`.*${escapedRegex(word)}.*`)}`);
  return cached(`${path} ${narrowed}`, () => list(path, { "match[]": narrowed, start, end, limit: VALUES_MAX }));
}

async function loadMetadata(): Promise<ReadonlyMap<string, MetricHelp>> {
  const outcome = await get<Record<string, MetricHelp[]>>("metadata", { limit_per_metric: 1 });
  if (!outcome.ok) return new Map();
  return new Map(Object.entries(outcome.data).flatMap(([name, [first]]) => (first ? [[name, first] as const] : [])));
}

export const metadata = () => cached("metadata", loadMetadata);

// Metadata of a metric, also for the series of a histogram or summary.
export function helpOf(metadata: ReadonlyMap<string, MetricHelp>, name: string): MetricHelp | undefined {
  return metadata.get(name) ?? metadata.get(name.replace(/_(?:bucket|count|sum|total)$/, ""));
}

const refused = new Set<string>();

// Reads the parts of the language that this server has switched off.
export async function loadFeatures(): Promise<void> {
  const outcome = await get<Features>("features");
  if (!outcome.ok) return;
  const { promql, promql_functions, promql_operators } = outcome.data;
  for (const group of [promql, promql_functions, promql_operators]) {
    for (const [name, isOn] of Object.entries(group ?? {})) if (!isOn) refused.add(name);
  }
}

export const names: Names = {
  metrics: metricNames,
  metadata,
  labels: (match) => {
    const { start, end } = window();
    return cached(`labels ${match ?? ""} ${start}`, () => list("labels", { "match[]": match, start, end, limit: VALUES_MAX }));
  },
  values: labelValues,
  isRefused: (name) => refused.has(name),
  history: readHistory,
};
