// A plot on the page. uPlot draws the axes and the grid and follows the pointer; a Drawing draws the
// content, because a line that is brought forward must not redraw a thousand others.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { token } from "./colours";
import type { Axis, Drawing, Focus } from "./drawing";
import { countSteps } from "./matrix";
import type { Frame } from "./paint";
import { stepAt } from "./scene";
import { timeTicks } from "./ticks";
import { timeLabels, zoneOffset } from "./zone";
import { listenForPan } from "./pan";
import { listenForTouch } from "./touch";

// The item and step under the pointer, and the place of the pointer in the plot.
export interface Pointed {
  item: number;
  at: number;
  left: number;
  top: number;
}

export interface PlotEvents {
  onpoint: (pointed: Pointed | undefined) => void;
  // A range was chosen, in seconds.
  onselect: (start: number, end: number) => void;
  onback: () => void;
  // Moves the range by a share of its length.
  onpan: (share: number) => void;
}

const FONT = "11px system-ui, sans-serif";
const CURSORS = "query";
// The scale of the second axis.
const SECOND = "second";

// uPlot requires a series on each scale: these represent all items.
const EMPTY: uPlot.Series = { show: true, points: { show: false }, paths: () => null };

export class Plot {
  #drawing: Drawing;
  readonly #plot: uPlot;
  readonly #overlay = document.createElement("canvas");
  readonly #observer: ResizeObserver;
  readonly #stops: (() => void)[];
  #focused: Focus | undefined;

  constructor(
    private readonly host: HTMLElement,
    drawing: Drawing,
    private readonly height: number,
    private readonly events: PlotEvents,
  ) {
    this.#drawing = drawing;
    this.#plot = new uPlot(this.#options(), this.#data(), host);
    this.#overlay.className = "overlay";
    this.#plot.over.prepend(this.#overlay);
    this.#observer = new ResizeObserver(() => {
      this.#resize();
    });
    this.#observer.observe(host);
    this.#stops = [listenForPan(this.#plot, this.events), listenForTouch(this.#plot, this.events)];
    this.#plot.over.addEventListener("mouseleave", this.#leave);
  }

  // Shows another drawing, if its axes are of the same kind.
  show(drawing: Drawing): boolean {
    const isFit = drawing.isLog === this.#drawing.isLog && (drawing.second === undefined) === (this.#drawing.second === undefined);
    if (!isFit) return false;
    this.#drawing = drawing;
    this.#plot.setData(this.#data(), false);
    this.#rescale();
    return true;
  }

  // Draws again, for example in another theme.
  redraw(): void {
    this.#plot.redraw(false, true);
    this.#paintOverlay();
  }

  // Brings an item forward, or none.
  focus(focus: Focus | undefined): void {
    this.#focused = focus;
    this.#paintOverlay();
  }

  // The picture with its axes, for a file.
  get canvas(): HTMLCanvasElement {
    return this.#plot.ctx.canvas;
  }

  destroy(): void {
    this.#observer.disconnect();
    for (const stop of this.#stops) stop();
    this.#plot.destroy();
  }

  readonly #leave = (): void => {
    this.focus(undefined);
    this.events.onpoint(undefined);
  };

  #data(): uPlot.AlignedData {
    const { steps } = this.#drawing;
    const times = Array.from({ length: countSteps(steps) }, (_, i) => steps.start + i * steps.step);
    const empty = new Array<null>(times.length).fill(null);
    return this.#drawing.second ? [times, empty, empty] : [times, empty];
  }

  #rescale(): void {
    const [start, end] = this.#range();
    this.#plot.batch(() => {
      this.#plot.setScale("x", { min: start, max: end });
      this.#scaleValues(this.#plot);
    });
    this.redraw();
  }

  #scaleValues(plot: uPlot): void {
    const { limits, second } = this.#drawing;
    plot.setScale("y", { min: limits[0], max: limits[1] });
    if (second) plot.setScale(SECOND, { min: second.limits[0], max: second.limits[1] });
  }

  #resize(): void {
    const width = this.host.clientWidth;
    if (width === 0 || (width === this.#plot.width && this.height === this.#plot.height)) return;
    this.#plot.setSize({ width, height: this.height });
    this.#paintOverlay();
  }

  // Where the lines are drawn, on the canvas of uPlot or on the overlay.
  #frame(isOverlay: boolean): Frame {
    const { bbox, scales } = this.#plot;
    const { min: from = 0, max: to = 1 } = scales.x ?? {};
    const base = { width: bbox.width, height: bbox.height, ratio: uPlot.pxRatio };
    const place = isOverlay ? { left: 0, top: 0 } : { left: bbox.left, top: bbox.top };
    return { ...base, ...place, from: from ?? 0, to: to ?? 1, limits: this.#drawing.limits, isLog: this.#drawing.isLog };
  }

  #paintOverlay(): void {
    const { bbox } = this.#plot;
    if (this.#overlay.width !== bbox.width || this.#overlay.height !== bbox.height) {
      this.#overlay.width = bbox.width;
      this.#overlay.height = bbox.height;
    }
    const context = this.#overlay.getContext("2d");
    if (context === null) return;
    context.clearRect(0, 0, bbox.width, bbox.height);
    if (this.#focused !== undefined) {
      this.#drawing.paintFocus(context, this.#frame(true), this.#focused);
    }
  }

  // Finds the item nearest to the pointer. Pointers of other panels move the vertical line alone.
  #point(): void {
    const { left = -1, top = -1 } = this.#plot.cursor;
    if (left < 0 || top < 0 || !this.#plot.over.matches(":hover, .touched")) return;
    const { steps } = this.#drawing;
    const at = stepAt(steps, this.#plot.posToVal(left, "x"), countSteps(steps));
    const place = (value: number) => this.#plot.valToPos(value, "y");
    const found = this.#drawing.find(at, top, this.#plot.posToVal(top, "y"), place);
    this.focus(found);
    this.events.onpoint(found && { item: found.item, at: found.at ?? at, left: left + this.#plot.over.offsetLeft, top });
  }

  #select(): void {
    const { left, width } = this.#plot.select;
    if (width < 4) return;
    const [start, end] = [this.#plot.posToVal(left, "x"), this.#plot.posToVal(left + width, "x")];
    this.#plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.events.onselect(start, end);
  }

  #options(): uPlot.Options {
    const { second } = this.#drawing;
    return {
      width: Math.max(100, this.host.clientWidth),
      height: this.height,
      legend: { show: false },
      scales: {
        x: { time: false, range: () => this.#range() },
        y: { range: () => this.#drawing.limits, distr: this.#drawing.isLog ? 3 : 1 },
        ...(second && { [SECOND]: { range: () => this.#drawing.second?.limits ?? [0, 1], distr: this.#drawing.isLog ? 3 : 1 } }),
      },
      series: [{}, EMPTY, ...(second ? [{ ...EMPTY, scale: SECOND }] : [])],
      axes: [
        this.#timeAxis(),
        this.#valueAxis(() => this.#drawing),
        ...(second ? [{ ...this.#valueAxis(() => this.#drawing.second ?? this.#drawing), scale: SECOND, side: 1, grid: { show: false } }] : []),
      ],
      padding: [10, 30, 0, 0],
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: false },
        sync: { key: CURSORS, setSeries: false, scales: ["x", null] },
        bind: {
          dblclick: () => () => {
            this.events.onback();
            return null;
          },
        },
      },
      hooks: {
        draw: [
          (plot) => {
            this.#drawing.paint(plot.ctx, this.#frame(false));
          },
        ],
        setCursor: [() => { this.#point(); }],
        setSelect: [() => { this.#select(); }],
        ready: [
          (plot) => {
            const [start, end] = this.#range();
            plot.setScale("x", { min: start, max: end });
            this.#scaleValues(plot);
          },
        ],
      },
    };
  }

  #range(): [number, number] {
    const { start, end, step } = this.#drawing.steps;
    return [start, Math.max(end, start + step)];
  }

  #timeAxis(): uPlot.Axis {
    return {
      stroke: () => token("muted"),
      font: FONT,
      size: 38,
      gap: 4,
      grid: { stroke: () => token("grid"), width: 1 },
      ticks: { stroke: () => token("line"), width: 1, size: 4 },
      splits: (plot, _axis, min, max) => {
        const count = Math.max(2, Math.floor(plot.bbox.width / uPlot.pxRatio / 90));
        return timeTicks(min, max, count, zoneOffset(min, this.#drawing.zone));
      },
      values: (_plot, splits) => timeLabels(splits, this.#drawing.zone),
    };
  }

  #valueAxis(axis: () => Axis): uPlot.Axis {
    return {
      stroke: () => token("muted"),
      font: FONT,
      gap: 6,
      grid: { stroke: () => token("grid"), width: 1 },
      ticks: { show: false },
      size: (_plot, values) => {
        const longest = Math.max(0, ...(values ?? []).map((text) => text.length));
        return Math.max(44, longest * 6.6 + 14);
      },
      splits: (plot, _axis, min, max) => {
        const count = Math.max(3, Math.round(plot.bbox.height / uPlot.pxRatio / 44));
        return axis().ticks(min, max, count);
      },
      values: (_plot, splits) => axis().labels(splits),
    };
  }
}
