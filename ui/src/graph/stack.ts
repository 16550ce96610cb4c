// Stacked values: each series begins where the one below ends.

// Upper edges of stacked series; the first series is at the bottom. A missing sample adds
// nothing, and its edge is missing. With `share`, each step adds up to 1.
export function stack(columns: readonly Float64Array[], share = false): Float64Array[] {
  const length = columns[0]?.length ?? 0;
  const base = new Float64Array(length);
  const totals = share ? sums(columns, length) : undefined;
  return columns.map((values) => {
    const edge = new Float64Array(length);
    for (let i = 0; i < length; i += 1) {
      const value = values[i] ?? NaN;
      const total = totals?.[i] ?? 1;
      if (Number.isNaN(value) || total === 0) {
        edge[i] = NaN;
        continue;
      }
      base[i] = (base[i] ?? 0) + value / total;
      edge[i] = base[i] ?? NaN;
    }
    return edge;
  });
}

function sums(columns: readonly Float64Array[], length: number): Float64Array {
  const totals = new Float64Array(length);
  for (const values of columns) {
    for (let i = 0; i < length; i += 1) {
      const value = values[i] ?? NaN;
      if (!Number.isNaN(value)) totals[i] = (totals[i] ?? 0) + value;
    }
  }
  return totals;
}
