// Numbers of series and values by label. The endpoints answer as Mimir does: documents without an envelope,
// and errors as plain text.

import { post, type Outcome, type Params } from "../api/client";
import { numberOf } from "../api/matrix";
import type { Sample } from "../api/types";
import type { CountOfName, LabelNamesAnswer, LabelValuesAnswer } from "./answers";

// Most entries of a list that the server returns.
export const ENTRIES_MAX = 500;

async function ask<T>(path: string, params: Params, signal: AbortSignal): Promise<Outcome<T>> {
  const outcome = await post<unknown>(`cardinality/${path}`, params, { signal });
  if (outcome.ok) return { ...outcome, data: outcome.document as T };
  const { failure } = outcome;
  const isText = failure.kind === "foreign" && failure.status >= 400 && failure.status < 500 && !failure.text.startsWith("<");
  if (!isText) return outcome;
  return { ok: false, failure: { kind: "refused", status: failure.status, errorType: "bad_data", message: failure.text.trim() } };
}

export interface CountOptions {
  selector: string;
  // Series with a sample in the last 20 minutes rather than two hours.
  isActive?: boolean;
  limit?: number;
}

const paramsOf = ({ selector, isActive = false, limit = ENTRIES_MAX }: CountOptions): Params =>
  ({ selector, count_method: isActive ? "active" : "inmemory", limit });

export const countLabels = (options: CountOptions, signal: AbortSignal): Promise<Outcome<LabelNamesAnswer>> =>
  ask("label_names", paramsOf(options), signal);

export const countValues = (labels: readonly string[], options: CountOptions, signal: AbortSignal): Promise<Outcome<LabelValuesAnswer>> =>
  ask("label_values", { ...paramsOf(options), "label_names[]": labels }, signal);

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

// Counts at two times side by side, the largest change first.
export function growth(before: readonly CountOfName[], now: readonly CountOfName[]): Growth[] {
  const [earlier, later] = [before, now].map((list) => new Map(list.map(({ name, value }) => [name, value])));
  const names = [...new Set([...(later?.keys() ?? []), ...(earlier?.keys() ?? [])])];
  const rows = names.map((name) => {
    const [a, b] = [earlier?.get(name) ?? 0, later?.get(name) ?? 0];
    return { name, before: a, now: b, change: b - a, state: stateOf(a, b) };
  });
  return rows.sort((a, b) => Math.abs(b.change) - Math.abs(a.change) || b.now - a.now);
}
