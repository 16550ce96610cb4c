// A line graph on a canvas: axes, lines that break where samples are missing, a tooltip at the
// nearest line, a legend that hides and isolates, and a range chosen by dragging.

import { element, formatNumber, formatTime, labelsElement } from "./format.js";

const MARGIN = { left: 64, right: 14, top: 10, bottom: 22 };
const LEGEND_MAX = 200;

// Hues that color-blind people can tell apart; after them, steps of the golden angle.
const HUES = [204, 28, 140, 350, 268, 50, 180, 320, 95, 235];

export function color(index, dark) {
  const hue = index < HUES.length ? HUES[index] : (index * 137.5) % 360;
  return `hsl(${hue} ${dark ? 68 : 72}% ${dark ? 62 : 42}%)`;
}

const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Round numbers that cut [min, max] into at most `count` parts; powers of two for bytes.
export function ticks(min, max, count, isBinary) {
  const span = max - min || Math.abs(max) || 1;
  const finest = span / count;
  let step = 2 ** Math.ceil(Math.log2(finest));
  if (!isBinary) {
    const power = 10 ** Math.floor(Math.log10(finest));
    step = power * [1, 2, 5, 10, 20].find((factor) => power * factor >= finest * (1 - 1e-9));
  }
  const first = Math.ceil(min / step);
  const found = Array.from({ length: count + 2 }, (_, i) => (first + i) * step);
  return found.filter((tick) => tick <= max + span * 1e-9);
}

const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
  1209600, 2592000, 7776000, 31536000,
];

function timeTicks(start, end, count) {
  const step = TIME_STEPS.find((s) => (end - start) / s <= count) ?? 31536000;
  const offset = new Date(start * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let t = Math.ceil((start - offset) / step) * step + offset; t <= end; t += step) found.push(t);
  return found;
}

export class Graph {
  // `options`: height, unit, legend (boolean), onselect(start, end) in seconds.
  constructor(parent, options = {}) {
    this.options = { height: 340, unit: "", legend: true, ...options };
    this.canvas = element("canvas");
    this.tip = element("div", { class: "tip", hidden: "" });
    this.selection = element("div", { class: "selection", hidden: "" });
    this.plot = element("div", { class: "plot" }, this.canvas, this.selection, this.tip);
    this.legend = element("ul", { class: "legend" });
    parent.replaceChildren(this.plot, ...(this.options.legend ? [this.legend] : []));
    this.series = [];
    this.hidden = new Set();
    this.watchPointer();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.plot);
  }

  // Takes the result of a range query. `window` is { start, end, step } in seconds.
  show(result, window) {
    this.window = window;
    this.series = result.map((series, index) => ({
      index,
      metric: series.metric,
      points: (series.values ?? []).map(([time, value]) => [time, Number(value)]),
    }));
    this.hidden.clear();
    this.drawLegend();
    this.draw();
  }

  visible() {
    return this.series.filter((series) => !this.hidden.has(series.index));
  }

  bounds() {
    let min = Infinity;
    let max = -Infinity;
    for (const { points } of this.visible()) {
      for (const [, value] of points) {
        if (!Number.isFinite(value)) continue;
        if (value < min) min = value;
        if (value > max) max = value;
      }
    }
    if (min > max) return [0, 1];
    // A graph that nearly touches zero starts there: heights can then be compared.
    if (min > 0 && min < max * 0.5) min = 0;
    // A height below the precision of a float is not drawn.
    if (max - min <= Math.abs(max) * 1e-12) return min === 0 ? [0, 1] : [Math.min(0, min * 1.2), Math.max(0, max * 1.2)];
    const room = (max - min) * 0.06;
    return [min === 0 ? 0 : min - room, max + room];
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width || !this.window) return;
    const { height } = this.options;
    const scale = devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    const [min, max] = this.bounds();
    const { start, end } = this.window;
    const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    this.x = (time) => MARGIN.left + ((time - start) / (end - start || 1)) * inner.width;
    this.y = (value) => MARGIN.top + (1 - (value - min) / (max - min)) * inner.height;
    this.time = (x) => start + ((x - MARGIN.left) / inner.width) * (end - start);
    this.drawAxes(context, width, height, min, max);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, 0, inner.width + 1, height - MARGIN.bottom + 2);
    context.clip();
    const dark = isDark();
    for (const series of this.visible()) this.drawLine(context, series, color(series.index, dark));
    context.restore();
  }

  drawAxes(context, width, height, min, max) {
    const { start, end } = this.window;
    context.font = "11px system-ui, sans-serif";
    context.lineWidth = 1;
    context.strokeStyle = cssColor("--grid");
    context.fillStyle = cssColor("--muted");
    context.textAlign = "right";
    context.textBaseline = "middle";
    const rows = Math.max(3, Math.round(height / 45));
    for (const tick of ticks(min, max, rows, this.options.unit === "bytes")) {
      const y = Math.round(this.y(tick)) + 0.5;
      context.beginPath();
      context.moveTo(MARGIN.left, y);
      context.lineTo(width - MARGIN.right, y);
      context.stroke();
      context.fillText(formatNumber(tick, this.options.unit), MARGIN.left - 7, y);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const tick of timeTicks(start, end, Math.max(2, width / 100))) {
      const x = Math.round(this.x(tick)) + 0.5;
      context.beginPath();
      context.moveTo(x, MARGIN.top);
      context.lineTo(x, height - MARGIN.bottom);
      context.stroke();
      context.fillText(formatTime(tick * 1000, end - start), x, height - MARGIN.bottom + 6);
    }
  }

  drawLine(context, { points }, stroke) {
    const gap = this.window.step * 1.5;
    context.strokeStyle = stroke;
    context.fillStyle = stroke;
    context.lineWidth = 1.6;
    context.lineJoin = "round";
    context.beginPath();
    let previous = -Infinity;
    points.forEach(([time, value], i) => {
      if (!Number.isFinite(value)) return;
      const [x, y] = [this.x(time), this.y(value)];
      if (time - previous <= gap) context.lineTo(x, y);
      else context.moveTo(x, y);
      const next = points[i + 1];
      // A sample with no neighbour has no line: it is a dot.
      if (time - previous > gap && (!next || next[0] - time > gap)) context.rect(x - 1.5, y - 1.5, 3, 3);
      previous = time;
    });
    context.stroke();
  }

  drawLegend() {
    if (!this.options.legend) return;
    const dark = isDark();
    const items = this.series.slice(0, LEGEND_MAX).map((series) => {
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = color(series.index, dark);
      return element("li", {
        title: "Click: show only this series. Ctrl+click: hide or show it.",
        onclick: (event) => this.toggle(series.index, event.ctrlKey || event.metaKey),
        onpointerenter: () => this.emphasize(series),
        onpointerleave: () => this.draw(),
      }, swatch, labelsElement(series.metric));
    });
    const more = this.series.length - LEGEND_MAX;
    if (more > 0) items.push(element("li", { class: "muted" }, `and ${more} more series`));
    this.legend.replaceChildren(...items);
  }

  emphasize(series) {
    if (this.hidden.has(series.index) || !this.x) return;
    const context = this.canvas.getContext("2d");
    const [back, stroke] = [cssColor("--card"), color(series.index, isDark())];
    context.save();
    context.globalAlpha = 0.72;
    context.fillStyle = back;
    context.fillRect(MARGIN.left, 0, this.canvas.width, this.options.height - MARGIN.bottom);
    context.restore();
    this.drawLine(context, series, stroke);
  }

  toggle(index, only) {
    const others = this.series.filter((s) => s.index !== index);
    if (only) {
      if (!this.hidden.delete(index)) this.hidden.add(index);
    } else if (!this.hidden.has(index) && others.every((s) => this.hidden.has(s.index))) {
      this.hidden.clear();
    } else {
      this.hidden = new Set(others.map((s) => s.index));
    }
    [...this.legend.children].forEach((item, i) => item.classList.toggle("off", this.hidden.has(i)));
    this.draw();
  }

  watchPointer() {
    let from;
    const place = (event) => event.clientX - this.plot.getBoundingClientRect().left;
    this.plot.addEventListener("pointerdown", (event) => {
      if (!this.options.onselect || !this.x) return;
      from = place(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.plot.addEventListener("pointermove", (event) => {
      if (!this.x) return;
      if (from !== undefined) {
        const to = place(event);
        this.selection.hidden = Math.abs(to - from) < 4;
        this.selection.style.left = `${Math.min(from, to)}px`;
        this.selection.style.width = `${Math.abs(to - from)}px`;
        this.selection.style.height = `${this.options.height - MARGIN.bottom}px`;
      }
      this.point(event);
    });
    this.plot.addEventListener("pointerup", (event) => {
      const to = place(event);
      this.selection.hidden = true;
      const dragged = from !== undefined && Math.abs(to - from) >= 4;
      const edges = dragged && [this.time(Math.min(from, to)), this.time(Math.max(from, to))];
      from = undefined;
      if (edges) this.options.onselect(...edges);
    });
    this.plot.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
      this.draw();
    });
  }

  // Finds the sample nearest to the pointer and shows it in the tooltip.
  point(event) {
    const box = this.plot.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    const time = this.time(px);
    let best;
    for (const series of this.visible()) {
      const point = nearest(series.points, time);
      if (!point || !Number.isFinite(point[1])) continue;
      const distance = Math.hypot((this.x(point[0]) - px) * 2, this.y(point[1]) - py);
      if (!best || distance < best.distance) best = { series, point, distance };
    }
    this.draw();
    if (!best) {
      this.tip.hidden = true;
      return;
    }
    this.mark(best);
    const [at, value] = best.point;
    this.tip.replaceChildren(
      element("div", { class: "time" }, formatTime(at * 1000)),
      element("div", { class: "value" }, `${formatNumber(value, this.options.unit)}`),
      labelsElement(best.series.metric),
    );
    this.tip.hidden = false;
    const width = this.tip.offsetWidth;
    const left = px + 16 + width > box.width ? Math.max(0, px - 16 - width) : px + 16;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${Math.max(0, py - this.tip.offsetHeight - 12)}px`;
  }

  mark({ series, point: [time, value] }) {
    const context = this.canvas.getContext("2d");
    const [x, y] = [this.x(time), this.y(value)];
    context.strokeStyle = cssColor("--muted");
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, MARGIN.top);
    context.lineTo(Math.round(x) + 0.5, this.options.height - MARGIN.bottom);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = color(series.index, isDark());
    context.beginPath();
    context.arc(x, y, 4, 0, 2 * Math.PI);
    context.fill();
  }
}

function nearest(points, time) {
  let [low, high] = [0, points.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < time) low = middle + 1;
    else high = middle;
  }
  const [before, after] = [points[low - 1], points[low]];
  if (!before || !after) return after ?? before;
  return time - before[0] < after[0] - time ? before : after;
}
