import { describe, expect, test } from "vitest";
import { formatDuration } from "../../../src/format/duration";
import { alertRows, alertRuns, changeWords, coarseInterval, firingBands, firingWords, type AlertPreview } from "../../../src/pages/rulePreview";
import { placeText, sliderOf, triedRule } from "../../../src/pages/ruleTest";
import { ruleFields, ruleYaml, withField } from "../../../src/pages/ruleText";
import { offsetOf, yamlProblems } from "../../../src/pages/yamlProblems";

const RULE = "alert: Down\nexpr: up == 0\nfor: 5m\n";

describe("fields of a rule", () => {
  test.each([
    [RULE, { alert: "Down", expr: "up == 0", for: "5m" }],
    ["# top\n- alert: 'it''s'\n  expr: \"a > 1\" # now\n  for: 1m # long\n", { alert: "it's", expr: "a > 1", for: "1m" }],
    ["alert: A\nexpr: |-\n  a\n    > 1\nlabels:\n  for: x\n", { alert: "A", expr: "a\n  > 1" }],
    ["record: a:b\nexpr: >\n  sum by (job)\n  (up)\n", { record: "a:b", expr: "sum by (job) (up)" }],
    ["alert: A\nexpr: up\n  == 0\n", { alert: "A", expr: "up == 0" }],
    ["- alert: A\n  expr: up\n- alert: B\n", { alert: "A", expr: "up" }],
    ["{alert: A, expr: up}", {}],
    ["", {}],
  ])("%j", (text, expected) => {
    expect(Object.fromEntries([...ruleFields(text)].map(([name, { value }]) => [name, value]))).toEqual(expected);
  });

  test("a changed field leaves the other lines", () => {
    expect(withField(RULE, "expr", "up == 1")).toBe("alert: Down\nexpr: up == 1\nfor: 5m\n");
    expect(withField("- alert: A\n  expr: |\n    a\n    > 1\n\n  labels: {}\n", "expr", "a\n> 2")).toBe("- alert: A\n  expr: |-\n    a\n    > 2\n\n  labels: {}\n");
    expect(withField("- expr: 'a{b=\"c\"} > 1'\n  alert: A", "expr", "a{b='c'} > 2")).toBe("- expr: 'a{b=''c''} > 2'\n  alert: A");
    expect(withField("- alert: A\n  expr: up\n  labels: {}\n", "for", "2m")).toBe("- alert: A\n  expr: up\n  for: 2m\n  labels: {}\n");
    expect(withField("{alert: A, expr: up}", "for", "2m")).toBeUndefined();
  });

  test("a loaded rule becomes YAML that reads as the rule", () => {
    const loaded = {
      type: "alerting" as const, name: "It's", query: "up\n== 0", duration: 300, keepFiringFor: 60,
      labels: { severity: "page" }, annotations: { summary: "a\nb", text: "it's" },
    };
    expect(ruleYaml(loaded, formatDuration)).toBe(
      "alert: 'It''s'\nexpr: |-\n  up\n  == 0\nfor: 5m\nkeep_firing_for: 1m\nlabels:\n  'severity': 'page'\nannotations:\n  'summary': \"a\\nb\"\n  'text': 'it''s'\n",
    );
    expect(ruleYaml({ type: "recording", name: "a:b", query: "sum(up)" }, formatDuration)).toBe("record: 'a:b'\nexpr: 'sum(up)'\n");
  });
});

describe("tried values", () => {
  test("threshold and wait are changed in a copy of the rule", () => {
    const tried = triedRule(RULE, { threshold: "1", wait: "90" });
    expect(tried.changed).toBe("alert: Down\nexpr: up == 1\nfor: 1m30s\n");
    expect([tried.threshold?.text, tried.wait, tried.isAlert, tried.faults]).toEqual(["0", "5m", true, {}]);
  });

  test("without a change, or with a wrong one, there is no copy", () => {
    expect(triedRule(RULE, { threshold: "", wait: "" }).changed).toBeUndefined();
    const wrong = triedRule(RULE, { threshold: "much", wait: "soon" });
    expect(wrong.changed).toBeUndefined();
    expect(Object.keys(wrong.faults)).toEqual(["threshold", "wait"]);
    expect(triedRule("record: a\nexpr: b\n", { threshold: "", wait: "" }).isAlert).toBe(false);
  });

  test("the slider has round places, and reaches the threshold", () => {
    expect(sliderOf(0, 87, 120)).toEqual({ min: 0, max: 120, step: 1 });
    expect(sliderOf(0.013, 0.5, 0.2)).toEqual({ min: 0.013, max: 0.5, step: 0.001 });
    expect(sliderOf(Infinity, -Infinity, 5)).toBeUndefined();
    expect(sliderOf(5, 5, 5)).toBeUndefined();
    expect(placeText(0.1 + 0.2, 0.01)).toBe("0.3");
    expect(placeText(1234, 10)).toBe("1234");
  });
});

describe("previews", () => {
  const times = { start: 1000, end: 2000, interval: undefined };
  const at = (seconds: number) => new Date(seconds * 1000).toISOString();
  const preview = (firings: number): AlertPreview => ({
    type: "alerting", name: "A", query: "up == 0", interval: 60, evaluations: 17, failedEvaluations: 0, firings, firingSeconds: 0,
    alerts: [
      { labels: { alertname: "A", job: "pending" }, annotations: {}, periods: [{ activeAt: at(1100), endedAt: at(1200), value: "0" }] },
      {
        labels: { alertname: "A", job: "b" },
        annotations: {},
        periods: [
          { activeAt: at(700), firedAt: at(900), endedAt: at(1060), value: "+Inf" },
          { activeAt: at(1500), firedAt: at(1800), value: "1e+00" },
        ],
      },
    ],
  });
  const rows = alertRows(preview(2), times);

  test("alerts count within the range, and the longest come first", () => {
    expect(rows.map(({ labels, firings, seconds }) => [labels.job, firings, seconds])).toEqual([["b", 2, 260], ["pending", 0, 0]]);
    expect(rows[0]?.periods.map(({ value }) => value)).toEqual([Infinity, 1]);
    expect(firingWords(rows)).toBe("2 firings of 1 alert, 4 min 20 s in all, the longest 3 min 20 s.");
    expect(firingWords([])).toBe("no alert.");
    expect(firingWords(rows.slice(1))).toBe("no firing; 1 alert pending.");
  });

  test("bands and strips lie in the range", () => {
    expect(firingBands(rows, times)).toEqual([{ name: "A", start: 1000, end: 1060 }, { name: "A", start: 1800, end: 2000 }]);
    expect(alertRuns(rows[0]?.periods ?? [], times)).toEqual([
      { start: 1000, end: 1060, state: "bad" },
      { start: 1500, end: 1800, state: "warn" },
      { start: 1800, end: 2000, state: "bad" },
    ]);
  });

  test("a change is named by its firings", () => {
    expect(changeWords(preview(5), preview(2))).toBe("3 firings fewer than the rule as written, which has 5");
    expect(changeWords(preview(1), preview(2))).toBe("1 firing more than the rule as written, which has 1");
    expect(changeWords(preview(1), preview(1))).toBe("as many firings as the rule as written, which has 1");
  });

  test("long ranges have a longer interval", () => {
    const week = { start: 0, end: 7 * 86_400, interval: undefined };
    expect(coarseInterval(RULE, week)).toBe(60);
    expect(coarseInterval("alert: A\nexpr: up\nfor: 1d\n", week)).toBe(120);
    expect(coarseInterval(RULE, { ...week, end: 86_400 * 365 })).toBe(3600);
  });
});

describe("mistakes", () => {
  const refused = (message: string) => ({ kind: "refused" as const, status: 400, errorType: "bad_data", message });

  test("errors of a text have their places", () => {
    expect(yamlProblems(refused('invalid parameter "rule": 2:7: could not parse expression: 1:5: no\n3:1: field fro not found'))).toEqual([
      { line: 2, column: 7, message: "could not parse expression: 1:5: no" },
      { line: 3, column: 1, message: "field fro not found" },
    ]);
    expect(yamlProblems(refused("configs:1:11: unknown action\nregex"))).toEqual([{ line: 1, column: 11, message: "unknown action\nregex" }]);
    expect(yamlProblems(refused('invalid parameter "rule": the rule is empty'))).toEqual([{ line: undefined, column: undefined, message: "the rule is empty" }]);
    expect(yamlProblems(refused('invalid parameter "end": x'))).toEqual([]);
    expect(yamlProblems({ kind: "cancelled" })).toEqual([]);
  });

  test("a place is an offset of the text", () => {
    expect(offsetOf("ab\ncd\n", 2, 2)).toBe(4);
    expect(offsetOf("ab", 9, 9)).toBe(2);
  });
});
