// Answers with more series than eyes can follow: the drawn ones, and changes of the
// expression that reduce their number.

import { labelName } from "../format/labels";
import { valuesByLabel, type Labels } from "./matrix";

// Series that a panel requests, and series that it draws by default.
export const REQUESTED_MAX = 1000;
export const DRAWN_MAX = 100;

function peakOf({ values }: { values: Float64Array }): number {
  let max = -Infinity;
  for (const value of values) if (value > max) max = value;
  return max;
}

// The `count` series with the largest value, or the largest other figure, in the order of the answer.
export function largest<T extends { values: Float64Array }>(columns: readonly T[], count: number, peak: (column: T) => number = peakOf): T[] {
  if (columns.length <= count) return [...columns];
  const ranked = columns.map((column, at) => ({ column, at, peak: peak(column) }));
  ranked.sort((a, b) => (a.peak === b.peak ? a.at - b.at : a.peak > b.peak ? -1 : 1));
  return ranked
    .slice(0, count)
    .sort((a, b) => a.at - b.at)
    .map(({ column }) => column);
}

// A label that would narrow an answer, with its number of values.
export interface Narrowing {
  label: string;
  values: number;
}

// Labels with more than one value, those with the fewest values last.
export function narrowings(all: readonly Labels[], count = 4): Narrowing[] {
  return [...valuesByLabel(all)]
    .filter(([name, set]) => name !== "__name__" && name !== "le" && set.size > 1)
    .map(([label, set]) => ({ label, values: set.size }))
    .sort((a, b) => b.values - a.values)
    .slice(0, count);
}

export const topOf = (expr: string, count = 10) => `topk(${count}, ${expr.trim()})`;

export const sumBy = (expr: string, label: string) => `sum by (${labelName(label)}) (${expr.trim()})`;
