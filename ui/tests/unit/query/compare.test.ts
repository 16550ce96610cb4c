import { describe, expect, test } from "vitest";
import type { QueryData, Series } from "../../../src/api/types";
import { changeOf, changeOfPair, changeSize, changeText, paired } from "../../../src/graph/compare";
import { largest } from "../../../src/graph/many";
import { NO_MARKS } from "../../../src/graph/marks";
import { makeScene } from "../../../src/graph/scene";
import { NO_MEASURE, type Measure } from "../../../src/graph/units";
import { comparedBy, emptyPanel } from "../../../src/query/panels";
import { earlierOf, isAlike } from "../../../src/query/question";
import { groupedBy, valueTable } from "../../../src/query/rows";
import type { Question } from "../../../src/query/run.svelte";

const series = (job: string, values: number[]): Series => ({
  metric: { job },
  times: Float64Array.from(values, (_, i) => i),
  values: Float64Array.from(values),
  histograms: [],
});

const BYTES: Measure = { unit: "bytes", perSecond: false, noun: "" };
const TIME: Measure = { unit: "time", perSecond: false, noun: "" };

describe("changes", () => {
  test.each<[number | undefined, number | undefined, Measure, string]>([
    [112, 100, NO_MEASURE, "+12, +12 %"],
    [50, 100, NO_MEASURE, "-50, -50 %"],
    [-50, -100, NO_MEASURE, "+50, +50 %"],
    [100, 100, NO_MEASURE, "0, 0 %"],
    [3 * 1024, 2 * 1024, BYTES, "+1 KiB, +50 %"],
    [5, 0, NO_MEASURE, "+5"],
    [5, undefined, NO_MEASURE, "new"],
    [NaN, 5, NO_MEASURE, "gone"],
    [undefined, NaN, NO_MEASURE, "–"],
    [1_800_000_090, 1_800_000_000, TIME, "+90 s"],
  ])("from %s to %s", (now, before, measure, text) => {
    expect(changeText(changeOf(now, before), measure)).toBe(text);
  });

  test("the size of a new or a gone series is its value", () => {
    expect([changeOf(5, undefined), changeOf(undefined, 7), changeOf(2, 5), changeOf(NaN, NaN)].map(changeSize)).toEqual([5, 7, 3, undefined]);
  });
});

describe("series", () => {
  const now = [series("a", [1, 2]), series("b", [10, 10]), series("c", [100])];
  const before = [series("d", [50]), series("b", [1]), series("a", [1])];

  test("series are matched by labels; those of the earlier time alone follow", () => {
    const pairs = paired(now, before, false);
    expect(pairs.map(({ metric, before: found }) => [metric.job, found && [...found.values]])).toEqual([
      ["a", [1]], ["b", [1]], ["c", undefined], ["d", [50]],
    ]);
    expect(pairs[3]?.values).toHaveLength(0);
    expect(paired(now, before, true)).toHaveLength(3);
  });

  test("the drawn ones are those with the largest change of the mean", () => {
    const drawn = largest(paired(now, before, false), 2, changeOfPair);
    expect(drawn.map(({ metric }) => metric.job)).toEqual(["c", "d"]);
  });

  test("the axis has room for the earlier lines, except in a stack", () => {
    const column = (values: number[]) => ({ labels: {}, values: Float64Array.from(values), specials: [], histograms: [] });
    const line = { key: "", name: "", column: column([10, 20]), earlier: column([400, 10]), style: { colour: 1, dash: [] } };
    const options = {
      steps: { start: 0, end: 1, step: 1 }, times: Float64Array.of(0, 1), lines: [line], isLog: false,
      min: undefined, max: undefined, measure: NO_MEASURE, zone: "UTC", isOpenEnded: false, marks: NO_MARKS,
    };
    expect(makeScene({ ...options, drawing: "lines" }).limits[1]).toBeGreaterThanOrEqual(400);
    expect(makeScene({ ...options, drawing: "stacked" }).limits[1]).toBeLessThan(400);
  });
});

describe("tables", () => {
  const vector = (values: Record<string, string>): QueryData => ({
    resultType: "vector",
    result: Object.entries(values).map(([pod, value]) => ({ metric: { job: "a", pod }, value: [0, value] })),
  });
  const rows = (table: ReturnType<typeof valueTable>) => table.rows.map(({ labels, value, before }) => [labels.pod ?? labels.job, value, before]);

  test("rows have the earlier value; rows of the earlier time alone follow", () => {
    const [now, before] = [vector({ x: "5", y: "1" }), vector({ z: "9", x: "4" })];
    expect(rows(valueTable(now, before))).toEqual([["x", 5, 4], ["y", 1, undefined], ["z", undefined, 9]]);
    expect(rows(valueTable(now, before, true))).toEqual([["x", 5, 4], ["y", 1, undefined]]);
    expect(rows(groupedBy(valueTable(now, before), "job"))).toEqual([["a", 6, 13]]);
  });
});

describe("times", () => {
  test.each<[string, number | undefined]>([
    ["", undefined],
    ["1d", 86_400],
    ["90", 90],
    ["1970-01-01 00:01:40", 900],
    ["yesterday", NaN],
    ["0s", NaN],
  ])("%j", (text, seconds) => {
    expect(comparedBy(text, 1000)).toBe(seconds);
  });

  const question: Question = { expr: "up", kind: "range", start: 1000, end: 2000, step: 10, limit: 5 };

  test("the earlier question differs in its times alone", () => {
    expect(earlierOf({ ...emptyPanel(0), compare: "100s" }, question)).toEqual({ ...question, start: 900, end: 1900 });
    expect(earlierOf({ ...emptyPanel(0), compare: "1970-01-01 00:10:00" }, question)).toEqual({ ...question, start: -400, end: 600 });
  });

  test.each([
    ["no text", emptyPanel(0), question],
    ["wrong text", { ...emptyPanel(0), compare: "x" }, question],
    ["no answer", { ...emptyPanel(0), compare: "1d" }, undefined],
    ["a view that compares nothing", { ...emptyPanel(0), compare: "1d", view: "raw" as const }, question],
    ["Explain", { ...emptyPanel(0), compare: "1d" }, { ...question, report: "analysis" as const }],
  ])("no earlier question with %s", (_, panel, asked) => {
    expect(earlierOf(panel, asked)).toBeUndefined();
  });

  test.each<[string, Partial<Question>, boolean]>([
    ["moved by a refresh", { start: 1005.0001, end: 2005.0001 }, true],
    ["moved by a day", { start: 1000 - 86_400, end: 2000 - 86_400 }, false],
    ["of another range", { start: 1500 }, false],
    ["of another step", { step: 20 }, false],
    ["of another expression", { expr: "down" }, false],
  ])("an answer %s", (_, changes, expected) => {
    expect(isAlike(question, { ...question, ...changes })).toBe(expected);
  });
});
