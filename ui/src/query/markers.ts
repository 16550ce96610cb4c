// Staleness markers of a series. Range selectors leave them out, but an instant query after a sample has no result
// if a marker follows that sample.

import { post, type Outcome } from "../api/client";
import { samplesOf, type Labels, type QueryData } from "../api/types";
import { selectorOf } from "../format/labels";
import { seriesKey } from "../graph/matrix";
import { succeed } from "../parts/pageResource";
import type { RawSample } from "./raw";

// Queries for one series: those for its newest gaps.
const PROBES_MAX = 20;

export interface Probe {
  // Times of the sample and of the query, in milliseconds.
  after: number;
  at: number;
}

// The queries that find markers in the gaps of a series, and behind its newest sample. The samples have the oldest
// one first; `end` is the end of the range in milliseconds.
export function probesOf(samples: readonly RawSample[], end: number): Probe[] {
  const gaps = samples.flatMap(({ at, isGap }, i): Probe[] => {
    const before = samples[i - 1];
    return isGap && before !== undefined ? [{ after: before.at, at: at - 1 }] : [];
  });
  const newest = samples.at(-1);
  const last = newest !== undefined && newest.at < end ? [{ after: newest.at, at: end }] : [];
  return [...gaps, ...last].slice(-PROBES_MAX);
}

// The times of the samples that a marker follows, in milliseconds.
export async function markersOf(metric: Labels, probes: readonly Probe[], signal: AbortSignal): Promise<Outcome<Set<number>>> {
  const key = seriesKey(metric);
  const found = new Set<number>();
  const ask = async ({ after, at }: Probe) => {
    // The sample itself is the oldest one that counts.
    const lookback = `${Math.ceil(at - after) + 1}ms`;
    const outcome = await post<QueryData>("query", { query: selectorOf(metric), time: at / 1000, lookback_delta: lookback }, { signal });
    // The selector also selects series with more labels.
    const isThere = outcome.ok && samplesOf(outcome.data).some((sample) => seriesKey(sample.metric) === key);
    if (outcome.ok && !isThere) found.add(after);
    return outcome;
  };
  const outcomes = await Promise.all(probes.map(ask));
  const failed = outcomes.find((outcome) => !outcome.ok);
  return failed?.ok === false ? failed : succeed(found);
}
