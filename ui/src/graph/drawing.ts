// The content of a plot inside its axes: lines or the cells of a heat map.

import type { Steps } from "./matrix";
import { paintFocus, paintScene, type Frame } from "./paint";
import { nearestLine, type Scene } from "./scene";
import { logTicks, tickLabels, ticks } from "./ticks";
import { axisText } from "./valueText";

// An item that is brought forward, at a step if the pointer chose one.
export interface Focus {
  item: number;
  at: number | undefined;
}

export interface Drawing {
  steps: Steps;
  zone: string;
  isLog: boolean;
  limits: [number, number];
  paint(context: CanvasRenderingContext2D, frame: Frame): void;
  paintFocus(context: CanvasRenderingContext2D, frame: Frame, focus: Focus): void;
  // Places of the lines of the grid, and their labels.
  ticks(min: number, max: number, count: number): number[];
  labels(ticks: readonly number[]): string[];
  // The item at a step and a height. `place` converts values to heights; `value` is that of `top`.
  find(at: number, top: number, value: number, place: (value: number) => number): Focus | undefined;
}

export function lines(scene: Scene): Drawing {
  return {
    steps: scene.steps,
    zone: scene.zone,
    isLog: scene.isLog,
    limits: scene.limits,
    paint: (context, frame) => { paintScene(context, scene, frame); },
    paintFocus: (context, frame, { item, at }) => {
      if (item < scene.lines.length) paintFocus(context, scene, item, at, frame);
    },
    ticks: (min, max, count) =>
      scene.isLog ? logTicks(min, max, count) : ticks(min, max, count, scene.measure.unit === "bytes"),
    labels: (found) => tickLabels(found, (value, digits) => axisText(value, scene.measure, digits)),
    find: (at, top, _value, place) => {
      const found = nearestLine(scene, at, top, place);
      return found === undefined ? undefined : { item: found.line, at: found.at };
    },
  };
}
