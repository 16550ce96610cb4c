// Smallest and largest finite value of columns between two steps.

export interface Bounds {
  min: number;
  max: number;
}

// Bounds of all values, and of those above zero alone for a logarithmic axis.
export function bounds(
  columns: readonly ArrayLike<number>[],
  from = 0,
  to = Infinity,
  positive = false,
): Bounds {
  let [min, max] = [Infinity, -Infinity];
  for (const values of columns) {
    const end = Math.min(values.length - 1, to);
    for (let i = from; i <= end; i += 1) {
      const value = values[i] ?? NaN;
      if (positive && !(value > 0)) continue;
      if (value < min) min = value;
      if (value > max) max = value;
    }
  }
  return { min, max };
}
