import { expect, test } from "vitest";
import { runsOf, secondsIn, worstRuns } from "../../../src/parts/runs";
import { timelineOf } from "../../../src/pages/blockTimeline";
import type { Block } from "../../../src/pages/answers";

const isUp = (value: number) => (value === 1 ? "good" : "bad");

test("samples of one state join, gaps and changes end a run", () => {
  const runs = runsOf([0, 10, 20, 50], [1, 1, 0, 0], 10, isUp);
  expect(runs).toEqual([
    { start: 0, end: 20, state: "good" },
    { start: 20, end: 30, state: "bad" },
    { start: 50, end: 60, state: "bad" },
  ]);
  expect(secondsIn(runs, "bad")).toBe(20);
});

test("the worst of several series counts at each time", () => {
  const one = runsOf([0, 10, 20], [1, 1, 1], 10, isUp);
  const other = runsOf([10], [0], 10, isUp);
  expect(worstRuns([one, other], 10)).toEqual([
    { start: 0, end: 10, state: "good" },
    { start: 10, end: 20, state: "bad" },
    { start: 20, end: 30, state: "good" },
  ]);
});

const block = (ulid: string, minTime: number, maxTime: number) => ({ ulid, minTime, maxTime }) as Block;

test("blocks in a row share a row, overlapping ones do not", () => {
  const timeline = timelineOf([block("b", 100, 200), block("a", 0, 100), block("late", 50, 150)]);
  expect(timeline).toMatchObject({ from: 0, to: 200, rows: 2 });
  const places = timeline?.blocks.map(({ block: { ulid }, row, start, width }) => [ulid, row, start, width]);
  expect(places).toEqual([["a", 0, 0, 0.5], ["late", 1, 0.25, 0.5], ["b", 0, 0.5, 0.5]]);
  expect(timelineOf([])).toBeUndefined();
});
