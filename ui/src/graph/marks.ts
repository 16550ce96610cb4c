// What a graph has beside its lines: times at which alerts fired, and exemplars.

import type { Labels, Series } from "../api/types";
import { runsOf } from "../parts/runs";

export interface Firing {
  name: string;
  // In seconds; the end is exclusive.
  start: number;
  end: number;
}

export interface Exemplar {
  // In seconds.
  time: number;
  value: number;
  series: Labels;
  labels: Labels;
}

export interface Marks {
  firings: readonly Firing[];
  exemplars: readonly Exemplar[];
}

export const NO_MARKS: Marks = { firings: [], exemplars: [] };

// The answer of `/api/v1/query_exemplars`.
export type ExemplarsAnswer = {
  seriesLabels: Labels;
  exemplars: { labels: Labels; value: string; timestamp: number }[];
}[];

// Times at which alerts fired, by name and then by time.
export function firingsOf(series: readonly Series[], step: number): Firing[] {
  const found = series.flatMap(({ metric, times, values }) =>
    runsOf(times, values, step, () => "bad").map(({ start, end }) => ({ name: metric.alertname ?? "", start, end })),
  );
  return found.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.start - b.start));
}

// The exemplars of an answer, the newest first.
export function exemplarsOf(answer: ExemplarsAnswer): Exemplar[] {
  const found = answer.flatMap(({ seriesLabels, exemplars }) =>
    exemplars.map(({ labels, value, timestamp }) => ({ time: timestamp, value: Number(value), series: seriesLabels, labels })),
  );
  return found.filter(({ value }) => Number.isFinite(value)).sort((a, b) => b.time - a.time);
}

// Ranges without overlaps that cover the same times.
export function union(ranges: readonly { start: number; end: number }[]): { start: number; end: number }[] {
  const found: { start: number; end: number }[] = [];
  for (const { start, end } of [...ranges].sort((a, b) => a.start - b.start)) {
    const last = found.at(-1);
    if (last !== undefined && start <= last.end) last.end = Math.max(last.end, end);
    else found.push({ start, end });
  }
  return found;
}

// The address of the trace of an exemplar: `{name}` in the template is replaced by the value of a label. Undefined if
// the labels lack a name of the template, or the address is none of the web.
export function traceLink(template: string, labels: Labels): string | undefined {
  let isWhole = true;
  const link = template.trim().replaceAll(/\{([^{}]*)\}/g, (_, name: string) => {
    const value = labels[name];
    isWhole &&= value !== undefined;
    return encodeURIComponent(value ?? "");
  });
  return isWhole && link !== template.trim() && /^https?:\/\/\S+$/i.test(link) ? link : undefined;
}
