// The content of a graph: lines in their order, and the limits of the value axis.

import { axisRange, logRange } from "./ticks";
import { bounds } from "./bounds";
import type { LineStyle } from "./colours";
import { changeOf, type Change } from "./compare";
import type { Marks } from "./marks";
import { summarize, type Column, type Steps } from "./matrix";
import { stack } from "./stack";
import type { Measure } from "./units";
import type { DrawStyle } from "./drawStyle";

export interface Line {
  key: string;
  name: string;
  column: Column;
  style: LineStyle;
  // Its values at the earlier time of a comparison, step by step.
  earlier?: Column | undefined;
  // The fields below are those of a line that another panel draws here.
  // Name of its panel, also for the own lines of a shared graph.
  tag?: string;
  // Its unit, if it is not that of the graph.
  measure?: Measure;
  // Whether it lies over a stack, rather than in it.
  isOver?: boolean;
  // The values of the earlier time as they are drawn, on the second axis.
  earlierEdge?: Float64Array;
}

// An axis for lines with another unit. Their edges are the places on the first axis.
export interface SecondAxis {
  limits: [number, number];
  measure: Measure;
}

export interface Scene {
  steps: Steps;
  times: Float64Array;
  lines: Line[];
  // The drawn edge of each line: its values, or its upper edge in a stack.
  edges: Float64Array[];
  drawing: DrawStyle;
  isLog: boolean;
  limits: [number, number];
  measure: Measure;
  zone: string;
  // Whether the last step may still change, because its samples are not all there.
  isOpenEnded: boolean;
  marks: Marks;
  second: SecondAxis | undefined;
}

export interface SceneOptions {
  steps: Steps;
  times: Float64Array;
  lines: Line[];
  drawing: DrawStyle;
  isLog: boolean;
  // Limits of the value axis that the reader set.
  min: number | undefined;
  max: number | undefined;
  measure: Measure;
  zone: string;
  isOpenEnded: boolean;
  marks: Marks;
  // Lines of other panels, and the unit of the second axis: those with this unit lie on it.
  guests?: readonly Line[];
  second?: Measure | undefined;
}

export function makeScene(options: SceneOptions): Scene {
  const { lines, drawing, isLog, guests = [], second } = options;
  const values = lines.map(({ column }) => column.values);
  const isStacked = drawing === "stacked" || drawing === "share";
  const edges = isStacked ? stack(values, drawing === "share") : values;
  // A stack begins at zero, which a logarithmic axis does not have.
  const hasLog = isLog && !isStacked;
  const measure: Measure = drawing === "share" ? { unit: "ratio", perSecond: false, noun: "" } : options.measure;
  // A stack has no place for a second one: its legend compares.
  const earlier = isStacked ? [] : lines.flatMap((line) => line.earlier?.values ?? []);
  const isOnSecond = (line: Line) => second !== undefined && line.measure === second;
  const onFirst = guests.filter((line) => !isOnSecond(line)).flatMap(valuesOf);
  const limits = limitsOf(options, [...edges, ...earlier, ...onFirst], hasLog, isStacked);
  const axis = second && { measure: second, limits: rangeOf(guests.filter(isOnSecond).flatMap(valuesOf), hasLog) };
  const placed = guests.map((line) => (axis && isOnSecond(line) ? moved(line, axis.limits, limits, hasLog) : { line, edge: line.column.values }));
  return {
    ...options,
    lines: [...lines, ...placed.map(({ line }) => line)],
    edges: [...edges, ...placed.map(({ edge }) => edge)],
    isLog: hasLog,
    measure,
    limits,
    second: axis,
  };
}

const valuesOf = ({ column, earlier }: Line): Float64Array[] => (earlier ? [column.values, earlier.values] : [column.values]);

function rangeOf(values: Float64Array[], isLog: boolean): [number, number] {
  const { min, max } = bounds(values, 0, Infinity, isLog);
  return isLog ? logRange(min, max) : axisRange(min, max);
}

// A line on the first axis at the height that its values have on the second one.
function moved(line: Line, [low, high]: [number, number], [to, top]: [number, number], isLog: boolean): { line: Line; edge: Float64Array } {
  const share = (value: number) => (isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
  const place = (value: number) => (isLog ? to * (top / to) ** share(value) : to + share(value) * (top - to));
  const edge = line.column.values.map(place);
  return { line: line.earlier ? { ...line, earlierEdge: line.earlier.values.map(place) } : line, edge };
}

// The change of the mean of a line since the earlier time.
export const changeOfLine = ({ column, earlier }: Line): Change | undefined =>
  changeOf(summarize(column.values)?.mean, earlier && summarize(earlier.values)?.mean);

function limitsOf(options: SceneOptions, edges: Float64Array[], isLog: boolean, isStacked: boolean): [number, number] {
  const found = bounds(edges, 0, Infinity, isLog);
  if (isStacked) found.min = Math.min(0, found.min);
  const [low, high] = isLog ? logRange(found.min, found.max) : axisRange(found.min, found.max);
  const isFull = options.drawing === "share";
  const min = options.min ?? (isFull ? 0 : low);
  const max = options.max ?? (isFull ? 1 : high);
  if (isLog && !(min > 0)) return [low, Math.max(max, low * 10)];
  return min < max ? [min, max] : [low, high];
}

// Index of the step nearest to a time.
export function stepAt({ start, step }: Steps, time: number, count: number): number {
  return Math.max(0, Math.min(count - 1, Math.round((time - start) / step)));
}

// The line whose value at a step is nearest to `value`, measured by `place`, which may be bent by a
// logarithm. A step without samples looks at its neighbours.
export function nearestLine(
  scene: Scene,
  at: number,
  target: number,
  place: (value: number) => number,
): { line: number; at: number } | undefined {
  for (const step of [at, at - 1, at + 1]) {
    let found: { line: number; far: number } | undefined;
    scene.edges.forEach((edge, line) => {
      const value = edge[step] ?? NaN;
      if (Number.isNaN(value)) return;
      const far = Math.abs(place(value) - target);
      if (found === undefined || far < found.far) found = { line, far };
    });
    if (found !== undefined) return { line: found.line, at: step };
  }
  return undefined;
}
