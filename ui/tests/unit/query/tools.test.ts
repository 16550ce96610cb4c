import { describe, expect, test } from "vitest";
import type { Histogram, QueryData } from "../../../src/api/types";
import { shellQuoted } from "../../../src/format/shell";
import { csv, curl, firnQuery, grafanaPanel } from "../../../src/query/export";
import { exportSaved, forget, importSaved, readHistory, readSaved, remember, save } from "../../../src/query/history";
import { probesOf } from "../../../src/query/markers";
import { rawSamples } from "../../../src/query/raw";
import { groupedBy, valueTable } from "../../../src/query/rows";
import { wire } from "../../../src/query/wire";

const vector: QueryData = {
  resultType: "vector",
  result: [
    { metric: { __name__: "up", job: "a", zone: "x" }, value: [10, "1"] },
    { metric: { __name__: "up", job: 'b,"c"', zone: "x" }, value: [10, "+Inf"] },
  ],
};
const matrix: QueryData = {
  resultType: "matrix",
  result: [
    { metric: { job: "a" }, times: Float64Array.of(0, 15), values: Float64Array.of(1, NaN), histograms: [] },
    { metric: { job: "b" }, times: Float64Array.of(15), values: Float64Array.of(-Infinity), histograms: [] },
  ],
};

describe("export", () => {
  test("CSV quotes, and has a line a time", () => {
    expect(csv(vector)).toBe('time,__name__,job,zone,value\n1970-01-01T00:00:10.000Z,up,a,x,1\n1970-01-01T00:00:10.000Z,up,"b,""c""",x,+Inf\n');
    expect(csv(matrix)).toBe('time,"{job=""a""}","{job=""b""}"\n1970-01-01T00:00:00.000Z,1,\n1970-01-01T00:00:15.000Z,NaN,-Inf\n');
  });

  test("shells receive the typed text", () => {
    expect(shellQuoted("up")).toBe("up");
    expect(shellQuoted("a{b='c'}")).toBe("'a{b='\\''c'\\''}'");
    const question = { expr: 'up{a="b"}', kind: "range" as const, start: 0, end: 60, step: 15, limit: 0 };
    expect(curl(question)).toContain(`--data-urlencode 'query=up{a="b"}'`);
    expect(firnQuery(question)).toContain("--step 15s");
    expect(firnQuery({ ...question, kind: "instant" })).toContain("firn query instant");
    expect(JSON.parse(grafanaPanel(question, "bytes", false))).toMatchObject({ targets: [{ expr: 'up{a="b"}' }] });
  });

  test("JSON has the form of the API", () => {
    expect(wire(matrix)).toEqual({
      resultType: "matrix",
      result: [{ metric: { job: "a" }, values: [[0, "1"], [15, "NaN"]] }, { metric: { job: "b" }, values: [[15, "-Inf"]] }],
    });
  });
});

describe("tables", () => {
  test("labels that differ are columns, others stand above", () => {
    const table = valueTable(vector);
    expect(table.shared).toEqual({ __name__: "up", zone: "x" });
    expect(table.names).toEqual(["job"]);
    expect(table.rows.map(({ value }) => value)).toEqual([1, Infinity]);
  });

  test("sums by a label", () => {
    const result = ["a", "b", "a"].map((job, i) => ({ metric: { job, n: String(i) }, value: [0, String(i + 1)] as [number, string] }));
    const sums = groupedBy(valueTable({ resultType: "vector", result }), "job");
    expect(sums.rows.map(({ labels, value, count }) => [labels.job, value, count])).toEqual([["a", 4, 2], ["b", 2, 1]]);
  });

  test("scalars and strings are rows", () => {
    expect(valueTable({ resultType: "scalar", result: [0, "42"] }).rows[0]?.value).toBe(42);
    expect(valueTable({ resultType: "string", result: [0, "hello"] }).rows[0]?.text).toBe("hello");
  });
});

describe("raw samples", () => {
  test("gaps longer than two scrapes are marked", () => {
    const times = Float64Array.of(0, 15, 30, 75, 90);
    const { samples, usual } = rawSamples({ metric: {}, times, values: new Float64Array(5), histograms: [] });
    expect(usual).toBe(15);
    expect(samples.map(({ isGap }) => isGap)).toEqual([false, false, false, true, false]);
    expect(samples.map(({ distance }) => distance)).toEqual([undefined, 15, 15, 45, 15]);
  });

  test("markers are looked for in gaps, and behind the newest sample", () => {
    const times = Float64Array.of(0, 15, 30, 75, 90);
    const { samples } = rawSamples({ metric: {}, times, values: new Float64Array(5), histograms: [] });
    expect(probesOf(samples, 100_000)).toEqual([{ after: 30_000, at: 74_999 }, { after: 90_000, at: 100_000 }]);
    expect(probesOf(samples, 90_000)).toEqual([{ after: 30_000, at: 74_999 }]);
    expect(probesOf([], 100_000)).toEqual([]);
  });

  test("native histograms count as samples", () => {
    const none = new Float64Array(0);
    const histograms = [0, 10, 20, 50].map((time): [number, Histogram] => [time, { count: "1", sum: "2" }]);
    const { samples, usual } = rawSamples({ metric: {}, times: none, values: none, histograms });
    expect(usual).toBe(10);
    expect(samples.map(({ isGap }) => isGap)).toEqual([false, false, false, true]);
  });
});

describe("history", () => {
  test("the newest comes first, once", () => {
    for (const expr of ["a", "b", " a ", ""]) remember(expr);
    expect(readHistory()).toEqual(["a", "b"]);
  });

  test("saved queries go to a file and come from one", () => {
    save({ name: "one", expr: "up" });
    save({ name: "one", expr: "down" });
    const file = exportSaved();
    forget("one");
    expect(readSaved()).toEqual([]);
    expect(importSaved(file)).toBe(1);
    expect(readSaved()).toEqual([{ name: "one", expr: "down" }]);
    expect(importSaved("{}")).toBeUndefined();
    expect(importSaved("no json")).toBeUndefined();
  });
});
