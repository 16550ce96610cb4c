import { describe, expect, test } from "vitest";
import { alertName, conditionOf, faultsOf, fileYaml, groupYaml, isCondition, ruleText, thresholdOf, withThreshold, type RuleDraft } from "../../../src/query/alertRule";

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
    expect(ruleText(DRAFT)).toBe(rule);
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

describe("thresholds", () => {
  test.each([
    ["up == 0", "0", "up"],
    ["(sum(rate(x[5m])) > 1e3)", "1e3", "sum(rate(x[5m]))"],
    ["x < -5", "-5", "x"],
    ["a / b >= 0.5", "0.5", "a / b"],
    ["x > bool 5", undefined, ""],
    ["x > y", undefined, ""],
    ["5 < x", undefined, ""],
    ["x + 5", undefined, ""],
    ["x > 5 and y", undefined, ""],
    ["", undefined, ""],
  ])("%s", (expr, text, compared) => {
    const found = thresholdOf(expr);
    expect(found?.text).toBe(text);
    if (found) expect(found.compared).toBe(compared);
  });

  test("another number takes its place", () => {
    expect(withThreshold("(x > 5)", "7")).toBe("(x > 7)");
    expect(withThreshold("x < -5", "1")).toBe("x < 1");
    expect(withThreshold("x", "1")).toBe("x");
  });
});
