// Zooming and moving the range of the page. The ranges that were left are kept, so that Escape and a
// double click go one zoom back.

import { time } from "../state/time.svelte";

interface Shown {
  range: number;
  end: number | undefined;
}

const ZOOMS_MAX = 50;
const left: Shown[] = [];

// A range of less than a second has nothing to show.
const LEAST_SECONDS = 1;

function show(range: number, endMs: number | undefined): void {
  // Later than now is now.
  const isNow = endMs === undefined || endMs >= Date.now();
  time.show(Math.max(LEAST_SECONDS, Math.round(range)), isNow ? undefined : Math.round(endMs / 1000) * 1000);
}

function keep(): void {
  left.push({ range: time.range, end: time.end });
  if (left.length > ZOOMS_MAX) left.shift();
}

// Shows the time between two places of a graph, in seconds.
export function zoomTo(start: number, end: number): void {
  keep();
  time.show(Math.max(LEAST_SECONDS, Math.round(end - start)), Math.round(end) * 1000);
}

// Makes the range longer or shorter around its middle; at the present, the end stays.
export function zoomBy(factor: number): void {
  keep();
  const range = time.range * factor;
  show(range, time.end === undefined ? undefined : time.end + ((range - time.range) * 1000) / 2);
}

export function panBy(share: number): void {
  const end = (time.end ?? Date.now()) + share * time.range * 1000;
  show(time.range, end);
}

export function zoomBack(): void {
  const before = left.pop();
  if (before !== undefined) time.show(before.range, before.end);
}

// Back to the range before the first zoom.
export function showWhole(): void {
  const [first] = left;
  left.length = 0;
  if (first !== undefined) time.show(first.range, first.end);
}
