// Answers of Prometheus's API that several pages read.

export type Labels = Record<string, string>;

// A native histogram as the query endpoints return it: counts and bounds are texts, like values.
export interface Histogram {
  count: string;
  sum: string;
  // [boundary rule, lower bound, upper bound, count]; rule 0: (], 1: [), 2: (), 3: [].
  buckets?: [number, string, string, string][];
}

export interface Sample {
  metric: Labels;
  value?: [number, string];
  histogram?: [number, Histogram];
}

// A series of a range query or a range selector. Times are seconds; the arrays are views on shared
// buffers, filled by api/matrix.ts.
export interface Series {
  metric: Labels;
  times: Float64Array;
  values: Float64Array;
  histograms: [number, Histogram][];
}

export type QueryData =
  | { resultType: "vector"; result: Sample[] }
  | { resultType: "matrix"; result: Series[] }
  | { resultType: "scalar"; result: [number, string] }
  | { resultType: "string"; result: [number, string] };

// The samples of an instant vector; none for other data.
export const samplesOf = (data: QueryData | undefined): Sample[] => (data?.resultType === "vector" ? data.result : []);

// The series of a matrix; none for other data.
export const seriesOf = (data: QueryData | undefined): Series[] => (data?.resultType === "matrix" ? data.result : []);
