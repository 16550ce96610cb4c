// Draws lines, stacks and points onto a canvas. All places are in pixels of the canvas.

import { token, type LineStyle } from "./colours";
import { union } from "./marks";
import type { Line, Scene } from "./scene";

export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
  // Pixels of the canvas in one CSS pixel.
  ratio: number;
  from: number;
  to: number;
  limits: [number, number];
  isLog: boolean;
}

export interface Places {
  x(time: number): number;
  y(value: number): number;
}

export function places({ left, top, width, height, from, to, limits: [min, max], isLog }: Frame): Places {
  const x = (time: number) => left + ((time - from) / (to - from || 1)) * width;
  if (!isLog) return { x, y: (value) => top + (1 - (value - min) / (max - min)) * height };
  const [low, high] = [Math.log(min), Math.log(max)];
  // Values without a logarithm have no place on the axis.
  const y = (value: number) => (value > 0 ? top + (1 - (Math.log(value) - low) / (high - low)) * height : NaN);
  return { x, y };
}

// Points of a line between two times, with at most four a column of pixels: first, lowest, highest
// and last. More than that cannot be seen, and takes its time.
function trace(path: Path2D, scene: Scene, edge: Float64Array, frame: Frame, to = scene.times.length): void {
  const { x, y } = places(frame);
  const { times } = scene;
  const isDense = times.length > frame.width * 2;
  let isDown = false;
  let column = -1;
  let [low, high, last] = [NaN, NaN, NaN];
  const flush = () => {
    if (column < 0 || Number.isNaN(low)) return;
    path.lineTo(column, low);
    path.lineTo(column, high);
    path.lineTo(column, last);
  };
  for (let i = 0; i < to; i += 1) {
    const place = y(edge[i] ?? NaN);
    if (Number.isNaN(place)) {
      if (isDense) flush();
      [isDown, column] = [false, -1];
      continue;
    }
    const at = x(times[i] ?? 0);
    if (!isDown) {
      path.moveTo(at, place);
      isDown = true;
    }
    if (!isDense) {
      path.lineTo(at, place);
      continue;
    }
    const here = Math.floor(at);
    if (here !== column) {
      flush();
      [column, low, high] = [here, place, place];
    }
    low = Math.max(low, place);
    high = Math.min(high, place);
    last = place;
  }
  if (isDense) flush();
}

function strokeStyle(context: CanvasRenderingContext2D, style: LineStyle, ratio: number, width: number): void {
  context.strokeStyle = token(`series-${style.colour}`);
  context.lineWidth = width * ratio;
  context.lineJoin = "round";
  context.setLineDash(style.dash.map((length) => length * ratio));
}

const LINE_WIDTH = 1.5;
const OPEN_DASH = [3, 3];

export function paintLine(context: CanvasRenderingContext2D, scene: Scene, at: number, frame: Frame, width = LINE_WIDTH): void {
  const [line, edge] = [scene.lines[at], scene.edges[at]];
  if (line === undefined || edge === undefined) return;
  strokeStyle(context, line.style, frame.ratio, width);
  if (scene.drawing !== "points") {
    const count = scene.times.length;
    const path = new Path2D();
    trace(path, scene, edge, frame, scene.isOpenEnded ? count - 1 : count);
    context.stroke(path);
    if (scene.isOpenEnded) paintOpenEnd(context, scene, edge, frame);
  }
  paintDots(context, scene, line, edge, frame, width);
}

// Dashes of the earlier time of a comparison.
export const EARLIER_DASH = [4, 4];
const EARLIER_ALPHA = 0.75;

// The earlier time of a comparison: thinner, paler and dashed.
function paintEarlier(context: CanvasRenderingContext2D, scene: Scene, at: number, frame: Frame, width = 1): void {
  const line = scene.lines[at];
  if (line?.earlier === undefined || scene.drawing === "stacked" || scene.drawing === "share") return;
  strokeStyle(context, { ...line.style, dash: EARLIER_DASH }, frame.ratio, width);
  context.globalAlpha = EARLIER_ALPHA;
  const path = new Path2D();
  trace(path, scene, line.earlierEdge ?? line.earlier.values, frame);
  context.stroke(path);
  context.globalAlpha = 1;
}

// The last step is dashed as long as its samples may still come.
function paintOpenEnd(context: CanvasRenderingContext2D, scene: Scene, edge: Float64Array, frame: Frame): void {
  const last = scene.times.length - 1;
  const { x, y } = places(frame);
  const [before, value] = [y(edge[last - 1] ?? NaN), y(edge[last] ?? NaN)];
  if (Number.isNaN(before) || Number.isNaN(value)) return;
  context.setLineDash(OPEN_DASH.map((length) => length * frame.ratio));
  context.beginPath();
  context.moveTo(x(scene.times[last - 1] ?? 0), before);
  context.lineTo(x(scene.times[last] ?? 0), value);
  context.stroke();
}

// Samples without neighbours, all samples of points, and the hollow dot at the end of a series.
function paintDots(
  context: CanvasRenderingContext2D,
  scene: Scene,
  line: Line,
  edge: Float64Array,
  frame: Frame,
  width: number,
): void {
  const { x, y } = places(frame);
  const { times, drawing } = scene;
  const isAll = drawing === "points" && times.length <= frame.width;
  const radius = (drawing === "points" ? width + 0.5 : width) * frame.ratio;
  context.fillStyle = token(`series-${line.style.colour}`);
  context.setLineDash([]);
  let end = -1;
  for (let i = 0; i < edge.length; i += 1) {
    if (Number.isNaN(edge[i] ?? NaN)) continue;
    end = i;
    const isAlone = Number.isNaN(edge[i - 1] ?? NaN) && Number.isNaN(edge[i + 1] ?? NaN);
    if (!isAlone && !isAll && drawing !== "points") continue;
    const [cx, cy] = [x(times[i] ?? 0), y(edge[i] ?? NaN)];
    context.beginPath();
    context.arc(cx, cy, radius, 0, 2 * Math.PI);
    context.fill();
  }
  // The newest step may lack a sample that is on its way.
  const hasEnded = end >= 0 && end < times.length - 2 && !line.column.specials.some(({ at }) => at > end);
  if (!hasEnded) return;
  context.beginPath();
  context.arc(x(times[end] ?? 0), y(edge[end] ?? NaN), 3 * frame.ratio, 0, 2 * Math.PI);
  context.fillStyle = token("card");
  context.fill();
  context.lineWidth = LINE_WIDTH * frame.ratio;
  context.stroke();
}

// The area between a line and the one below, or zero; from step to step, broken at gaps.
function paintArea(context: CanvasRenderingContext2D, scene: Scene, at: number, frame: Frame, alpha: number): void {
  const [line, edge, below] = [scene.lines[at], scene.edges[at], scene.edges[at - 1]];
  if (line === undefined || edge === undefined) return;
  const { x, y } = places(frame);
  const floor = scene.isLog ? scene.limits[0] : Math.max(0, scene.limits[0]);
  const base = (i: number) => {
    const value = at > 0 && scene.drawing !== "lines" ? (below?.[i] ?? NaN) : floor;
    return y(Number.isNaN(value) ? floor : value);
  };
  const path = new Path2D();
  let run: number[] = [];
  const close = () => {
    const first = run[0];
    if (first !== undefined && run.length > 1) {
      path.moveTo(x(scene.times[first] ?? 0), base(first));
      for (const i of run) path.lineTo(x(scene.times[i] ?? 0), y(edge[i] ?? NaN));
      for (const i of run.reverse()) path.lineTo(x(scene.times[i] ?? 0), base(i));
      path.closePath();
    }
    run = [];
  };
  for (let i = 0; i < edge.length; i += 1) {
    if (Number.isNaN(y(edge[i] ?? NaN))) close();
    else run.push(i);
  }
  close();
  context.globalAlpha = alpha;
  context.fillStyle = token(`series-${line.style.colour}`);
  context.fill(path);
  context.globalAlpha = 1;
}

// Draws all lines, clipped to the frame.
export function paintScene(context: CanvasRenderingContext2D, scene: Scene, frame: Frame): void {
  context.save();
  context.beginPath();
  context.rect(frame.left, frame.top - 2 * frame.ratio, frame.width, frame.height + 4 * frame.ratio);
  context.clip();
  paintFirings(context, scene, frame);
  const isStacked = scene.drawing === "stacked" || scene.drawing === "share";
  const isInStack = ({ isOver }: Line) => isStacked && !isOver;
  if (isStacked) scene.lines.forEach((line, at) => { if (isInStack(line)) paintArea(context, scene, at, frame, 0.4); });
  else if (scene.lines.length === 1 && scene.drawing === "lines") paintArea(context, scene, 0, frame, 0.1);
  scene.lines.forEach((_, at) => { paintEarlier(context, scene, at, frame); });
  scene.lines.forEach((line, at) => { paintLine(context, scene, at, frame, isInStack(line) ? 1 : LINE_WIDTH); });
  paintSpecials(context, scene, frame);
  paintExemplars(context, scene, frame);
  context.restore();
}

const BAND_ALPHA = 0.14;

// Times at which an alert fired: a band over the whole height, with an edge on top.
function paintFirings(context: CanvasRenderingContext2D, scene: Scene, frame: Frame): void {
  const { x } = places(frame);
  context.fillStyle = token("bad");
  for (const { start, end } of union(scene.marks.firings)) {
    const [left, right] = [x(start), x(end)];
    context.globalAlpha = BAND_ALPHA;
    context.fillRect(left, frame.top, right - left, frame.height);
    context.globalAlpha = 1;
    context.fillRect(left, frame.top, right - left, 2 * frame.ratio);
  }
}

// Exemplars are diamonds; those outside of the axis lie on its edge.
function paintExemplars(context: CanvasRenderingContext2D, scene: Scene, frame: Frame): void {
  const { x, y } = places(frame);
  const size = 4 * frame.ratio;
  const [low, high] = frame.limits;
  context.setLineDash([]);
  context.lineWidth = 1.5 * frame.ratio;
  context.fillStyle = token("card");
  context.strokeStyle = token("text");
  for (const { time, value } of scene.marks.exemplars) {
    const [cx, cy] = [x(time), y(Math.max(low, Math.min(high, value)))];
    context.beginPath();
    context.moveTo(cx, cy - size);
    context.lineTo(cx + size, cy);
    context.lineTo(cx, cy + size);
    context.lineTo(cx - size, cy);
    context.closePath();
    context.fill();
    context.stroke();
  }
}

// Values without a place: triangles at the upper edge for +Inf, at the lower for -Inf, a cross for NaN.
function paintSpecials(context: CanvasRenderingContext2D, scene: Scene, frame: Frame): void {
  const { x } = places(frame);
  const size = 4 * frame.ratio;
  for (const { column, style } of scene.lines) {
    if (column.specials.length === 0) continue;
    context.fillStyle = token(`series-${style.colour}`);
    context.strokeStyle = context.fillStyle;
    context.lineWidth = frame.ratio;
    context.setLineDash([]);
    let previous = -Infinity;
    for (const { at, text } of column.specials) {
      const cx = x(scene.times[at] ?? 0);
      if (cx - previous < size * 1.5) continue;
      previous = cx;
      const isUp = text === "+Inf";
      const cy = isUp ? frame.top + size : frame.top + frame.height - size;
      context.beginPath();
      if (text === "NaN") {
        context.moveTo(cx - size, cy - size);
        context.lineTo(cx + size, cy + size);
        context.moveTo(cx + size, cy - size);
        context.lineTo(cx - size, cy + size);
        context.stroke();
        continue;
      }
      const tip = isUp ? -size : size;
      context.moveTo(cx, cy + tip);
      context.lineTo(cx - size, cy - tip);
      context.lineTo(cx + size, cy - tip);
      context.fill();
    }
  }
}

// How much of the picture is taken back while one line is brought forward.
const VEIL = 0.66;

// Brings a line forward: the others pale, this one strong, with a dot at a step.
export function paintFocus(
  context: CanvasRenderingContext2D,
  scene: Scene,
  at: number,
  step: number | undefined,
  frame: Frame,
): void {
  if (scene.lines.length > 1) {
    context.save();
    context.globalAlpha = VEIL;
    context.fillStyle = token("card");
    context.fillRect(frame.left, frame.top, frame.width, frame.height);
    context.restore();
  }
  paintEarlier(context, scene, at, frame, 2);
  paintLine(context, scene, at, frame, 2.5);
  const [line, edge] = [scene.lines[at], scene.edges[at]];
  const value = edge?.[step ?? -1] ?? NaN;
  if (line === undefined || step === undefined || Number.isNaN(value)) return;
  const { x, y } = places(frame);
  context.setLineDash([]);
  context.beginPath();
  context.arc(x(scene.times[step] ?? 0), y(value), 4 * frame.ratio, 0, 2 * Math.PI);
  context.fillStyle = token(`series-${line.style.colour}`);
  context.fill();
  context.strokeStyle = token("card");
  context.lineWidth = 1.5 * frame.ratio;
  context.stroke();
}
