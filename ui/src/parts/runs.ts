// Runs of one state over time, from the samples of a range query.

export type RunState = "good" | "warn" | "bad";

export interface Run {
  // In seconds since the epoch; the end is exclusive.
  start: number;
  end: number;
  state: RunState;
}

// Joins samples of one state that are one step apart. A missing sample ends a run. Times are seconds.
export function runsOf(
  times: ArrayLike<number>,
  values: ArrayLike<number>,
  step: number,
  stateOf: (value: number) => RunState | undefined,
): Run[] {
  const runs: Run[] = [];
  for (let i = 0; i < times.length; i += 1) {
    const [time, state] = [times[i] ?? 0, stateOf(values[i] ?? NaN)];
    if (state === undefined) continue;
    const last = runs.at(-1);
    if (last?.state === state && time - last.end < step / 2) last.end = time + step;
    else runs.push({ start: time, end: time + step, state });
  }
  return runs;
}

const RANK: RunState[] = ["good", "warn", "bad"];

// The worst state of several series at each time, as runs.
export function worstRuns(lists: readonly Run[][], step: number): Run[] {
  const worst = new Map<number, RunState>();
  for (const { start, end, state } of lists.flat()) {
    for (let time = start; time < end - step / 2; time += step) {
      const known = worst.get(time);
      if (known === undefined || RANK.indexOf(state) > RANK.indexOf(known)) worst.set(time, state);
    }
  }
  const samples = [...worst].sort(([a], [b]) => a - b);
  const times = samples.map(([time]) => time);
  const ranks = samples.map(([, state]) => RANK.indexOf(state));
  return runsOf(times, ranks, step, (rank) => RANK[rank]);
}

// Seconds that the runs of a state last.
export function secondsIn(runs: readonly Run[], state: RunState): number {
  return runs.filter((run) => run.state === state).reduce((sum, { start, end }) => sum + end - start, 0);
}
