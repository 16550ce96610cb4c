// The drawing of a heat map: one column a step, one cell a bucket, darker for more observations.

import { token } from "../graph/colours";
import type { Drawing } from "../graph/drawing";
import type { Steps } from "../graph/matrix";
import { places, type Frame } from "../graph/paint";
import type { Measure } from "../graph/units";
import { axisText } from "../graph/valueText";
import { tickLabels } from "../graph/ticks";
import { boundsAxis, quantile, shade, type BoundsAxis, type CellColumn } from "./cells";

export interface HeatScene {
  steps: Steps;
  columns: CellColumn[];
  axis: BoundsAxis;
  // Whether the counts are differences from an earlier time, which may be negative.
  isDifference: boolean;
  // Smallest count above zero, and largest count, of all cells, without their signs.
  counts: { smallest: number; largest: number };
  isLog: boolean;
  measure: Measure;
  zone: string;
  // Quantiles that are drawn as lines, of these observations.
  quantiles: readonly number[];
  curves: readonly { columns: CellColumn[]; dash: number[] }[];
}

export function makeHeat(options: Omit<HeatScene, "axis" | "counts">): HeatScene {
  let [smallest, largest] = [Infinity, 0];
  for (const { cells } of options.columns) {
    for (const cell of cells) {
      const count = Math.abs(cell.count);
      if (count > largest) largest = count;
      if (count > 0 && count < smallest) smallest = count;
    }
  }
  return { ...options, axis: boundsAxis(options.columns), counts: { smallest, largest } };
}

// One hue from nearly the card to nearly the text, through the accent.
export function heatColour(share: number): string {
  const [from, to] = share < 0.5 ? ["--accent-soft", "--accent"] : ["--accent", "--text"];
  const percent = Math.round((share < 0.5 ? share * 2 : (share - 0.5) * 1.1) * 100);
  return mix(token(from.slice(2)), token(to.slice(2)), percent / 100);
}

// Two hues for differences, from -1 to 1: one for fewer, one for more observations, pale near zero.
export function differenceColour(share: number): string {
  const hue = share < 0 ? "warn" : "accent";
  return mix(token(`${hue}-soft`), token(hue), Math.abs(share));
}

function mix(from: string, to: string, share: number): string {
  const channels = (colour: string) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const [a, b] = [channels(from), channels(to)];
  return `rgb(${a.map((one, i) => Math.round(one + ((b[i] ?? 0) - one) * share)).join(" ")})`;
}

// Edges of a cell: open bounds reach to the end of the axis.
function edges({ axis }: HeatScene, lower: number, upper: number): [number, number] {
  const low = lower === -Infinity ? 0 : axis.place(lower);
  const high = upper === Infinity ? 1 : axis.place(upper);
  return [low, Math.max(high, low)];
}

const SHADES = 32;

function paint(context: CanvasRenderingContext2D, scene: HeatScene, frame: Frame): void {
  const { x, y } = places(frame);
  const { start, step } = scene.steps;
  const colour = scene.isDifference ? differenceColour : heatColour;
  const [more, fewer] = [1, -1].map((sign) => Array.from({ length: SHADES }, (_, i) => colour((sign * i) / (SHADES - 1))));
  context.save();
  context.beginPath();
  context.rect(frame.left, frame.top, frame.width, frame.height);
  context.clip();
  for (const { at, cells } of scene.columns) {
    const left = Math.floor(x(start + (at - 0.5) * step));
    const right = Math.floor(x(start + (at + 0.5) * step));
    // Wide cells have a gap between them.
    const width = Math.max(1, right - left - (right - left > 6 ? 1 : 0));
    for (const { lower, upper, count } of cells) {
      if (count === 0) continue;
      const [low, high] = edges(scene, lower, upper);
      const [bottom, top] = [Math.round(y(low)), Math.round(y(high))];
      const palette = count > 0 ? more : fewer;
      context.fillStyle = palette?.[Math.round(shade(Math.abs(count), scene.counts, scene.isLog) * (SHADES - 1))] ?? "";
      context.fillRect(left, top, width, Math.max(1, bottom - top - (bottom - top > 4 ? 1 : 0)));
    }
  }
  for (const q of scene.quantiles) {
    for (const { columns, dash } of scene.curves) paintQuantile(context, scene, columns, q, dash, frame);
  }
  context.restore();
}

function paintQuantile(
  context: CanvasRenderingContext2D,
  scene: HeatScene,
  columns: readonly CellColumn[],
  q: number,
  dash: readonly number[],
  frame: Frame,
): void {
  const { x, y } = places(frame);
  const { start, step } = scene.steps;
  const path = new Path2D();
  let previous = -2;
  for (const column of columns) {
    const value = quantile(column, q);
    if (Number.isNaN(value)) continue;
    const [cx, cy] = [x(start + column.at * step), y(scene.axis.place(value))];
    if (column.at - previous === 1) path.lineTo(cx, cy);
    else path.moveTo(cx, cy);
    previous = column.at;
  }
  context.lineJoin = "round";
  context.setLineDash(dash.map((length) => length * frame.ratio));
  context.strokeStyle = token("card");
  context.lineWidth = 4 * frame.ratio;
  context.stroke(path);
  context.strokeStyle = token("series-2");
  context.lineWidth = 1.5 * frame.ratio;
  context.stroke(path);
}

export function heat(scene: HeatScene): Drawing {
  const byStep = new Map(scene.columns.map((column) => [column.at, column]));
  return {
    steps: scene.steps,
    zone: scene.zone,
    isLog: false,
    limits: [0, 1],
    paint: (context, frame) => { paint(context, scene, frame); },
    paintFocus: (context, frame, { item, at }) => {
      const cell = byStep.get(at ?? -1)?.cells[item];
      if (cell === undefined || at === undefined) return;
      const { x, y } = places(frame);
      const { start, step } = scene.steps;
      const [low, high] = edges(scene, cell.lower, cell.upper);
      const [left, right] = [x(start + (at - 0.5) * step), x(start + (at + 0.5) * step)];
      context.strokeStyle = token("text");
      context.lineWidth = 2 * frame.ratio;
      context.strokeRect(left, y(high), Math.max(3, right - left), Math.max(3, y(low) - y(high)));
    },
    // Bounds too close to each other share a line.
    ticks: (_min, _max, count) => {
      const found: number[] = [];
      for (const bound of scene.axis.bounds) {
        const place = boundPlace(scene.axis, bound);
        if (found.length === 0 || place - (found.at(-1) ?? 0) >= 0.8 / count) found.push(place);
      }
      return found;
    },
    labels: (ticks) => {
      const bounds = ticks.map((tick) => scene.axis.bounds.find((bound) => boundPlace(scene.axis, bound) === tick) ?? NaN);
      return tickLabels(bounds, (value, digits) => axisText(value, scene.measure, digits));
    },
    find: (at, _top, value) => {
      const column = byStep.get(at);
      const item = column?.cells.findIndex(({ lower, upper, count }) => {
        const [low, high] = edges(scene, lower, upper);
        return count !== 0 && value >= low && value <= high;
      });
      return item === undefined || item < 0 ? undefined : { item, at };
    },
  };
}

function boundPlace({ place }: BoundsAxis, bound: number): number {
  if (bound === -Infinity) return 0;
  return bound === Infinity ? 1 : place(bound);
}
