import { describe, expect, test } from "vitest";
import { exemplarsOf, firingsOf, traceLink, union } from "../../../src/graph/marks";

test("the times of alerts are sorted by name, and end where samples are missing", () => {
  const series = (alertname: string, times: number[]) => ({
    metric: { alertname },
    times: Float64Array.from(times),
    values: Float64Array.from(times, () => 1),
    histograms: [],
  });
  expect(firingsOf([series("b", [0, 10]), series("a", [20, 50, 60])], 10)).toEqual([
    { name: "a", start: 20, end: 30 },
    { name: "a", start: 50, end: 70 },
    { name: "b", start: 0, end: 20 },
  ]);
});

test("bands that overlap are one", () => {
  expect(union([{ start: 5, end: 9 }, { start: 0, end: 6 }, { start: 1, end: 2 }, { start: 10, end: 11 }])).toEqual([
    { start: 0, end: 9 },
    { start: 10, end: 11 },
  ]);
});

test("exemplars are sorted by time, without values that have no place", () => {
  const found = exemplarsOf([
    { seriesLabels: { job: "a" }, exemplars: [{ labels: { id: "1" }, value: "2.5", timestamp: 10 }, { labels: {}, value: "NaN", timestamp: 11 }] },
    { seriesLabels: { job: "b" }, exemplars: [{ labels: { id: "2" }, value: "3", timestamp: 12.5 }] },
  ]);
  expect(found).toEqual([
    { time: 12.5, value: 3, series: { job: "b" }, labels: { id: "2" } },
    { time: 10, value: 2.5, series: { job: "a" }, labels: { id: "1" } },
  ]);
});

describe("addresses of traces", () => {
  test.each([
    ["https://t.example/{trace_id}", { trace_id: "a/b" }, "https://t.example/a%2Fb"],
    ["https://t.example/?t={trace_id}&s={span_id}", { trace_id: "1", span_id: "2" }, "https://t.example/?t=1&s=2"],
    ["https://t.example/{trace_id}", { span_id: "2" }, undefined],
    ["https://t.example/", { trace_id: "1" }, undefined],
    ["javascript:alert({trace_id})", { trace_id: "1" }, undefined],
    ["{trace_id}", { trace_id: "javascript:alert(1)" }, undefined],
    ["", { trace_id: "1" }, undefined],
  ])("%s", (template, labels, link) => {
    expect(traceLink(template, labels)).toBe(link);
  });
});
