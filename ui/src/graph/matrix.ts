// The answer of a range query on the requested steps: one array of times for all series,
// and for each series one value a step. Missing samples are places without a value, so that lines
// break where data is missing, and series can be added, stacked and compared step by step.

import { selectorOf } from "../format/labels";
import { special } from "../format/number";
import type { Histogram, Labels, Series } from "../api/types";

export type { Labels } from "../api/types";

// Times of the steps of a range query, in seconds.
export interface Steps {
  start: number;
  end: number;
  step: number;
}

// A value that has no place on an axis, at a step.
export interface Special {
  at: number;
  text: "+Inf" | "-Inf" | "NaN";
}

export interface HistogramAt {
  at: number;
  value: Histogram;
}

export interface Column {
  labels: Labels;
  // One value for each step; NaN where the series has no finite sample.
  values: Float64Array;
  specials: Special[];
  histograms: HistogramAt[];
}

export interface Matrix extends Steps {
  times: Float64Array;
  columns: Column[];
}

// Number of steps from `start` to `end`, both included.
export function countSteps({ start, end, step }: Steps): number {
  if (!(step > 0) || end < start) return 0;
  return Math.floor((end - start) / step + 1e-6) + 1;
}

// Puts the samples of an answer on its steps.
export function toMatrix(result: readonly Series[], steps: Steps): Matrix {
  const count = countSteps(steps);
  const times = Float64Array.from({ length: count }, (_, i) => steps.start + i * steps.step);
  return { ...steps, times, columns: result.map((series) => toColumn(series, steps, count)) };
}

function toColumn(series: Series, { start, step }: Steps, count: number): Column {
  const values = new Float64Array(count).fill(NaN);
  const column: Column = { labels: series.metric, values, specials: [], histograms: [] };
  const place = (time: number) => Math.round((time - start) / step);
  for (let i = 0; i < series.times.length; i += 1) {
    const at = place(series.times[i] ?? NaN);
    if (!(at >= 0 && at < count)) continue;
    const value = series.values[i] ?? NaN;
    if (Number.isFinite(value)) values[at] = value;
    else column.specials.push({ at, text: special(value) });
  }
  for (const [time, value] of series.histograms) {
    const at = place(time);
    if (at >= 0 && at < count) column.histograms.push({ at, value });
  }
  return column;
}

// A column of other steps on these, each value at the nearest step.
export function onSteps(column: Column, from: Steps, to: Steps): Column {
  const count = countSteps(to);
  const values = new Float64Array(count).fill(NaN);
  const place = (i: number) => Math.round((from.start + i * from.step - to.start) / to.step);
  const isInside = (at: number) => at >= 0 && at < count;
  column.values.forEach((value, i) => {
    if (isInside(place(i)) && !Number.isNaN(value)) values[place(i)] = value;
  });
  const move = <T extends { at: number }>(list: T[]) => list.map((item) => ({ ...item, at: place(item.at) })).filter(({ at }) => isInside(at));
  return { labels: column.labels, values, specials: move(column.specials), histograms: move(column.histograms) };
}

// Key of a series that is the same in each answer that contains it.
export function seriesKey(labels: Labels): string {
  const names = Object.keys(labels).sort();
  return JSON.stringify(names.map((name) => [name, labels[name]]));
}

// Labels that all series have with the same value. A single series shares nothing.
export function sharedLabels(all: Labels[]): Labels {
  const [first, ...rest] = all;
  if (first === undefined || rest.length === 0) return {};
  const isShared = ([name, value]: [string, string]) => rest.every((labels) => labels[name] === value);
  return Object.fromEntries(Object.entries(first).filter(isShared));
}

// The values of each label name.
export function valuesByLabel(all: readonly Labels[]): Map<string, Set<string>> {
  const values = new Map<string, Set<string>>();
  for (const labels of all) {
    for (const [name, value] of Object.entries(labels)) {
      let set = values.get(name);
      if (set === undefined) values.set(name, (set = new Set()));
      set.add(value);
    }
  }
  return values;
}

// Labels of a series without those that all share.
export function ownLabels(labels: Labels, shared: Labels): Labels {
  return Object.fromEntries(Object.entries(labels).filter(([name]) => !(name in shared)));
}

// Short name of a series: the value alone when one label differs, otherwise the differing labels.
export function shortName(labels: Labels, shared: Labels): string {
  const own = ownLabels(labels, shared);
  const names = Object.keys(own);
  const [only] = names;
  if (only !== undefined && names.length === 1 && own[only]) return own[only];
  return selectorOf(only === undefined ? labels : own);
}

// Figures of a series over the range; undefined without a finite sample.
export interface Summary {
  last: number;
  min: number;
  mean: number;
  max: number;
}

export function summarize(values: ArrayLike<number>): Summary | undefined {
  let [min, max, sum, count, last] = [Infinity, -Infinity, 0, 0, NaN];
  for (let i = 0; i < values.length; i += 1) {
    const value = values[i] ?? NaN;
    if (Number.isNaN(value)) continue;
    if (value < min) min = value;
    if (value > max) max = value;
    sum += value;
    count += 1;
    last = value;
  }
  return count === 0 ? undefined : { last, min, mean: sum / count, max };
}
