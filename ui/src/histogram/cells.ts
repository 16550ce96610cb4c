// Histograms as cells: for each step a list of buckets with bounds and a count. Native histograms
// hold separate counts already; classic ones come as series with `le`, whose counts are cumulative.

import { numberOf } from "../api/matrix";
import type { Histogram } from "../api/types";
import { seriesKey, type Column, type Labels, type Matrix } from "../graph/matrix";

export interface Cell {
  lower: number;
  upper: number;
  count: number;
  // The count at the earlier time, if `count` is the difference from it.
  before?: number;
}

// The cells of one step, in order of their bounds.
export interface CellColumn {
  at: number;
  cells: Cell[];
  total: number;
  // Sum of the observations, which native histograms carry.
  sum?: number;
}

// Buckets of a native histogram, in order of their bounds.
export function nativeCells(histogram: Histogram): Cell[] {
  const cells = (histogram.buckets ?? []).map(([, lower, upper, count]) => ({
    lower: numberOf(lower),
    upper: numberOf(upper),
    count: numberOf(count),
  }));
  return cells.filter((cell) => cell.count !== 0).sort((a, b) => a.lower - b.lower || a.upper - b.upper);
}

// Separate counts from cumulative ones; a bound below its predecessor counts as no observation. Where all
// bounds are positive, observations are taken to be so too, as quantiles of classic histograms do.
export function classicCells(bounds: readonly { le: number; count: number }[]): Cell[] {
  const sorted = [...bounds].sort((a, b) => a.le - b.le);
  let [below, lower] = [0, (sorted[0]?.le ?? 0) > 0 ? 0 : -Infinity];
  return sorted.map(({ le, count }) => {
    const cell = { lower, upper: le, count: Math.max(0, count - below) };
    [below, lower] = [Math.max(below, count), le];
    return cell;
  });
}

// Whether a column holds native histograms.
export const isNative = (column: Column) => column.histograms.length > 0;

// Whether series are the buckets of classic histograms.
export const isClassicNames = (all: readonly Labels[]) =>
  all.length > 1 && all.every(({ le }) => !Number.isNaN(parseBound(le)));

export const isClassic = (columns: readonly Column[]) => isClassicNames(columns.map(({ labels }) => labels));

function parseBound(text: string | undefined): number {
  if (text === undefined || text.trim() === "") return NaN;
  return text === "+Inf" ? Infinity : Number(text);
}

// Whether an answer is best seen as a heat map.
export const isHistogramAnswer = (matrix: Matrix) =>
  matrix.columns.length > 0 && (matrix.columns.some(isNative) || isClassic(matrix.columns));

export interface HistogramGroup {
  labels: Labels;
  columns: CellColumn[];
}

// One group for each native series, and for each set of labels besides `le`.
export function groups(matrix: Matrix): HistogramGroup[] {
  const native = matrix.columns.filter(isNative).map(nativeGroup);
  return native.length > 0 ? native : classicGroups(matrix);
}

function nativeGroup(column: Column): HistogramGroup {
  const columns = column.histograms.map(({ at, value }) => ({
    at,
    cells: nativeCells(value),
    total: numberOf(value.count),
    sum: numberOf(value.sum),
  }));
  return { labels: column.labels, columns };
}

function classicGroups(matrix: Matrix): HistogramGroup[] {
  const byLabels = new Map<string, { labels: Labels; members: Column[] }>();
  for (const column of matrix.columns) {
    const { le: _, ...labels } = column.labels;
    const key = seriesKey(labels);
    const group = byLabels.get(key) ?? { labels, members: [] };
    group.members.push(column);
    byLabels.set(key, group);
  }
  return [...byLabels.values()].map(({ labels, members }) => ({
    labels,
    columns: classicColumns(members, matrix.times.length),
  }));
}

function classicColumns(members: readonly Column[], steps: number): CellColumn[] {
  const found: CellColumn[] = [];
  for (let at = 0; at < steps; at += 1) {
    const bounds = members.flatMap(({ labels, values }) => {
      const [le, count] = [parseBound(labels.le), values[at] ?? NaN];
      return Number.isNaN(le) || Number.isNaN(count) ? [] : [{ le, count }];
    });
    if (bounds.length === 0) continue;
    const cells = classicCells(bounds);
    found.push({ at, cells, total: cells.reduce((sum, cell) => sum + cell.count, 0) });
  }
  return found;
}

// Adds groups cell by cell, so that all series are one heat map.
export function merge(all: readonly HistogramGroup[]): CellColumn[] {
  const steps = new Map<number, { cells: Map<string, Cell>; total: number; sum: number; hasSum: boolean }>();
  for (const { columns } of all) {
    for (const column of columns) {
      const step = steps.get(column.at) ?? { cells: new Map<string, Cell>(), total: 0, sum: 0, hasSum: true };
      steps.set(column.at, step);
      step.total += column.total;
      step.sum += column.sum ?? 0;
      step.hasSum &&= column.sum !== undefined;
      for (const cell of column.cells) {
        const key = `${cell.lower} ${cell.upper}`;
        const known = step.cells.get(key);
        if (known) known.count += cell.count;
        else step.cells.set(key, { ...cell });
      }
    }
  }
  return [...steps]
    .sort(([a], [b]) => a - b)
    .map(([at, { cells, total, sum, hasSum }]) => ({
      at,
      cells: [...cells.values()].sort((a, b) => a.lower - b.lower || a.upper - b.upper),
      total,
      ...(hasSum ? { sum } : {}),
    }));
}

// The difference of two heat maps, step by step. Cells that overlap become one: the bounds of native histograms
// depend on their resolution, which may differ between two times.
export function differ(now: readonly CellColumn[], before: readonly CellColumn[]): CellColumn[] {
  const [later, earlier] = [now, before].map((columns) => new Map(columns.map(({ at, cells }) => [at, cells])));
  const steps = [...new Set([...now, ...before].map(({ at }) => at))].sort((a, b) => a - b);
  return steps.map((at) => {
    const cells = differCells(later?.get(at) ?? [], earlier?.get(at) ?? []);
    return { at, cells, total: cells.reduce((sum, { count }) => sum + count, 0) };
  });
}

function differCells(now: readonly Cell[], before: readonly Cell[]): Cell[] {
  const all = [
    ...now.map((cell) => ({ ...cell, before: 0 })),
    ...before.map((cell) => ({ ...cell, count: -cell.count, before: cell.count })),
  ].sort((a, b) => a.lower - b.lower || a.upper - b.upper);
  const cells: (Cell & { before: number })[] = [];
  for (const cell of all) {
    const last = cells.at(-1);
    const isSame = last?.lower === cell.lower && last.upper === cell.upper;
    if (last !== undefined && (isSame || cell.lower < last.upper)) {
      last.upper = Math.max(last.upper, cell.upper);
      last.count += cell.count;
      last.before += cell.before;
    } else cells.push({ ...cell });
  }
  return cells;
}

// The quantile `q` of the observations of a step, by linear interpolation in
// its bucket; the finite bound where the bucket is open.
export function quantile(column: CellColumn, q: number): number {
  const rank = q * column.cells.reduce((sum, cell) => sum + cell.count, 0);
  let below = 0;
  for (const { lower, upper, count } of column.cells) {
    if (count > 0 && below + count >= rank) {
      if (!Number.isFinite(upper)) return lower;
      if (!Number.isFinite(lower)) return upper > 0 ? (upper * (rank - below)) / count : upper;
      return lower + ((upper - lower) * (rank - below)) / count;
    }
    below += count;
  }
  return NaN;
}

// Share of the observations of a step at or below the upper bound of a cell.
export function rankOf(column: CellColumn, cell: Cell): number {
  let below = 0;
  let total = 0;
  for (const other of column.cells) {
    total += other.count;
    if (other.upper <= cell.upper) below += other.count;
  }
  return total === 0 ? 0 : below / total;
}

// The value axis of cells: the bounds in order, each with an equal height.
export interface BoundsAxis {
  bounds: number[];
  // Height share, from 0 at the bottom to 1, of a value between two bounds.
  place(value: number): number;
}

// Most bounds that get rows of their own; finer ones are drawn on a logarithmic axis.
const ROWS_MAX = 40;

// Classic bounds get rows of one height, because they are chosen, not measured. Native bounds are
// many and exponential: they get a logarithmic axis.
export function boundsAxis(columns: readonly CellColumn[]): BoundsAxis {
  const set = new Set<number>();
  for (const { cells } of columns) {
    for (const { lower, upper, count } of cells) {
      if (count === 0) continue;
      set.add(lower);
      set.add(upper);
    }
  }
  const bounds = [...set].sort((a, b) => a - b);
  return bounds.length <= ROWS_MAX ? rowAxis(bounds) : logAxis(bounds);
}

function rowAxis(bounds: number[]): BoundsAxis {
  const rows = Math.max(1, bounds.length - 1);
  const place = (value: number) => {
    const above = bounds.findIndex((bound) => bound >= value);
    if (above < 0) return 1;
    const [upper, lower] = [bounds[above] ?? value, bounds[above - 1]];
    if (upper === value || lower === undefined) return above / rows;
    const share = Number.isFinite(upper - lower) ? (value - lower) / (upper - lower) : 0.5;
    return (above - 1 + share) / rows;
  };
  return { bounds, place };
}

function logAxis(bounds: number[]): BoundsAxis {
  const finite = bounds.filter((bound) => Number.isFinite(bound));
  const positive = finite.filter((bound) => bound > 0);
  const hasRest = (finite[0] ?? 0) <= 0;
  if (positive.length < 2 || (finite[0] ?? 0) < 0) return linearAxis(finite);
  const [low, high] = [Math.log(positive[0] ?? 1), Math.log(positive.at(-1) ?? 1)];
  // The zero bucket gets a strip at the bottom.
  const strip = hasRest ? 0.06 : 0;
  const place = (value: number) => {
    if (value <= 0) return 0;
    const share = (Math.log(value) - low) / (high - low || 1);
    return strip + (1 - strip) * Math.min(1, Math.max(0, share));
  };
  return { bounds, place };
}

function linearAxis(bounds: number[]): BoundsAxis {
  const [low, high] = [bounds[0] ?? 0, bounds.at(-1) ?? 1];
  const place = (value: number) => Math.min(1, Math.max(0, (value - low) / (high - low || 1)));
  return { bounds, place };
}

// The lightest shade: a cell with a single observation is seen.
const LIGHTEST = 0.08;

// Share from 0 to 1 of a count between the smallest and the largest one, for its shade.
export function shade(count: number, { smallest, largest }: { smallest: number; largest: number }, isLog: boolean): number {
  if (!(count > 0) || !(largest > 0)) return 0;
  const share = isLog
    ? Math.log(count / smallest) / (Math.log(largest / smallest) || 1)
    : count / largest;
  return LIGHTEST + (1 - LIGHTEST) * Math.min(1, Math.max(0, largest === smallest ? 1 : share));
}
