import { CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { EditorState } from "@codemirror/state";
import { LanguageType, promQLLanguage } from "@prometheus-io/codemirror-promql/dist/esm/promql";
import { describe, expect, test } from "vitest";
import { sources, type Names } from "../../../src/query/editor/completion";
import { unfinished } from "../../../src/query/editor/keys";
import { offsetOf, placeOf, rangeAt } from "../../../src/query/editor/place";
import { best, distance, nearest, rank } from "../../../src/query/rank";
import { isPlainSelector, isRange, isString, rawExpression, selectorsOf } from "../../../src/query/selectors";

const asked: string[] = [];
const NAMES: Names = {
  metrics: () => Promise.resolve(["up", "http_requests_total", "rat_race", "my.metric"]),
  metadata: () => Promise.resolve(new Map([["http_requests_total", { type: "counter", unit: "", help: "Requests." }]])),
  labels: (match) => {
    asked.push(match ?? "");
    return Promise.resolve(["__name__", "handler", "code"]);
  },
  values: (label, match) => {
    asked.push(`${label} ${match ?? ""}`);
    return Promise.resolve(['/a"b', "/cart"]);
  },
  isRefused: (name) => name === "limit_ratio" || name === "sort_by_label",
  history: () => ["up == 0", "rate(up[5m])"],
};

// Completion at the `|` of a text.
async function complete(text: string, isExplicit = false): Promise<(CompletionResult | null)[]> {
  const pos = text.indexOf("|");
  const doc = text.replace("|", "");
  const state = EditorState.create({ doc, extensions: [promQLLanguage(LanguageType.PromQL)] });
  const context = new CompletionContext(state, pos, isExplicit);
  return Promise.all(sources(NAMES).map((source) => source(context)));
}

const labels = async (text: string) => (await complete(text))[0]?.options.map(({ label }) => label) ?? [];

describe("completion", () => {
  test("a word offers functions with signature and help, and metrics", async () => {
    const [result] = await complete("rat|");
    const [first] = result?.options ?? [];
    expect(first).toMatchObject({ label: "rate", type: "function" });
    expect(first?.detail).toContain("(v range-vector) – Growth of a counter per second");
    expect(result?.options.map(({ label }) => label)).toContain("rat_race");
  });

  test("metrics have type and help", async () => {
    const [result] = await complete("http|");
    expect(result?.options[0]).toMatchObject({ label: "http_requests_total", detail: "counter – Requests." });
  });

  test("refused names are not offered", async () => {
    expect(await labels("limit|")).not.toContain("limit_ratio");
    expect(await labels("sort|")).not.toContain("sort_by_label");
    expect(await labels("sort|")).toContain("sort");
  });

  test("a metric outside the classic alphabet is put in braces", async () => {
    const [result] = await complete("my|");
    expect(result?.options.find(({ label }) => label === "my.metric")?.apply).toBe('{"my.metric"}');
  });

  test("labels fit the selector, and in by(...) the operand", async () => {
    asked.length = 0;
    expect(await labels("http_requests_total{|}")).toEqual(["code", "handler"]);
    expect(await labels("sum by (|) (http_requests_total)")).toEqual(["code", "handler"]);
    expect(asked).toEqual(["http_requests_total", "http_requests_total"]);
  });

  test("values fit the other matchers and are escaped", async () => {
    asked.length = 0;
    const [result] = await complete('http_requests_total{code="200", handler="|"}');
    expect(asked).toEqual(['handler http_requests_total{code="200"}']);
    expect(result?.options.map(({ apply }) => apply)).toContain('/a\\"b');
  });

  test("a bracket offers durations", async () => {
    expect(await labels("rate(up[|])")).toContain("5m");
    expect(await labels("rate(up[1|])")).toEqual(["1m", "15m", "1h", "1d"]);
  });

  test("the history offers queries that begin with the text", async () => {
    expect((await complete("up |"))[1]?.options.map(({ label }) => label)).toEqual(["up == 0"]);
  });
});

describe("Enter", () => {
  const options = [{ label: "rate" }, { label: "rad" }, { label: "up" }, { label: "upper", type: "history" }];
  test.each([
    ["up", undefined],
    ["rat", 0],
    ["ra", 0],
    ["rad", undefined],
    ["uppe", undefined],
    ["nothing", undefined],
    ["", undefined],
    ["5", undefined],
  ])("on %j accepts %j", (word, expected) => {
    expect(unfinished(word, options)).toBe(expected);
  });
});

describe("places of errors", () => {
  test.each([
    ['invalid parameter "query": 1:6: parse error: expected type range vector', { line: 1, column: 6 }],
    ['metric might not be a counter: "x" (2:13)', { line: 2, column: 13 }],
    ["query timed out at 12:30 of 14:00:00", undefined],
    ["no place", undefined],
  ])("%s", (message, expected) => {
    expect(placeOf(message)).toEqual(expected);
  });

  test("columns count bytes, lines are added", () => {
    expect(offsetOf("rate(up)", { line: 1, column: 6 })).toBe(5);
    expect(offsetOf('"ä" + x', { line: 1, column: 8 })).toBe(6);
    expect(offsetOf("a +\n  b", { line: 2, column: 3 })).toBe(6);
    expect(offsetOf("a", { line: 9, column: 1 })).toBe(1);
    expect(rangeAt("rate(up)", 5)).toEqual({ from: 5, to: 7 });
    expect(rangeAt("up", 9)).toEqual({ from: 1, to: 2 });
  });
});

describe("selectors", () => {
  test("all selectors are found, with their matchers", () => {
    const found = selectorsOf("rate(a{b=\"c\", d!~'e|f'}[5m]) / on (x) g offset 5m");
    expect(found.map(({ text, metric }) => [text, metric])).toEqual([["a{b=\"c\", d!~'e|f'}", "a"], ["g", "g"]]);
    expect(found[0]?.matchers).toMatchObject([{ label: "b", operator: "=", value: "c" }, { label: "d", operator: "!~", value: "e|f" }]);
  });

  test("quoted names are metrics", () => {
    expect(selectorsOf('{"my.metric", "a.b"="c"}')[0]).toMatchObject({ metric: "my.metric", matchers: [{ label: "a.b", operator: "=", value: "c" }] });
    expect(selectorsOf('{__name__="up"}')[0]?.metric).toBe("up");
  });

  test("raw samples are those of the first selector", () => {
    expect(rawExpression("sum(up) / other", 60)).toEqual({ expr: "up[60s]", selector: "up" });
    expect(rawExpression("vector(1)", 60)).toBeUndefined();
    expect([isPlainSelector("up"), isPlainSelector('up{a="b"}'), isPlainSelector("up + 1"), isPlainSelector("rate(up[5m])")]).toEqual([true, true, false, false]);
    expect([isRange("up[5m]"), isRange("rate(up[5m])"), isRange("up[1h:5m] offset 1d"), isString('"a"')]).toEqual([true, false, true, true]);
  });
});

describe("ranking", () => {
  test("beginnings come before parts, parts before letters", () => {
    expect(best(["irate", "http_rate", "rate", "crater", "other"], (name) => name, "rate", 9)).toEqual(["rate", "http_rate", "irate", "crater"]);
    expect(rank("http_requests_total", "req tot")).toBeDefined();
    expect(rank("up", "down")).toBeUndefined();
  });

  test("the nearest names are offered", () => {
    expect(nearest(["node_memory_bytes", "node_cpu", "up"], "node_memry_bytes")[0]).toBe("node_memory_bytes");
    expect(nearest(["alpha", "beta"], "zzzz")).toEqual([]);
    expect(distance("kitten", "sitting")).toBe(3);
    expect(distance("a", "abcdefghijkl")).toBe(9);
  });
});
