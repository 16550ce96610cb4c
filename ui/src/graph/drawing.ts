// The content of a plot inside its axes: lines or the cells of a heat map.

import type { Steps } from "./matrix";
import { paintFocus, paintScene, type Frame } from "./paint";
import { nearestLine, type Scene, type SecondAxis } from "./scene";
import { logTicks, tickLabels, ticks } from "./ticks";
import { axisText } from "./valueText";

// An item that is brought forward, at a step if the pointer chose one.
export interface Focus {
  item: number;
  at: number | undefined;
}

// The lines of the grid on an axis, and their labels.
export interface Axis {
  limits: [number, number];
  ticks(min: number, max: number, count: number): number[];
  labels(ticks: readonly number[]): string[];
}

export interface Drawing extends Axis {
  steps: Steps;
  zone: string;
  isLog: boolean;
  // The axis on the other side.
  second?: Axis | undefined;
  paint(context: CanvasRenderingContext2D, frame: Frame): void;
  paintFocus(context: CanvasRenderingContext2D, frame: Frame, focus: Focus): void;
  // The item at a step and a height. `place` converts values to heights; `value` is that of `top`.
  find(at: number, top: number, value: number, place: (value: number) => number): Focus | undefined;
}

function axisOf({ limits, measure }: SecondAxis, isLog: boolean): Axis {
  return {
    limits,
    ticks: (min, max, count) => (isLog ? logTicks(min, max, count) : ticks(min, max, count, measure.unit === "bytes")),
    labels: (found) => tickLabels(found, (value, digits) => axisText(value, measure, digits)),
  };
}

export function lines(scene: Scene): Drawing {
  return {
    ...axisOf(scene, scene.isLog),
    second: scene.second && axisOf(scene.second, scene.isLog),
    steps: scene.steps,
    zone: scene.zone,
    isLog: scene.isLog,
    paint: (context, frame) => { paintScene(context, scene, frame); },
    paintFocus: (context, frame, { item, at }) => {
      if (item < scene.lines.length) paintFocus(context, scene, item, at, frame);
    },
    find: (at, top, _value, place) => {
      const found = nearestLine(scene, at, top, place);
      return found === undefined ? undefined : { item: found.line, at: found.at };
    },
  };
}
