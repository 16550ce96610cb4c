// The rows of a table of values: the shared labels, the labels that differ, and sums by a
// label.

import type { Histogram, Labels, QueryData } from "../api/types";
import { numberOf } from "../api/matrix";
import { seriesKey, sharedLabels, valuesByLabel } from "../graph/matrix";

export interface ValueRow {
  id: string;
  labels: Labels;
  value: number | undefined;
  // The value at the earlier time of a comparison.
  before: number | undefined;
  histogram: Histogram | undefined;
  // Text of a string result.
  text: string | undefined;
  // Number of rows that a sum holds.
  count: number;
}

export interface ValueTable {
  shared: Labels;
  // Labels that differ, those with the fewest values first.
  names: string[];
  rows: ValueRow[];
}

const row = (id: number, labels: Labels): ValueRow => ({
  id: String(id),
  labels,
  value: undefined,
  before: undefined,
  histogram: undefined,
  text: undefined,
  count: 1,
});

function rowsOf(data: QueryData): ValueRow[] {
  switch (data.resultType) {
    case "vector":
      return data.result.map(({ metric, value, histogram }, i) => ({
        ...row(i, metric),
        value: value === undefined ? undefined : numberOf(value[1]),
        histogram: histogram?.[1],
      }));
    case "matrix":
      return data.result.map(({ metric, values, histograms }, i) => ({
        ...row(i, metric),
        value: values.at(-1),
        histogram: histograms.at(-1)?.[1],
      }));
    case "scalar":
      return [{ ...row(0, {}), value: numberOf(data.result[1]) }];
    case "string":
      return [{ ...row(0, {}), text: data.result[1] }];
  }
}

// The rows of `data` with the values of `earlier`, then the rows of `earlier` alone. A cut answer lacks rows, so
// that none counts as gone.
function comparedRows(data: QueryData, earlier: QueryData, isCut: boolean): ValueRow[] {
  const before = new Map(rowsOf(earlier).map((one) => [seriesKey(one.labels), one]));
  const rows = rowsOf(data).map((one) => {
    const key = seriesKey(one.labels);
    const found = before.get(key)?.value;
    before.delete(key);
    return { ...one, before: found };
  });
  if (isCut) return rows;
  const gone = [...before.values()].map(({ labels, value }, i) => ({ ...row(rows.length + i, labels), before: value }));
  return [...rows, ...gone];
}

export function valueTable(data: QueryData, earlier?: QueryData, isCut = false): ValueTable {
  const rows = earlier === undefined ? rowsOf(data) : comparedRows(data, earlier, isCut);
  const all = rows.map(({ labels }) => labels);
  const shared = sharedLabels(all);
  const values = valuesByLabel(all);
  const names = [...values.keys()].filter((name) => !(name in shared)).sort((a, b) => {
    if (a === "__name__" || b === "__name__") return a === "__name__" ? -1 : 1;
    return (values.get(a)?.size ?? 0) - (values.get(b)?.size ?? 0) || (a < b ? -1 : 1);
  });
  return { shared, names, rows };
}

// One row for each value of a label, with the sum of its rows. Histograms have no sum here.
export function groupedBy(table: ValueTable, label: string): ValueTable {
  const sums = new Map<string, ValueRow>();
  const sum = (a: number | undefined, b: number | undefined) => (a === undefined || b === undefined ? (a ?? b) : a + b);
  for (const { labels, value, before } of table.rows) {
    const key = labels[label] ?? "";
    const known = sums.get(key);
    if (known === undefined) {
      sums.set(key, { ...row(sums.size, { [label]: key }), id: key, value, before });
      continue;
    }
    known.count += 1;
    known.value = sum(known.value, value);
    known.before = sum(known.before, before);
  }
  return { shared: table.shared, names: [label], rows: [...sums.values()] };
}
