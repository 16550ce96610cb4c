// The part of a long list that is in view. Rows have a height that is estimated until they were
// measured, so the list may have rows of any height.

export interface Slice {
  // Index of the first row to draw, and of the row after the last one.
  start: number;
  end: number;
  // Heights of the rows left out above and below.
  above: number;
  below: number;
}

// Lists of up to this many rows are drawn in full, so that the browser's own search finds every row.
export const FULL_ROWS = 100;

// Returns the rows between `top` and `bottom` (pixels from the start of the list), and as many again on
// either side, so that a quick scroll does not meet empty space.
export function sliceOf(heights: readonly number[], top: number, bottom: number): Slice {
  const total = heights.reduce((sum, height) => sum + height, 0);
  if (heights.length <= FULL_ROWS) return { start: 0, end: heights.length, above: 0, below: 0 };
  const margin = Math.max(bottom - top, 0) / 2 + 200;
  let [start, above] = [0, 0];
  while (start < heights.length - 1 && above + (heights[start] ?? 0) < top - margin) {
    above += heights[start] ?? 0;
    start += 1;
  }
  let [end, drawn] = [start, above];
  while (end < heights.length && (drawn < bottom + margin || end === start)) {
    drawn += heights[end] ?? 0;
    end += 1;
  }
  return { start, end, above, below: Math.max(0, total - drawn) };
}

// Makes equal identifiers differ, because entries that a server lists twice must not break the page.
export function uniqueIds(ids: readonly string[]): string[] {
  const seen = new Map<string, number>();
  return ids.map((id) => {
    const count = seen.get(id) ?? 0;
    seen.set(id, count + 1);
    return count === 0 ? id : `${id} #${String(count)}`;
  });
}
