import { describe, expect, test } from "vitest";
import type { Series } from "../../../src/api/types";
import { ColourBook, lineStyle } from "../../../src/graph/colours";
import { narrowings, largest, sumBy, topOf } from "../../../src/graph/many";
import { countSteps, sharedLabels, shortName, summarize, toMatrix, type Column } from "../../../src/graph/matrix";
import { NO_MARKS } from "../../../src/graph/marks";
import { makeScene, nearestLine, stepAt } from "../../../src/graph/scene";
import { stack } from "../../../src/graph/stack";
import { axisRange, logRange, logTicks, tickLabels, ticks, timeTicks } from "../../../src/graph/ticks";
import { measure, metricNames, NO_MEASURE } from "../../../src/graph/units";
import { axisText, measureName, shortText } from "../../../src/graph/valueText";
import { timeLabels, zoneOffset } from "../../../src/graph/zone";

const series = (metric: Record<string, string>, points: [number, number][]): Series => ({
  metric,
  times: Float64Array.from(points, ([time]) => time),
  values: Float64Array.from(points, ([, value]) => value),
  histograms: [],
});

const column = (labels: Record<string, string>, values: number[]): Column => ({
  labels,
  values: Float64Array.from(values),
  specials: [],
  histograms: [],
});

describe("matrix", () => {
  const steps = { start: 100, end: 160, step: 15 };

  test("samples lie on steps, gaps stay gaps, and values without a place are named", () => {
    const points: [number, number][] = [[100, 1], [115, Infinity], [145, NaN], [160, 5]];
    const { columns, times } = toMatrix([series({ a: "b" }, points)], steps);
    expect([...times]).toEqual([100, 115, 130, 145, 160]);
    expect([...(columns[0]?.values ?? [])]).toEqual([1, NaN, NaN, NaN, 5]);
    expect(columns[0]?.specials).toEqual([{ at: 1, text: "+Inf" }, { at: 3, text: "NaN" }]);
  });

  test("samples outside of the steps are left out", () => {
    const { columns } = toMatrix([series({}, [[10, 1], [1000, 2]])], steps);
    expect(columns[0]?.values.every(Number.isNaN)).toBe(true);
  });

  test("the number of steps survives fractions", () => {
    expect(countSteps({ start: 0, end: 0.3, step: 0.1 })).toBe(4);
    expect(countSteps({ start: 5, end: 5, step: 1 })).toBe(1);
    expect(countSteps({ start: 5, end: 1, step: 1 })).toBe(0);
    expect(countSteps({ start: 5, end: 9, step: 0 })).toBe(0);
  });

  test("names leave out shared labels", () => {
    const all = [{ __name__: "up", job: "a", zone: "x" }, { __name__: "up", job: "b", zone: "x" }];
    const shared = sharedLabels(all);
    expect(shared).toEqual({ __name__: "up", zone: "x" });
    expect(all.map((labels) => shortName(labels, shared))).toEqual(["a", "b"]);
    expect(shortName({ __name__: "up", job: "a" }, sharedLabels([{ __name__: "up", job: "a" }]))).toBe('up{job="a"}');
    expect(shortName({ "my.label": "x", b: "y" }, {})).toBe('{"my.label"="x", b="y"}');
  });

  test("figures ignore gaps", () => {
    expect(summarize([1, NaN, 3, NaN])).toEqual({ last: 3, min: 1, mean: 2, max: 3 });
    expect(summarize([NaN])).toBeUndefined();
  });
});

describe("axes", () => {
  test.each([
    [[0, 100, 5], [0, 20, 40, 60, 80, 100]],
    [[0.1, 0.32, 3], [0.1, 0.2, 0.3]],
    [[-5, 5, 4], [-5, 0, 5]],
  ])("round numbers for %j", ([min = 0, max = 0, count = 0], expected) => {
    expect(ticks(min, max, count)).toEqual(expected);
  });

  test("bytes have powers of two", () => {
    expect(ticks(0, 4096, 4, true)).toEqual([0, 1024, 2048, 3072, 4096]);
  });

  test("labels of a zoomed counter differ from each other", () => {
    const labels = tickLabels([29_342_000, 29_338_000, 29_334_000, 29_330_000], (value, digits) => axisText(value, NO_MEASURE, digits));
    expect(new Set(labels).size).toBe(4);
  });

  test("zero is on the axis when the data comes near it", () => {
    expect(axisRange(10, 100)[0]).toBe(0);
    expect(axisRange(80, 100)[0]).toBeGreaterThan(70);
    expect(axisRange(-100, -10)[1]).toBe(0);
    expect(axisRange(7, 7)[0]).toBeLessThan(7);
    expect(axisRange(0, 0)).toEqual([0, 1]);
    expect(axisRange(Infinity, -Infinity)).toEqual([0, 1]);
  });

  test("a logarithmic axis has positive limits and powers of ten", () => {
    expect(logRange(0, 0)[0]).toBeGreaterThan(0);
    expect(logTicks(0.5, 2000, 10)).toEqual([1, 10, 100, 1000]);
  });

  test("times are round in the zone", () => {
    const midnight = Date.UTC(2026, 10, 28, 23) / 1000;
    expect(timeTicks(midnight - 7200, midnight + 7200, 2, 3600)).toContain(midnight);
    expect(zoneOffset(midnight, "Europe/Berlin")).toBe(3600);
    expect(zoneOffset(midnight, "UTC")).toBe(0);
    expect(zoneOffset(midnight, "Asia/Kathmandu")).toBe(20_700);
  });

  test("the day stands below the first time and where it changes", () => {
    const start = Date.UTC(2026, 10, 28, 23) / 1000;
    expect(timeLabels([start, start + 1800, start + 3600], "UTC")).toEqual(["23:00\n2026-11-28", "23:30", "00:00\n2026-11-29"]);
  });
});

describe("scene", () => {
  const line = (values: number[], key: string) => ({ key, name: key, column: column({ key }, values), style: lineStyle(0) });
  const scene = (lines: ReturnType<typeof line>[], drawing: "lines" | "share" | "stacked" = "lines") =>
    makeScene({
      steps: { start: 0, end: 30, step: 10 },
      times: Float64Array.from([0, 10, 20, 30]),
      lines,
      drawing,
      isLog: false,
      min: undefined,
      max: undefined,
      measure: NO_MEASURE,
      zone: "UTC",
      isOpenEnded: false, marks: NO_MARKS,
    });

  test("the nearest line is found, also beside a gap", () => {
    const both = scene([line([1, 1, NaN, 1], "a"), line([9, 9, NaN, 9], "b")]);
    expect(nearestLine(both, 1, 8, (value) => value)).toEqual({ line: 1, at: 1 });
    expect(nearestLine(both, 2, 8, (value) => value)).toEqual({ line: 1, at: 1 });
    expect(stepAt(both.steps, 14, 4)).toBe(1);
    expect(stepAt(both.steps, 999, 4)).toBe(3);
  });

  test("stacks add up, and shares add up to one", () => {
    const [a, b] = [Float64Array.from([1, 2, NaN]), Float64Array.from([3, 2, 4])];
    expect(stack([a, b]).map((edge) => [...edge])).toEqual([[1, 2, NaN], [4, 4, 4]]);
    expect([...(stack([a, b], true)[1] ?? [])]).toEqual([1, 1, 1]);
    expect(scene([line([1, 2, 3, 4], "a"), line([1, 1, 1, 1], "b")], "share").limits).toEqual([0, 1]);
    expect(scene([line([5, 6, 7, 8], "a")], "stacked").limits[0]).toBe(0);
  });
});

describe("colours", () => {
  test("a series keeps its colour over other answers", () => {
    const book = new ColourBook();
    expect(book.assign(["a", "b", "c"])).toEqual([0, 1, 2]);
    expect(book.assign(["c", "a"])).toEqual([2, 0]);
    expect(book.assign(["d", "a", "c"])).toEqual([1, 0, 2]);
  });

  test("from the ninth on lines are dashed, then dotted", () => {
    const dashes = [0, 8, 16].map((index) => lineStyle(index).dash.length);
    expect([dashes[0], lineStyle(8).colour, lineStyle(7).colour]).toEqual([0, 1, 8]);
    expect(lineStyle(8).dash).not.toEqual(lineStyle(16).dash);
  });
});

describe("many series", () => {
  test("those with the largest value are drawn, in the order of the answer", () => {
    const columns = [column({ n: "a" }, [1]), column({ n: "b" }, [9, NaN]), column({ n: "c" }, [5])];
    expect(largest(columns, 2).map(({ labels }) => labels.n)).toEqual(["b", "c"]);
    expect(largest(columns, 9)).toHaveLength(3);
  });

  test("labels that would narrow, without those that all share", () => {
    const all = Array.from({ length: 12 }, (_, i) => ({ __name__: "x", job: "j", pod: `p${i}`, code: String(i % 3) }));
    expect(narrowings(all)).toEqual([{ label: "pod", values: 12 }, { label: "code", values: 3 }]);
    expect(topOf(" up ")).toBe("topk(10, up)");
    expect(sumBy("up", "my.label")).toBe('sum by ("my.label") (up)');
  });
});

describe("units", () => {
  test.each([
    ["node_memory_bytes", "bytes"],
    ["rate(http_requests_total[5m])", "requests/s"],
    ["sum by (job) (rate(net_sent_bytes_total[5m]))", "bytes/s"],
    ["histogram_quantile(0.99, sum by (le) (rate(req_duration_seconds_bucket[5m])))", "seconds"],
    ["rate(req_duration_seconds_sum[5m]) / rate(req_duration_seconds_count[5m])", "seconds"],
    ["disk_usage_ratio", "%"],
    ["process_start_time_seconds", "seconds"],
    ["rate(process_cpu_seconds_total[5m])", ""],
    ["count(node_memory_bytes)", ""],
    ["a_bytes / b_bytes", ""],
    ["a_bytes * 8", ""],
    ["vector(1)", ""],
  ])("%s is in %j", (expr, expected) => {
    expect(measureName(measure(expr))).toBe(expected);
  });

  test("declared units win over names", () => {
    expect(measure("odd_name", () => "seconds").unit).toBe("seconds");
  });

  test("metric names are found among labels, strings and functions", () => {
    expect(metricNames('sum by (job) (rate(a_total{job="x", b!="rate(c[5m])"}[5m])) / on (zone) group_left b:c')).toEqual(["a_total", "b:c"]);
    expect(metricNames('{"my.metric", a="b"}')).toEqual(["my.metric"]);
  });

  test("values have their unit", () => {
    expect(shortText(29_341_234, NO_MEASURE)).toBe("29.34M");
    expect(shortText(2.5 * 2 ** 20, { unit: "bytes", perSecond: true, noun: "" })).toBe("2.5 MiB/s");
    expect(shortText(0.0123, { unit: "seconds", perSecond: false, noun: "" })).toBe("12.3 ms");
    expect(shortText(0.5, { unit: "ratio", perSecond: false, noun: "" })).toBe("50 %");
    expect(shortText(1.7e9, { unit: "time", perSecond: false, noun: "" })).toBe("2023-11-14 22:13:20");
    expect(shortText(Infinity, NO_MEASURE)).toBe("+Inf");
  });
});
