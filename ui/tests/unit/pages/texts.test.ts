import { describe, expect, test } from "vitest";
import { appliedSteps, blockOf, compareLabels, isInternal, nounOf, resultLabels } from "../../../src/pages/labelChanges";
import { causeOf } from "../../../src/pages/scrapeFailure";
import { SelfMetrics } from "../../../src/pages/selfMetrics";
import { yamlLines } from "../../../src/pages/yaml";

test.each([
  ['Get "http://a:1/metrics": tcp connect error: Connection refused (os error 111)', "Nothing listens"],
  ['Get "http://a/metrics": dns error: failed to lookup address information', "The name has no address"],
  ['Get "https://a/metrics": x509: certificate signed by unknown authority', "The TLS connection failed"],
  ["server returned HTTP status 401 Unauthorized", "The target requires credentials"],
  ["server returned HTTP status 404 Not Found", "There is no such page"],
  ["server returned HTTP status 503 Service Unavailable", "The target itself failed"],
  ['Get "http://a/metrics": context deadline exceeded', "The target did not answer"],
  ["body size limit exceeded", "The answer is larger"],
  ["sample limit exceeded", "The target has more samples"],
])("scrape error %j is explained", (error, start) => {
  expect(causeOf(error)).toMatch(new RegExp(`^${start}`));
});

test("an unknown scrape error has no explanation", () => {
  expect(causeOf("something else")).toBeUndefined();
});

test("labels are compared by name, with changes first", () => {
  const before = { __address__: "a:1", job: "x", zone: "a" };
  const after = { instance: "a:1", job: "x", zone: "b" };
  expect(compareLabels(before, after)).toEqual([
    { name: "__address__", before: "a:1", change: "dropped" },
    { name: "instance", after: "a:1", change: "added" },
    { name: "zone", before: "a", after: "b", change: "changed" },
    { name: "job", before: "x", after: "x", change: "same" },
  ]);
  expect(isInternal("__address__")).toBe(true);
});

test("own metrics are read by name and labels", () => {
  const label = (value: string) => [{ name: "part", value }];
  const metrics = new SelfMetrics([
    { name: "disk", metric: [{ label: label("log"), gauge: { value: 3 } }, { label: label("blocks"), gauge: { value: 4 } }] },
    { name: "empty", metric: [] },
  ]);
  expect(metrics.value("disk", { part: "blocks" })).toBe(4);
  expect(metrics.value("disk", { part: "none" })).toBeUndefined();
  expect(metrics.sum("disk")).toBe(7);
  expect(metrics.sum("empty")).toBeUndefined();
});

const CONFIG = `global:
  scrape_interval: 15s # often
scrape_configs:
- job_name: "shop: a"
  static_configs:
  - targets: ['a:1', b:2]
# end
  metrics_path: /metrics
rule_files: []
`;

test("lines of YAML keep every character", () => {
  const lines = yamlLines(CONFIG);
  const texts = lines.map(({ tokens }) => tokens.map(({ text }) => text).join(""));
  expect(`${texts.join("\n")}\n`).toBe(CONFIG);
});

test("lines of YAML have kinds", () => {
  const kinds = (line: number) =>
    yamlLines(CONFIG)[line - 1]?.tokens.filter(({ text }) => text.trim()).map(({ kind, text }) => `${kind} ${text.trim()}`);
  expect(kinds(2)).toEqual(["key scrape_interval", "punctuation :", "figure 15s", "comment # often"]);
  expect(kinds(4)).toEqual(["punctuation -", "key job_name", "punctuation :", 'string "shop: a"']);
  expect(kinds(6)?.slice(0, 6)).toEqual(
    ["punctuation -", "key targets", "punctuation :", "punctuation [", "string 'a:1'", "punctuation ,"]);
  expect(kinds(7)).toEqual(["comment # end"]);
});

test("lines of YAML fold what belongs to them, lists at the column of their key too", () => {
  const folds = yamlLines(CONFIG).map(({ number, lastChild }) => [number, lastChild]);
  expect(folds.filter(([from, to]) => from !== to)).toEqual([[1, 2], [3, 8], [4, 8], [5, 6]]);
});

describe("steps of relabelling", () => {
  const step = (output: Record<string, string>, keep = true) => ({ rule: {}, output, keep });

  test("rules after one that drops are not applied", () => {
    const steps = [step({ a: "1" }), step({}, false), step({})];
    expect(appliedSteps(steps)).toHaveLength(2);
    expect(appliedSteps(steps.slice(0, 1))).toHaveLength(1);
  });

  test("a target loses its internal labels, and a sample keeps its name", () => {
    const before = { __name__: "up", job: "a" };
    expect(resultLabels(before, [], "sample")).toEqual(before);
    expect(resultLabels(before, [step({ __name__: "up", job: "b" })], "target")).toEqual({ job: "b" });
  });

  test.each([
    ["- action: drop\n", "target"],
    ["relabel_configs:\n", "target"],
    ["# rules\nmetric_relabel_configs: []\n", "sample"],
    ["write_relabel_configs:\n", "sample"],
    ["alert_relabel_configs:\n", "alert"],
  ])("%j concerns a %s", (configs, expected) => {
    expect(nounOf(configs)).toBe(expected);
  });

  test("the rules of a job are a part of its configuration", () => {
    const yaml = "job_name: a\n  relabel_configs:\n  - action: drop\n    regex: x\n\n  metric_relabel_configs:\n    - action: keep\nscheme: http\n";
    expect(blockOf(yaml, "relabel_configs")).toBe("relabel_configs:\n- action: drop\n  regex: x\n");
    expect(blockOf(yaml, "metric_relabel_configs")).toBe("metric_relabel_configs:\n  - action: keep\n");
    expect(blockOf(yaml, "write_relabel_configs")).toBeUndefined();
  });
});
