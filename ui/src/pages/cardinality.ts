// Numbers of series and values by label. The endpoints answer as Mimir does: documents without an envelope,
// and errors as plain text.

import { post, type Outcome, type Params } from "../api/client";
import { plainFailure } from "../api/failure";
import { numberOf } from "../api/matrix";
import type { Sample } from "../api/types";
import type { CountOfName, LabelNamesAnswer, LabelValuesAnswer } from "./answers";

// Most entries of a list that the server returns.
export const ENTRIES_MAX = 500;

async function ask<T>(path: string, params: Params, signal: AbortSignal): Promise<Outcome<T>> {
  const outcome = await post<unknown>(`cardinality/${path}`, params, { signal });
  if (outcome.ok) return { ...outcome, data: outcome.document as T };
  return { ok: false, failure: plainFailure(outcome.failure) };
}

// Two time ranges, in seconds, whose series are compared.
export interface Ranges {
  start: number;
  end: number;
  baselineStart: number;
  baselineEnd: number;
}

export interface CountOptions {
  selector: string;
  // Series with a sample in the last 20 minutes rather than two hours.
  isActive?: boolean;
  limit?: number;
  ranges?: Ranges | undefined;
}

const [ACTIVE_SECONDS, RECENT_SECONDS] = [1200, 7200];

// The range up to `end`, and the one of the same length `distance` seconds before. They are at most `distance`
// long: a series of the earlier range alone would count as present otherwise.
export function rangesOf(end: number, distance: number, isActive: boolean): Ranges {
  const length = Math.min(distance, isActive ? ACTIVE_SECONDS : RECENT_SECONDS);
  return { start: end - length, end, baselineStart: end - distance - length, baselineEnd: end - distance };
}

const paramsOf = ({ selector, isActive = false, limit = ENTRIES_MAX, ranges }: CountOptions): Params => ({
  selector,
  count_method: isActive ? "active" : "inmemory",
  limit,
  ...(ranges && { start: ranges.start, end: ranges.end }),
});

export const countLabels = (options: CountOptions, signal: AbortSignal): Promise<Outcome<LabelNamesAnswer>> =>
  ask("label_names", paramsOf(options), signal);

export const countValues = (labels: readonly string[], options: CountOptions, signal: AbortSignal): Promise<Outcome<LabelValuesAnswer>> =>
  ask("label_values", { ...paramsOf(options), "label_names[]": labels, ...baselineOf(options) }, signal);

const baselineOf = ({ ranges }: CountOptions): Params =>
  ranges === undefined ? {} : { baseline_start: ranges.baselineStart, baseline_end: ranges.baselineEnd };

// The counts of the first label of an answer.
export const countsOf = (answer: LabelValuesAnswer | undefined): CountOfName[] =>
  (answer?.labels[0]?.cardinality ?? []).map(({ label_value, series_count }) => ({ name: label_value, value: series_count }));

// Counts of `count by (label) (selector)`.
export const countsOfSamples = (samples: readonly Sample[], label: string): CountOfName[] =>
  samples.map(({ metric, value }) => ({ name: metric[label] ?? "", value: numberOf(value?.[1] ?? "0") }));

export interface Growth {
  name: string;
  before: number;
  now: number;
  change: number;
  state: "came" | "went" | "grew" | "shrank" | "same";
}

function stateOf(before: number, now: number): Growth["state"] {
  if (before === now) return "same";
  if (before === 0) return "came";
  if (now === 0) return "went";
  return now > before ? "grew" : "shrank";
}

// Counts at two times side by side, in the order of the server: the largest change first. Undefined if the answer
// is that of one time.
export function growthOf({ baseline_series_count_total: total, labels }: LabelValuesAnswer): Growth[] | undefined {
  if (total === undefined) return undefined;
  return (labels[0]?.cardinality ?? []).map(({ label_value: name, series_count: now, baseline_series_count: before = 0 }) => ({
    name,
    before,
    now,
    change: now - before,
    state: stateOf(before, now),
  }));
}
