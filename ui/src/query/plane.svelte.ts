// The plane of a graph: the lines of its own panel, and those of panels that share it.

import { untrack } from "svelte";
import { ColourBook } from "../graph/colours";
import type { Steps } from "../graph/matrix";
import type { Line } from "../graph/scene";
import type { Measure } from "../graph/units";

// The lines of a panel that shares the graph of another one.
export interface Layer {
  letter: string;
  lines: readonly Line[];
  // Steps of the columns of the lines.
  steps: Steps;
  measure: Measure;
}

export const isSameMeasure = (one: Measure | undefined, other: Measure | undefined): boolean =>
  one?.unit === other?.unit && one?.perSecond === other?.perSecond;

export class Plane {
  // The unit of the first axis; undefined while the owner draws no graph.
  measure = $state.raw<Measure>();
  layers = $state.raw<ReadonlyMap<number, Layer>>(new Map());
  // Key of the line that is brought forward.
  focused = $state<string>();

  // The unit of the second axis: that of the first panel with another unit.
  readonly second = $derived.by((): Measure | undefined => {
    if (this.measure === undefined) return undefined;
    const numbers = [...this.layers.keys()].sort((a, b) => a - b);
    return numbers.map((number) => this.layers.get(number)?.measure).find((measure) => !isSameMeasure(measure, this.measure));
  });

  readonly #colours = new ColourBook();
  readonly #keys = new Map<number, readonly string[]>();

  // Whether a panel with this unit is drawn here: a graph has two axes.
  draws(measure: Measure): boolean {
    if (this.measure === undefined) return false;
    return isSameMeasure(measure, this.measure) || this.second === undefined || isSameMeasure(measure, this.second);
  }

  put(number: number, layer: Layer | undefined): void {
    untrack(() => {
      const next = new Map(this.layers);
      if (layer === undefined) next.delete(number);
      else next.set(number, layer);
      this.layers = next;
    });
  }

  // Places in the order of colours for the lines of a panel; no two lines of the plane have the same.
  assign(number: number, keys: readonly string[]): number[] {
    this.#keys.set(number, keys);
    const others = [...this.#keys].flatMap(([of, list]) => (of === number ? [] : list));
    return this.#colours.assign(keys, others);
  }

  // Frees the colours of a panel.
  leave(number: number): void {
    this.#keys.delete(number);
    this.put(number, undefined);
  }
}
