// An answer beside the same query at an earlier time. Series are matched by their labels.

import type { Series } from "../api/types";
import { formatNumber } from "../format/number";
import { seriesKey, summarize } from "./matrix";
import type { Measure } from "./units";
import { shortText } from "./valueText";

// A series with its samples of the earlier time.
export interface Paired extends Series {
  before: Series | undefined;
}

const EMPTY = new Float64Array(0);
export const noSamples = (metric: Series["metric"]): Series => ({ metric, times: EMPTY, values: EMPTY, histograms: [] });

// All series of an answer, then those of the earlier time alone. A cut answer lacks series, so that none counts as
// gone.
export function paired(now: readonly Series[], before: readonly Series[], isCut: boolean): Paired[] {
  const earlier = new Map(before.map((series) => [seriesKey(series.metric), series]));
  const pairs = now.map((series): Paired => {
    const key = seriesKey(series.metric);
    const found = earlier.get(key);
    earlier.delete(key);
    return { ...series, before: found };
  });
  if (isCut) return pairs;
  return [...pairs, ...[...earlier.values()].map((series) => ({ ...noSamples(series.metric), before: series }))];
}

export interface Change {
  // Now less before; a missing value counts as zero.
  difference: number;
  // Undefined if there is no value before, or zero.
  ratio: number | undefined;
  state: "new" | "gone" | "both";
}

// The change between two values; undefined if neither is a number.
export function changeOf(now: number | undefined, before: number | undefined): Change | undefined {
  const [hasNow, hasBefore] = [now, before].map((value) => value !== undefined && !Number.isNaN(value));
  if (!hasNow && !hasBefore) return undefined;
  const difference = (hasNow ? (now as number) : 0) - (hasBefore ? (before as number) : 0);
  const ratio = hasNow && hasBefore && before !== 0 ? difference / Math.abs(before as number) : undefined;
  return { difference, ratio, state: hasNow && hasBefore ? "both" : hasNow ? "new" : "gone" };
}

// "+1.2 MiB, +12 %", "new", "gone".
export function changeText(change: Change | undefined, measure: Measure): string {
  if (change === undefined) return "–";
  if (change.state !== "both") return change.state;
  const sign = (value: number) => (value > 0 ? "+" : "");
  const { difference, ratio } = change;
  // The difference of two times is a duration, and its share of the time since 1970 means nothing.
  if (measure.unit === "time") return sign(difference) + formatNumber(difference, "seconds");
  const text = shortText(difference, measure, 3);
  return sign(difference) + text + (ratio === undefined ? "" : `, ${sign(ratio)}${formatNumber(ratio, "ratio", 3)}`);
}

// The key of the order "largest change first": its size.
export const changeSize = (change: Change | undefined): number | undefined => change && Math.abs(change.difference);

// The size of the change of the mean of a series.
export const changeOfPair = ({ values, before }: Paired): number =>
  changeSize(changeOf(summarize(values)?.mean, before && summarize(before.values)?.mean)) ?? -Infinity;

// The order of lists in which the largest change is first, as in the address.
export const BY_CHANGE = "-change";
