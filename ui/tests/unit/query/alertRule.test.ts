import { describe, expect, test } from "vitest";
import type { Series } from "../../../src/api/types";
import { alertName, conditionOf, faultsOf, fileYaml, pastAlerts, groupYaml, isCondition, type RuleDraft } from "../../../src/query/alertRule";

const DRAFT: RuleDraft = { name: "Down", expr: "up", operator: "==", threshold: "0", wait: "5m", severity: "critical", summary: "" };

describe("conditions", () => {
  test.each([
    ["up == 0", true],
    ["(up) > (1)", true],
    ["(up > 1)", true],
    ["up > bool 1", false],
    ["up", false],
    ["up + 1", false],
    ["up and on(job) (x > 1)", true],
    ["up and x", false],
    ["up unless x", true],
    ["up > 1 or x", false],
    ["up > 1 or x > 2", true],
    ["absent(up)", true],
    ["sum(up > 1)", false],
    ["", false],
  ])("%s", (expr, expected) => {
    expect(isCondition(expr)).toBe(expected);
  });

  test.each([
    [" up ", "0", "up == 0"],
    ["a + b", "1e3", "(a + b) == 1e3"],
    ["sum(a + b)", "1", "sum(a + b) == 1"],
    ["up > 1", "7", "up > 1"],
    ["up", " ", "up"],
  ])("%j with the threshold %j", (expr, threshold, expected) => {
    expect(conditionOf({ expr, operator: "==", threshold })).toBe(expected);
  });
});

describe("YAML", () => {
  test("a group and a file", () => {
    const rule = "- alert: 'Down'\n  expr: 'up == 0'\n  for: 5m\n  labels:\n    severity: 'critical'\n";
    expect(groupYaml(DRAFT, "g")).toBe(`name: 'g'\nrules:\n${rule}`);
    expect(fileYaml({ ...DRAFT, wait: "", severity: "" }, "g")).toBe("groups:\n- name: 'g'\n  rules:\n  - alert: 'Down'\n    expr: 'up == 0'\n");
  });

  test("quotes and lines of an expression survive", () => {
    const text = groupYaml({ ...DRAFT, expr: "up{job='a'}\n> 1", summary: "it's {{ $value }}" }, "it's");
    expect(text).toContain("name: 'it''s'\n");
    expect(text).toContain("  expr: |-\n    up{job='a'}\n    > 1\n  for: 5m\n");
    expect(text).toContain("  annotations:\n    summary: 'it''s {{ $value }}'\n");
  });

  test("names come from metrics", () => {
    expect(["http_requests_total", "job:up:sum", "a.b"].map(alertName)).toEqual(["HttpRequestsTotal", "JobUpSum", "AB"]);
  });

  test("faults by field", () => {
    expect(faultsOf(DRAFT)).toEqual({});
    expect(Object.keys(faultsOf({ ...DRAFT, name: " ", threshold: "x", wait: "soon" }))).toEqual(["name", "threshold", "wait"]);
    expect(faultsOf({ ...DRAFT, threshold: "", wait: "" })).toEqual({});
  });
});

describe("alerts of the past", () => {
  const series = (points: [number, number][]): Series => ({
    metric: {},
    times: Float64Array.from(points, ([time]) => time),
    values: Float64Array.from(points, ([, value]) => value),
    histograms: [],
  });
  const fired = (points: [number, number][], change: Partial<RuleDraft>) => pastAlerts([series(points)], 10, { ...DRAFT, wait: "", ...change });

  test("an alert lasts until the step at which the condition fails, or has no sample", () => {
    expect(fired([[0, 1], [10, 0], [20, 0], [30, 1]], {})).toEqual({ count: 1, seconds: 20 });
    expect(fired([[0, 0], [10, 0], [50, 0]], {})).toEqual({ count: 2, seconds: 30 });
    expect(fired([[0, 5]], {})).toEqual({ count: 0, seconds: 0 });
  });

  test("the condition has to hold for some time", () => {
    const points: [number, number][] = [[0, 0], [10, 0], [20, 0], [30, 1], [40, 0]];
    expect(fired(points, { wait: "20s" })).toEqual({ count: 1, seconds: 10 });
    expect(fired(points, { wait: "21s" })).toEqual({ count: 0, seconds: 0 });
  });

  test("the series of a condition fire, whatever their value", () => {
    expect(fired([[0, 7], [10, 7]], { expr: "up > 5", threshold: "" })).toEqual({ count: 1, seconds: 20 });
    expect(fired([[0, 7], [10, NaN], [20, Infinity]], { operator: ">", threshold: "8" })).toEqual({ count: 1, seconds: 10 });
  });
});
