import { describe, expect, test } from "vitest";
import { HINT_KINDS } from "../../../src/query/hintKinds";
import { hints } from "../../../src/query/hints";

describe("hints", () => {
  test.each([
    ["histogram_quantile(0.9, a_bucket)", ["histogram_quantile(0.9, rate(a_bucket[5m]))"]],
    ['histogram_quantile(0.9, sum by (le) (a_bucket{job="x"}))', ['histogram_quantile(0.9, sum by (le) (rate(a_bucket{job="x"}[5m])))']],
    ["histogram_quantile(0.9, sum by (job) (rate(a_bucket[5m])))", ["histogram_quantile(0.9, sum by (le, job) (rate(a_bucket[5m])))"]],
    ["histogram_quantile(0.9, sum by (le, job) (rate(a_bucket[5m])))", []],
    ["histogram_quantile(0.9, rate(a[5m]))", []],
    ["histogram_quantile(0.9, sum by (job) (rate(a[5m])))", []],
    ['requests_total{job="a"}', ['rate(requests_total{job="a"}[5m])']],
    ["rate(requests_total[5m])", []],
    ["increase(requests_total[5m]) / 2", []],
    ["requests_total - requests_total offset 1h", []],
    ["a_bucket", []],
    ["up", []],
    ["", []],
  ])("%s", (expr, expected) => {
    expect(hints(expr).map((hint) => hint.expr)).toEqual(expected);
  });

  test("each kind has a name and three sentences", () => {
    for (const [id, { name, why }] of Object.entries(HINT_KINDS)) {
      expect(name, id).not.toBe("");
      expect(why.match(/[.](?= |$)/g), id).toHaveLength(3);
    }
  });
});
