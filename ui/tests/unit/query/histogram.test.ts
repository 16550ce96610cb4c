import { describe, expect, test } from "vitest";
import { toMatrix } from "../../../src/graph/matrix";
import { boundsAxis, classicCells, differ, groups, isHistogramAnswer, merge, nativeCells, quantile, rankOf, shade } from "../../../src/histogram/cells";

const bucket = (le: string, values: number[], labels = {}) => ({
  metric: { ...labels, le },
  times: Float64Array.from(values, (_, i) => i * 10),
  values: Float64Array.from(values),
  histograms: [],
});
const STEPS = { start: 0, end: 20, step: 10 };

describe("classic histograms", () => {
  test("cumulative counts become separate ones", () => {
    const cells = classicCells([{ le: Infinity, count: 10 }, { le: 1, count: 4 }, { le: 5, count: 9 }]);
    expect(cells).toEqual([
      { lower: 0, upper: 1, count: 4 },
      { lower: 1, upper: 5, count: 5 },
      { lower: 5, upper: Infinity, count: 1 },
    ]);
  });

  test("a count below its predecessor is no negative number", () => {
    expect(classicCells([{ le: 1, count: 4 }, { le: 2, count: 3 }, { le: 3, count: 6 }]).map(({ count }) => count)).toEqual([4, 0, 2]);
  });

  test("negative bounds have an open lowest bucket", () => {
    expect(classicCells([{ le: -1, count: 1 }, { le: 1, count: 2 }])[0]?.lower).toBe(-Infinity);
  });

  test("series with `le` are grouped by their other labels and added up", () => {
    const matrix = toMatrix([
      bucket("1", [1, 2, NaN], { job: "a" }),
      bucket("+Inf", [3, 4, NaN], { job: "a" }),
      bucket("1", [5, 5, 5], { job: "b" }),
      bucket("+Inf", [6, 6, 6], { job: "b" }),
    ], STEPS);
    expect(isHistogramAnswer(matrix)).toBe(true);
    const found = groups(matrix);
    expect(found.map(({ labels }) => labels)).toEqual([{ job: "a" }, { job: "b" }]);
    expect(found[0]?.columns.map(({ at, total }) => [at, total])).toEqual([[0, 3], [1, 4]]);
    expect(merge(found).map(({ at, total }) => [at, total])).toEqual([[0, 9], [1, 10], [2, 6]]);
  });

  test("series without bounds are no histograms", () => {
    expect(isHistogramAnswer(toMatrix([bucket("x", [1]), bucket("y", [1])], STEPS))).toBe(false);
    expect(isHistogramAnswer(toMatrix([], STEPS))).toBe(false);
  });
});

describe("native histograms", () => {
  test("buckets are put in order, and empty ones left out", () => {
    const cells = nativeCells({ count: "6", sum: "9", buckets: [[0, "2", "4", "3"], [3, "-0.001", "0.001", "1"], [0, "1", "2", "0"], [1, "-4", "-2", "2"]] });
    expect(cells.map(({ lower, count }) => [lower, count])).toEqual([[-4, 2], [-0.001, 1], [2, 3]]);
  });

  test("the last of custom buckets is open above", () => {
    const cells = nativeCells({ count: "3", sum: "9", buckets: [[0, "-Inf", "1", "1"], [0, "1", "+Inf", "2"]] });
    expect(cells).toEqual([{ lower: -Infinity, upper: 1, count: 1 }, { lower: 1, upper: Infinity, count: 2 }]);
  });

  test("a series is one group, with its sum", () => {
    const histogram = { count: "3", sum: "7", buckets: [[0, "1", "2", "3"]] as [number, string, string, string][] };
    const matrix = toMatrix([{ metric: { job: "a" }, times: new Float64Array(), values: new Float64Array(), histograms: [[10, histogram]] }], STEPS);
    expect(groups(matrix)[0]?.columns).toEqual([{ at: 1, cells: [{ lower: 1, upper: 2, count: 3 }], total: 3, sum: 7 }]);
  });
});

describe("heat map", () => {
  const column = { at: 0, total: 10, cells: [{ lower: 0, upper: 1, count: 5 }, { lower: 1, upper: 3, count: 4 }, { lower: 3, upper: Infinity, count: 1 }] };

  test("quantiles interpolate, and stop at the last bound", () => {
    expect(quantile(column, 0.5)).toBe(1);
    expect(quantile(column, 0.7)).toBe(2);
    expect(quantile(column, 1)).toBe(3);
    expect(quantile({ ...column, cells: [] }, 0.5)).toBeNaN();
  });

  test("the rank of a cell counts the observations below", () => {
    expect(rankOf(column, { lower: 1, upper: 3, count: 4 })).toBe(0.9);
  });

  test("few bounds have rows of one height, many a logarithmic axis", () => {
    const few = boundsAxis([column]);
    expect([few.place(0), few.place(1), few.place(2)]).toEqual([0, 1 / 3, 0.5]);
    const cells = Array.from({ length: 60 }, (_, i) => ({ lower: 2 ** i, upper: 2 ** (i + 1), count: 1 }));
    const many = boundsAxis([{ at: 0, total: 60, cells }]);
    expect(many.place(2 ** 30)).toBeCloseTo(0.5, 5);
  });

  test("shades grow with the count, and a single one is seen", () => {
    const counts = { smallest: 1, largest: 10_000 };
    expect(shade(0, counts, true)).toBe(0);
    expect(shade(1, counts, true)).toBeGreaterThan(0.05);
    expect(shade(100, counts, true)).toBeCloseTo(0.54, 2);
    expect(shade(10_000, counts, false)).toBe(1);
  });
});

describe("differences", () => {
  const step = (...cells: [number, number, number][]) => [
    { at: 3, total: 0, cells: cells.map(([lower, upper, count]) => ({ lower, upper, count })) },
  ];

  test("equal bounds are subtracted, and cells of one time alone stay", () => {
    const found = differ(step([0, 1, 5], [1, 2, 7]), step([0, 1, 8], [4, Infinity, 2]));
    expect(found).toEqual([
      {
        at: 3,
        total: 2,
        cells: [
          { lower: 0, upper: 1, count: -3, before: 8 },
          { lower: 1, upper: 2, count: 7, before: 0 },
          { lower: 4, upper: Infinity, count: -2, before: 2 },
        ],
      },
    ]);
  });

  test("cells that overlap are one cell", () => {
    const found = differ(step([-1, -1, 1], [0, 0, 4], [1, 2, 3], [2, 4, 4]), step([-1, -1, 1], [0, 0, 1], [1, 4, 10], [4, 8, 1]));
    expect(found[0]?.cells).toEqual([
      { lower: -1, upper: -1, count: 0, before: 1 },
      { lower: 0, upper: 0, count: 3, before: 1 },
      { lower: 1, upper: 4, count: -3, before: 10 },
      { lower: 4, upper: 8, count: -1, before: 1 },
    ]);
  });

  test("steps of one time alone count from zero", () => {
    expect(differ([], step([0, 1, 2]))).toEqual([{ at: 3, total: -2, cells: [{ lower: 0, upper: 1, count: -2, before: 2 }] }]);
  });
});
