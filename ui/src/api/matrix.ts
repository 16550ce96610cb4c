// Turns the matrix of a query into typed arrays: 16 bytes a point instead of about 100, and free to
// pass from the worker to the page.

import type { Histogram, Labels, QueryData, Series } from "./types";

interface RawSeries {
  metric: Labels;
  values?: [number, string][];
  histograms?: [number, Histogram][];
}

interface RawDocument {
  data?: { resultType?: string; result?: unknown };
}

// Replaces the result of a matrix in `document` in place. Returns the buffers to transfer.
export function compact(document: unknown): ArrayBuffer[] {
  const { data } = document as RawDocument;
  if (data?.resultType !== "matrix" || !Array.isArray(data.result)) return [];
  const raw = data.result as RawSeries[];
  const points = raw.reduce((sum, series) => sum + (series.values?.length ?? 0), 0);
  const times = new Float64Array(points);
  const values = new Float64Array(points);
  let at = 0;
  const result: Series[] = raw.map((series) => {
    const start = at;
    for (const [time, value] of series.values ?? []) {
      times[at] = time;
      values[at] = numberOf(value);
      at += 1;
    }
    return {
      metric: series.metric,
      times: times.subarray(start, at),
      values: values.subarray(start, at),
      histograms: series.histograms ?? [],
    };
  });
  (data as QueryData).result = result;
  return [times.buffer, values.buffer];
}

// A value as the API writes it: a decimal number, "+Inf", "-Inf" or "NaN".
export function numberOf(text: string): number {
  if (text === "+Inf") return Infinity;
  if (text === "-Inf") return -Infinity;
  return Number(text);
}
