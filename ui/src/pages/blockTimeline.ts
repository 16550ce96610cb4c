// The blocks of the store on a time line: one row for each level, so that blocks of one time that wait
// for a merge are below each other.

import type { Block } from "./answers";

export interface PlacedBlock {
  block: Block;
  row: number;
  // Start and width as shares of the whole range, 0 to 1.
  start: number;
  width: number;
}

export interface BlockTimeline {
  from: number;
  to: number;
  rows: number;
  blocks: PlacedBlock[];
}

// Returns `undefined` without blocks. Blocks that overlap get rows of their own.
export function timelineOf(blocks: readonly Block[]): BlockTimeline | undefined {
  if (blocks.length === 0) return undefined;
  const from = Math.min(...blocks.map(({ minTime }) => minTime));
  const to = Math.max(...blocks.map(({ maxTime }) => maxTime));
  const span = Math.max(1, to - from);
  const ends: number[] = [];
  const order = [...blocks].sort((a, b) => a.minTime - b.minTime || b.maxTime - a.maxTime);
  const placed = order.map((block) => {
    const free = ends.findIndex((end) => end <= block.minTime);
    const row = free === -1 ? ends.length : free;
    ends[row] = block.maxTime;
    const [start, width] = [(block.minTime - from) / span, (block.maxTime - block.minTime) / span];
    return { block, row, start, width };
  });
  return { from, to, rows: ends.length, blocks: placed };
}
