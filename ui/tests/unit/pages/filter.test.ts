import { expect, test } from "vitest";
import { parseFilter, searchText } from "../../../src/parts/filter";

const ITEM = { text: searchText("http://10.0.0.1:9100/metrics", "Connection refused"), labels: { job: "shop", zone: "a" } };

test.each([
  ["", true],
  ["REFUSED", true],
  ["refused 9100", true],
  ["refused 9200", false],
  ['"connection refused"', true],
  ['"refused connection"', false],
  ["job=shop", true],
  ["job=sho", false],
  ['job="shop"', true],
  ["job!=shop", false],
  ["missing=", true],
  ['zone=~"a|b"', true],
  ["zone=~b", false],
  ["zone!~b.*", true],
  ["job=shop down", false],
  ["http://10.0.0.1", true],
])("filter %j matches: %s", (text, expected) => {
  const parsed = parseFilter(text);
  expect("filter" in parsed && parsed.filter(ITEM)).toBe(expected);
});

test("a wrong regular expression is a problem that names it", () => {
  expect(parseFilter("zone=~a(")).toEqual({ problem: "a( is not a regular expression" });
});
