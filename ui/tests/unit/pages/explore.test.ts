// Selectors built by clicks, rules that drop series, numbers at two times, and the use of metrics.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { RuleGroup } from "../../../src/pages/answers";
import { growth } from "../../../src/pages/cardinality";
import { adviceOf, senderText } from "../../../src/pages/discardAdvice";
import { labelsText, parseLabels } from "../../../src/pages/labelsText";
import { dropNamesRule, dropRule, equalOf, labelDropRule, matchersOf, textOf, withEqual } from "../../../src/pages/matchers";
import { graphExpr, kindOf, smallExpr } from "../../../src/pages/metricExpr";
import { rulesByMetric, usedMetrics } from "../../../src/pages/usage";

describe("selectors", () => {
  test.each([
    ["up", "up"],
    ['up{job="a", path=~"/x.*"}', 'up{job="a", path=~"/x.*"}'],
    ['{job!="a"}', '{job!="a"}'],
    ['{"my.metric", job="a"}', '{__name__="my.metric", job="a"}'],
    ['{__name__="up", job="a"}', 'up{job="a"}'],
    ["{}", ""],
    ["", ""],
  ])("%s is read and written", (text, written) => {
    expect(textOf(matchersOf(text) ?? [])).toBe(written);
  });

  test.each(["rate(up[5m])", "up + up", "sum(up)", "up offset 5m", "up{", "up{job=}"])("%s is no selector", (text) => {
    expect(matchersOf(text)).toBeUndefined();
  });

  test("a value replaces the matchers of its label", () => {
    expect(withEqual('up{job=~"a.*", zone="b"}', "job", 'x"y')).toBe('up{zone="b", job="x\\"y"}');
    expect(withEqual('up{job="a"}', "job", "")).toBe("up");
    expect(withEqual('up{job="a"}', "__name__", "my.metric")).toBe('{job="a", __name__="my.metric"}');
    expect([equalOf('up{job="a"}', "job"), equalOf('up{job=~"a"}', "job"), equalOf("up", "__name__")]).toEqual(["a", "", "up"]);
  });
});

describe("rules that drop series", () => {
  test("the values of a selection are joined as relabelling joins them", () => {
    expect(dropRule('up{job="a.b", path=~"/x|/y"}')).toBe(
      "metric_relabel_configs:\n- source_labels: [__name__, job, path]\n  regex: 'up;a\\.b;(?:/x|/y)'\n  action: drop\n");
    expect([dropRule('up{job!="a"}'), dropRule(""), dropRule("sum(up)")]).toEqual([undefined, undefined, undefined]);
  });

  test("quotes of YAML are doubled", () => {
    expect(dropRule(`{name="it's"}`)).toContain("regex: 'it''s'");
  });

  test("a label is dropped from one metric or from all", () => {
    expect(labelDropRule("pod", "")).toBe("metric_relabel_configs:\n- regex: 'pod'\n  action: labeldrop\n");
    expect(labelDropRule("pod", "up")).toContain("regex: 'up'\n  target_label: 'pod'\n  replacement: ''");
    expect(dropNamesRule(["a:b", "c.d"])).toContain("regex: 'a:b|c\\.d'\n  action: drop");
  });
});

test("numbers of series at two times: the largest change first, with what came and went", () => {
  const [before, now] = [[{ name: "a", value: 10 }, { name: "b", value: 5 }, { name: "c", value: 1 }], [{ name: "a", value: 12 }, { name: "c", value: 1 }, { name: "d", value: 100 }]];
  expect(growth(before, now).map(({ name, change, state }) => [name, change, state])).toEqual([
    ["d", 100, "came"], ["b", -5, "went"], ["a", 2, "grew"], ["c", 0, "same"],
  ]);
});

describe("the expression of a metric", () => {
  const help = (type: string) => ({ type, unit: "", help: "" });

  test.each([
    ["http_requests_total", "counter", "rate(http_requests_total[5m])", "sum(rate(http_requests_total[5m]))"],
    ["temperature", "gauge", "temperature", "avg(temperature)"],
    ["latency_seconds_bucket", "histogram", "sum by (le) (rate(latency_seconds_bucket[5m]))", 'sum(rate(latency_seconds_bucket{le="+Inf"}[5m]))'],
    ["latency_seconds", "histogram", "rate(latency_seconds[5m])", "sum(rate(latency_seconds[5m]))"],
    ["size_count", "summary", "rate(size_count[5m])", "sum(rate(size_count[5m]))"],
    ["size", "summary", "size", "avg(size)"],
  ] as const)("%s", (name, kind, graph, small) => {
    expect([graphExpr(name, kind, ""), smallExpr(name, kind, "")]).toEqual([graph, small]);
  });

  test("keeps the matchers of the page", () => {
    expect(graphExpr("a_total", "counter", '{job="x"}')).toBe('rate(a_total{job="x"}[5m])');
  });

  test("the kind comes from metadata, or from the name", () => {
    expect([kindOf("x", help("gaugehistogram")), kindOf("x", help("info")), kindOf("x", help("counter"))]).toEqual(["histogram", "gauge", "counter"]);
    expect([kindOf("x_total", undefined), kindOf("x_bucket", help("unknown")), kindOf("x", undefined)]).toEqual(["counter", "histogram", "unknown"]);
  });
});

describe("the use of metrics", () => {
  const groups = [{ rules: [{ name: "R", query: "sum(rate(a[5m])) / b" }, { name: "Q", query: 'a{x="1"} > 1' }] }] as unknown as RuleGroup[];

  test("rules are found by the metrics of their expressions", () => {
    expect([...rulesByMetric(groups)]).toEqual([["a", ["Q", "R"]], ["b", ["R"]]]);
  });

  test("a metric without queries and rules is unused", () => {
    const counts = ["a", "c", "d"].map((name, i) => ({ name, value: i + 1 }));
    const used = usedMetrics(counts, [{ metricName: "c", requestsCount: 7, lastRequestTimestamp: 5, queries: ["c > 1"] }], groups);
    expect(used.map(({ name, isUsed, requests, last, rules }) => [name, isUsed, requests, last, rules])).toEqual([
      ["a", true, 0, undefined, ["Q", "R"]], ["c", true, 7, 5000, []], ["d", false, 0, undefined, []],
    ]);
  });
});

describe("labels as text", () => {
  test("are read as they are written", () => {
    const labels = { __address__: "a:1", "my.label": 'x"y\n', zone: "" };
    expect(parseLabels(labelsText(labels))).toEqual({ labels });
  });

  test("JSON and values without quotes are read, too", () => {
    expect(parseLabels('{\n  "job": "a",\n  "zone": "b"\n}')).toEqual({ labels: { job: "a", zone: "b" } });
    expect(parseLabels("job=a b\n\nzone = c")).toEqual({ labels: { job: "a b", zone: "c" } });
  });

  test.each([["job", "line 1: expected name=\"value\""], ['a="1"\na="2"', "line 2: a has a value already"], ['a="1', "line 1: expected name=\"value\""]])("%j is explained", (text, problem) => {
    expect(parseLabels(text)).toEqual({ problem });
  });
});

describe("rejected samples", () => {
  test("each reason of the server has a text", () => {
    const source = readFileSync(new URL("../../../../crates/core/ingest/src/outcome.rs", import.meta.url), "utf8");
    const reasons = [...source.matchAll(/DropReason::\w+\(\w+::\w+\) => "(\w+)"/g)].map(([, reason]) => reason ?? "");
    expect(reasons.length).toBe(25);
    expect(reasons.filter((reason) => adviceOf(reason).next === adviceOf("none").next)).toEqual([]);
  });

  test("senders in words", () => {
    expect(senderText({ kind: "push", tenant: "anonymous", address: "10.0.0.1" })).toBe("push from 10.0.0.1");
    expect(senderText({ kind: "push", tenant: "a", address: null })).toBe("push from an unknown address (a)");
    expect([senderText({ kind: "scrape", job: "x" }), senderText({ kind: "rules", group: "g" }), senderText({ kind: "aggregation" })]).toEqual(["scrape of x", "rule group g", "aggregation"]);
  });
});
