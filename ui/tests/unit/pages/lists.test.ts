import { expect, test } from "vitest";
import { grouped, nextOrder, parseOrder, sorted } from "../../../src/parts/order";
import { FULL_ROWS, sliceOf } from "../../../src/parts/window";

test("an order is a column and a direction", () => {
  expect(parseOrder("-duration")).toEqual({ column: "duration", isDescending: true });
  expect(parseOrder("name")).toEqual({ column: "name", isDescending: false });
  expect(parseOrder("")).toBeUndefined();
});

test("clicks on a head go through both directions and back", () => {
  const clicks = (first: boolean) => {
    let order = "";
    return Array.from({ length: 3 }, () => (order = nextOrder(order, "x", first)));
  };
  expect(clicks(true)).toEqual(["-x", "x", ""]);
  expect(clicks(false)).toEqual(["x", "-x", ""]);
});

test("sorting is stable, natural, and puts missing keys last", () => {
  const items = [["b", 1], ["a", NaN], ["c", 1], ["d", undefined], ["e", 3]] as const;
  const names = (isDescending: boolean) => sorted(items, ([, key]) => key, isDescending).map(([name]) => name);
  expect(names(false)).toEqual(["b", "c", "e", "a", "d"]);
  expect(names(true)).toEqual(["e", "b", "c", "a", "d"]);
  expect(sorted(["pod-10", "pod-9"], (name) => name, false)).toEqual(["pod-9", "pod-10"]);
});

test("groups are in the order of their names", () => {
  expect(grouped(["b1", "a1", "b2"], (item) => item.charAt(0))).toEqual([["a", ["a1"]], ["b", ["b1", "b2"]]]);
});

test("a short list is drawn in full", () => {
  const heights = Array.from({ length: FULL_ROWS }, () => 30);
  expect(sliceOf(heights, 1000, 1500)).toEqual({ start: 0, end: FULL_ROWS, above: 0, below: 0 });
});

test.each([[0, 800], [90_000, 90_800], [400_000, 400_800], [-5000, -4000]])(
  "a long list draws the rows between %d and %d, and the heights add up",
  (top, bottom) => {
    const heights = Array.from({ length: 10_000 }, (_, i) => (i % 10 === 0 ? 90 : 24));
    const total = heights.reduce((a, b) => a + b, 0);
    const { start, end, above, below } = sliceOf(heights, top, bottom);
    const drawn = heights.slice(start, end).reduce((a, b) => a + b, 0);
    expect(above + drawn + below).toBe(total);
    expect(end).toBeGreaterThan(start);
    expect(end - start).toBeLessThan(150);
    if (top >= 0 && bottom <= total) {
      expect(above).toBeLessThanOrEqual(top);
      expect(above + drawn).toBeGreaterThanOrEqual(bottom);
    }
  },
);
