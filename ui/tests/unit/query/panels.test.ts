import { describe, expect, test } from "vitest";
import { automaticStep, emptyPanel, letterOf, readPanels, smallestStep, stepOf, writePanels, type PanelState } from "../../../src/query/panels";
import { questionOf } from "../../../src/query/question";

const read = (text: string) => readPanels(new URLSearchParams(text));
const TIME = { range: "1h", end: "" };

describe("addresses", () => {
  test.each<[string, Partial<PanelState>]>([
    ["g0.expr=up", { expr: "up", view: "graph", style: undefined }],
    ["g0.expr=up&g0.tab=0", { view: "graph" }],
    ["g0.expr=up&g0.tab=1", { view: "table" }],
    ["g0.expr=up&g0.tab=table", { view: "table" }],
    ["g0.expr=up&g0.tab=console", { view: "table" }],
    ["g0.expr=up&g0.tab=explain", { view: "explain", isPlan: false, operation: "" }],
    ["g0.expr=up&g0.tab=explain&g0.plan=1&g0.operation=0.1", { isPlan: true, operation: "0.1" }],
    ["g0.expr=up&g0.tab=unknown", { view: "graph" }],
    ["g0.expr=up&g0.stacked=1", { style: "stacked" }],
    ["g0.expr=up&g0.stacked=0", { style: undefined }],
    ["g0.expr=up&g0.tab=graph&g0.display_mode=stacked", { style: "stacked" }],
    ["g0.expr=up&g0.tab=graph&g0.display_mode=heatmap", { view: "heatmap" }],
    ["g0.expr=up&g0.step_input=30", { step: "30" }],
    ["g0.expr=up&g0.res_type=fixed&g0.res_step=60", { step: "60" }],
    ["g0.expr=up&g0.res_type=auto&g0.res_density=high&g0.step_input=9", { step: "" }],
    ["g0.expr=up&g0.y_axis_min=0.5", { min: "0.5" }],
    ["g0.expr=up&g0.own_range=1&g0.range_input=5m&g0.moment_input=2026-01-01+00:00:00", { own: { range: "5m", end: "2026-01-01 00:00:00" } }],
    ["g0.expr=up&g0.off=a&g0.off=b", { off: ["a", "b"] }],
    ["g0.expr=up&g0.show_exemplars=1", { hasExemplars: true, hasAlerts: false }],
    ["g0.expr=up&g0.step_input=abc", { step: "abc" }],
    ["g0.expr=up&g0.compare=2026-01-01+00:00:00", { compare: "2026-01-01 00:00:00" }],
  ])("%s", (text, expected) => {
    expect(read(text)[0]).toMatchObject(expected);
  });

  test("panels keep their numbers and order; there is always one", () => {
    expect(read("g3.expr=b&g1.expr=a").map(({ number, expr }) => [number, expr])).toEqual([[3, "b"], [1, "a"]]);
    expect(read("range=5m")).toEqual([emptyPanel(0)]);
  });

  test("written panels are read again, and foreign parameters stay", () => {
    const panels: PanelState[] = [
      { ...emptyPanel(0), expr: "up & down", view: "table", sort: "-value", search: "x", compare: "1d", hasAlerts: true },
      { ...emptyPanel(4), expr: "rate(a[5m])", style: "share", isLog: true, step: "15s", min: "0", max: "1e3", unit: "bytes", isHidden: true, isWhole: true, off: ['a{b="c"}'], own: { range: "6h", end: "2026-01-02 03:04:05" } },
      { ...emptyPanel(5), expr: "h", view: "heatmap" },
      { ...emptyPanel(6), expr: "r", view: "raw" },
      { ...emptyPanel(7), expr: "e", view: "explain", isPlan: true, operation: "-" },
    ];
    const params = new URLSearchParams("zone=UTC&g0.foreign=1&g9.expr=gone&g9.foreign=1");
    writePanels(params, panels, TIME);
    expect(readPanels(params)).toEqual(panels);
    expect(params.get("zone")).toBe("UTC");
    expect(params.get("g0.foreign")).toBe("1");
    expect([...params.keys()].filter((name) => name.startsWith("g9."))).toEqual([]);
    expect(params.get("g0.range_input")).toBe("1h");
    expect(params.get("g4.range_input")).toBe("6h");
    expect(params.get("g5.display_mode")).toBe("heatmap");
  });

  test("letters go on after Z", () => {
    expect([0, 25, 26, 27].map(letterOf)).toEqual(["A", "Z", "AA", "AB"]);
  });
});

describe("steps", () => {
  test("typed steps are durations, empty ones automatic, others wrong", () => {
    expect([stepOf(""), stepOf("1m30s"), stepOf("abc"), stepOf("0")]).toEqual([undefined, 90, NaN, NaN]);
    expect(automaticStep(3600)).toBe(12);
    expect(automaticStep(10)).toBe(1);
  });

  test("the smallest step stays below 11,000 points", () => {
    for (const range of [60, 3600, 86_400, 31_536_000]) {
      expect(range / smallestStep(range) + 1).toBeLessThanOrEqual(11_000);
    }
  });
});

describe("questions", () => {
  const NOW = 1_000_000_000;
  const page = { range: 3600, end: undefined };
  const panel = (changes: Partial<PanelState>) => ({ ...emptyPanel(0), expr: "up", ...changes });

  test("a graph requests a range, at most 1,000 series", () => {
    expect(questionOf(panel({}), page, NOW)).toEqual({ expr: "up", kind: "range", start: 996_400, end: 1_000_000, step: 12, limit: 1000 });
    expect(questionOf(panel({ isWhole: true }), page, NOW)?.limit).toBe(0);
  });

  test("a table requests one time, raw samples for a range of the selector", () => {
    expect(questionOf(panel({ view: "table" }), page, NOW)).toMatchObject({ kind: "instant", end: 1_000_000, limit: 10_000 });
    expect(questionOf(panel({ view: "raw", expr: 'rate(up{a="b"}[5m])' }), page, NOW)).toMatchObject({ expr: 'up{a="b"}[3600s]', kind: "instant" });
  });

  test("Explain analyzes the range, or one time of what has no steps", () => {
    expect(questionOf(panel({ view: "explain" }), page, NOW)).toMatchObject({ kind: "range", report: "analysis" });
    expect(questionOf(panel({ view: "explain", expr: "up[5m]" }), page, NOW)).toMatchObject({ kind: "instant" });
    expect(questionOf(panel({ view: "explain", isPlan: true }), page, NOW)).toMatchObject({ report: "plan" });
  });

  test("there is no request without an expression or with a wrong step", () => {
    expect(questionOf(panel({ expr: "  " }), page, NOW)).toBeUndefined();
    expect(questionOf(panel({ step: "abc" }), page, NOW)).toBeUndefined();
  });

  test("a panel with a range of its own leaves that of the page", () => {
    const own = { range: "5m", end: "1970-01-11 00:00:00" };
    expect(questionOf(panel({ own }), page, NOW)).toMatchObject({ start: 863_700, end: 864_000 });
  });
});
