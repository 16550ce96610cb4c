// An answer in the form in which the API writes it, from the form in which the page keeps it.

import type { QueryData, Series } from "../api/types";
import { special } from "../format/number";

// A value as the API writes it.
export const numberText = (value: number): string => (Number.isFinite(value) ? String(value) : special(value));

function wireSeries({ metric, times, values, histograms }: Series) {
  const pairs = Array.from(times, (time, i) => [time, numberText(values[i] ?? NaN)]);
  return {
    metric,
    ...(pairs.length > 0 ? { values: pairs } : {}),
    ...(histograms.length > 0 ? { histograms } : {}),
  };
}

// The `data` of an answer as the API writes it.
export function wire(data: QueryData): unknown {
  if (data.resultType !== "matrix") return { resultType: data.resultType, result: data.result };
  return { resultType: "matrix", result: data.result.map(wireSeries) };
}
