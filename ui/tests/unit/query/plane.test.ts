import { expect, test } from "vitest";
import { ColourBook, lineStyle } from "../../../src/graph/colours";
import { NO_MARKS } from "../../../src/graph/marks";
import { onSteps, type Column } from "../../../src/graph/matrix";
import { makeScene, nearestLine, type Line, type SceneOptions } from "../../../src/graph/scene";
import { NO_MEASURE, type Measure } from "../../../src/graph/units";
import { emptyPanel, leadOf, leadsFor, readPanels, writePanels, type PanelState } from "../../../src/query/panels";
import { Plane } from "../../../src/query/plane.svelte";

const BYTES: Measure = { unit: "bytes", perSecond: false, noun: "" };
const SECONDS: Measure = { unit: "seconds", perSecond: false, noun: "" };
const STEPS = { start: 0, end: 30, step: 10 };

const column = (values: number[]): Column => ({ labels: {}, values: Float64Array.from(values), specials: [], histograms: [] });
const line = (values: number[], more: Partial<Line> = {}): Line =>
  ({ key: "k", name: "n", column: column(values), style: lineStyle(0), ...more });

const scene = (options: Partial<SceneOptions>) =>
  makeScene({
    steps: STEPS, times: Float64Array.from([0, 10, 20, 30]), lines: [line([0, 4, 8, 10])], drawing: "lines", isLog: false,
    min: undefined, max: undefined, measure: NO_MEASURE, zone: "UTC", isOpenEnded: false, marks: NO_MARKS, ...options,
  });

test("a line of the same unit widens the axis", () => {
  const both = scene({ guests: [line([100, 100, 100, 100], { measure: NO_MEASURE })] });
  expect(both.second).toBeUndefined();
  expect(both.limits[1]).toBeGreaterThan(100);
  expect([...(both.edges[1] ?? [])]).toEqual([100, 100, 100, 100]);
});

test("a line of another unit lies on the second axis, at the height of its values", () => {
  const plain = scene({});
  const both = scene({ guests: [line([0, NaN, 1e9, 2e9], { measure: BYTES, earlier: column([2e9, 0, 0, 0]) })], second: BYTES });
  expect(both.limits).toEqual(plain.limits);
  const [low, high] = both.second?.limits ?? [NaN, NaN];
  expect([low, high > 2e9]).toEqual([0, true]);
  const [first, gap, middle, last] = both.edges[1] ?? [];
  expect([first, gap]).toEqual([0, NaN]);
  expect(middle).toBeCloseTo((1e9 / high) * both.limits[1]);
  expect(last).toBeCloseTo((2e9 / high) * both.limits[1]);
  expect(both.lines[1]?.earlierEdge?.[0]).toBeCloseTo((2e9 / high) * both.limits[1]);
  // The values themselves stay, for tooltip and legend.
  expect(both.lines[1]?.column.values[3]).toBe(2e9);
  expect(nearestLine(both, 2, middle ?? NaN, (value) => value)?.line).toBe(1);
});

test("a second axis is logarithmic with the first one", () => {
  const both = scene({ isLog: true, lines: [line([1, 10, 100, 1000])], guests: [line([1e6, 1e7, 0, 1e9], { measure: BYTES })], second: BYTES });
  const [a = NaN, b = NaN, c = NaN] = both.edges[1] ?? [];
  expect(a).toBeGreaterThanOrEqual(both.limits[0]);
  expect(b / a).toBeCloseTo(10 ** (Math.log(both.limits[1] / both.limits[0]) / Math.log((both.second?.limits[1] ?? 0) / (both.second?.limits[0] ?? 1))));
  expect(c > 0).toBe(false);
});

test("a column moves to the nearest of other steps", () => {
  const moved = onSteps({ ...column([1, 2, NaN, 4]), specials: [{ at: 2, text: "NaN" }] }, STEPS, { start: 11, end: 41, step: 10 });
  expect([...moved.values]).toEqual([2, NaN, 4, NaN]);
  expect(moved.specials).toEqual([{ at: 1, text: "NaN" }]);
});

test("lines of one plane have different colours, also after another answer", () => {
  const book = new ColourBook();
  expect(book.assign(["b1"], [])).toEqual([0]);
  expect(book.assign(["a1", "a2"], ["b1"])).toEqual([1, 2]);
  expect(book.assign(["b1", "b2"], ["a1", "a2"])).toEqual([0, 3]);
});

test("a plane has two units", () => {
  const plane = new Plane();
  expect(plane.draws(BYTES)).toBe(false);
  plane.measure = NO_MEASURE;
  plane.put(2, { letter: "C", lines: [], steps: STEPS, measure: SECONDS });
  expect(plane.second).toEqual(SECONDS);
  plane.put(1, { letter: "B", lines: [], steps: STEPS, measure: BYTES });
  expect([NO_MEASURE, BYTES, SECONDS].map((measure) => plane.draws(measure))).toEqual([true, true, false]);
  plane.leave(1);
  expect(plane.draws(SECONDS)).toBe(true);
});

test("the shared graph is in the address", () => {
  const params = new URLSearchParams("g0.expr=a&g1.expr=b&g1.on=0&g2.expr=c&g2.on=x");
  const panels = readPanels(params);
  expect(panels.map(({ on }) => on)).toEqual([undefined, 0, undefined]);
  writePanels(params, panels, { range: "1h", end: "" });
  expect([params.get("g1.on"), params.get("g2.on")]).toEqual(["0", null]);
});

test.each<[string, Partial<PanelState>[], (number | undefined)[]]>([
  ["a graph", [{}, { on: 0 }], [undefined, 0]],
  ["a table", [{ view: "table" }, { on: 0 }], [undefined, undefined]],
  ["a hidden panel", [{ isHidden: true }, { on: 0 }], [undefined, undefined]],
  ["an empty panel", [{ expr: "" }, { on: 0 }], [undefined, undefined]],
  ["a removed panel", [{}, { on: 7 }], [undefined, undefined]],
  ["itself", [{ on: 0 }, {}], [undefined, undefined]],
  ["each other", [{ on: 1 }, { on: 0 }], [undefined, undefined]],
  ["one that draws elsewhere", [{}, { on: 0 }, { on: 1 }], [undefined, 0, undefined]],
])("a panel on %s", (_name, changes, expected) => {
  const panels = changes.map((change, number) => ({ ...emptyPanel(number), expr: "up", ...change }));
  expect(panels.map((panel) => leadOf(panel, panels)?.number)).toEqual(expected);
});

test("a panel whose graph others use keeps it", () => {
  const panels = [{}, { on: 0 }, {}].map((change, number) => ({ ...emptyPanel(number), expr: "up", ...change }));
  expect(panels.map((panel) => leadsFor(panel, panels).map(({ number }) => number))).toEqual([[], [0, 2], [0]]);
});
