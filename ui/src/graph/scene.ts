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
}

export function makeScene(options: SceneOptions): Scene {
  const { lines, drawing, isLog } = options;
  const values = lines.map(({ column }) => column.values);
  const isStacked = drawing === "stacked" || drawing === "share";
  const edges = isStacked ? stack(values, drawing === "share") : values;
  // A stack begins at zero, which a logarithmic axis does not have.
  const hasLog = isLog && !isStacked;
  const measure: Measure = drawing === "share" ? { unit: "ratio", perSecond: false, noun: "" } : options.measure;
  // A stack has no place for a second one: its legend compares.
  const earlier = isStacked ? [] : lines.flatMap((line) => line.earlier?.values ?? []);
  return { ...options, edges, isLog: hasLog, measure, limits: limitsOf(options, [...edges, ...earlier], hasLog, isStacked) };
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
