import { describe, expect, test } from "vitest";
import { formOf } from "../../src/api/client";
import { failureOf } from "../../src/api/failure";
import { compact, numberOf } from "../../src/api/matrix";
import type { QueryData } from "../../src/api/types";
import { pauseOf } from "../../src/state/resource.svelte";

const error = (errorType: string, text: string): string => JSON.stringify({ status: "error", errorType, error: text });

describe("failures", () => {
  test.each([
    [400, {}, error("bad_data", "parse error"), { kind: "refused", status: 400, errorType: "bad_data", message: "parse error" }],
    [422, {}, error("execution", "too much"), { kind: "refused", status: 422, errorType: "execution", message: "too much" }],
    [503, {}, error("canceled", "ended"), { kind: "refused", status: 503, errorType: "canceled", message: "ended" }],
    [503, { "retry-after": "3" }, error("unavailable", "full"), { kind: "busy", status: 503, message: "full", retryAfter: 3 }],
    [429, { "content-type": "text/plain" }, "Too Many Requests\n", { kind: "busy", status: 429, message: "Too Many Requests", retryAfter: 5 }],
    [503, { "x-prometheus-stopping": "false" }, "Service Unavailable", { kind: "starting", isStopping: false }],
    [503, { "x-prometheus-stopping": "true" }, "Service Unavailable", { kind: "starting", isStopping: true }],
    [401, { "content-type": "text/plain" }, "Unauthorized\n", { kind: "sign-in", message: "Unauthorized" }],
    [403, {}, error("bad_data", "no scope"), { kind: "forbidden", message: "no scope" }],
    [403, { "content-type": "text/html" }, "<h1>WAF</h1>", { kind: "foreign", status: 403, text: "<h1>WAF</h1>" }],
    [502, { "content-type": "text/html" }, "<html>", { kind: "foreign", status: 502, text: "<html>" }],
    [503, { "content-type": "text/html" }, "<html>", { kind: "foreign", status: 503, text: "<html>" }],
    [404, { "content-type": "text/plain" }, "404 page not found\n", { kind: "foreign", status: 404, text: "404 page not found\n" }],
    [400, {}, "{broken", { kind: "foreign", status: 400, text: "{broken" }],
  ])("%d with %j and %j", (status, headers, text, expected) => {
    expect(failureOf(status, new Headers(headers as Record<string, string>), text)).toEqual(expected);
  });

  test("the page tries again by itself only where that can help, with growing pauses", () => {
    const network = { kind: "network", message: "" } as const;
    expect([0, 1, 2, 9].map((failures) => pauseOf(network, failures))).toEqual([1, 2, 4, 30]);
    expect(pauseOf({ kind: "busy", status: 503, message: "", retryAfter: 7 }, 0)).toBe(7);
    expect(pauseOf({ kind: "foreign", status: 404, text: "" }, 0)).toBeUndefined();
    expect(pauseOf({ kind: "foreign", status: 502, text: "" }, 0)).toBe(1);
    expect(pauseOf({ kind: "forbidden", message: "" }, 0)).toBeUndefined();
    expect(pauseOf({ kind: "refused", status: 400, errorType: "bad_data", message: "" }, 0)).toBeUndefined();
  });
});

test("a form leaves out what is empty and repeats lists", () => {
  const form = formOf({ query: "up", time: undefined, "match[]": ["a", "b"], limit: 0, flag: true, text: "" });
  expect(form.toString()).toBe("query=up&match%5B%5D=a&match%5B%5D=b&limit=0&flag=true");
});

test("a matrix becomes typed arrays on shared buffers; other answers stay", () => {
  const document = {
    data: {
      resultType: "matrix",
      result: [
        { metric: { a: "1" }, values: [[1, "0.5"], [2, "+Inf"]] },
        { metric: { a: "2" }, histograms: [[3, { count: "1", sum: "2" }]] },
        { metric: { a: "3" }, values: [[4, "NaN"]] },
      ],
    },
  };
  expect(compact(document)).toHaveLength(2);
  const data = document.data as unknown as QueryData;
  if (data.resultType !== "matrix") throw new Error("a matrix");
  expect(data.result.map((series) => [...series.times])).toEqual([[1, 2], [], [4]]);
  expect(data.result.map((series) => [...series.values])).toEqual([[0.5, Infinity], [], [NaN]]);
  expect(data.result[1]?.histograms).toHaveLength(1);
  expect(data.result[0]?.times.buffer).toBe(data.result[2]?.times.buffer);
  const vector = { data: { resultType: "vector", result: [] } };
  expect(compact(vector)).toEqual([]);
  expect(compact({})).toEqual([]);
  expect(numberOf("-Inf")).toBe(-Infinity);
});
