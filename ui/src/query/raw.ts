// Samples as they are stored, with the distance of each to the one before.

import type { Histogram, Series } from "../api/types";

export interface RawSample {
  // Milliseconds.
  at: number;
  value: number | undefined;
  histogram: Histogram | undefined;
  // Seconds since the sample before; undefined for the first.
  distance: number | undefined;
  // Whether samples are missing before this one.
  isGap: boolean;
}

// The distance that most samples have, which is the interval of the scrapes.
export function usualDistance(times: ArrayLike<number>): number | undefined {
  const distances: number[] = [];
  for (let i = 1; i < times.length; i += 1) distances.push((times[i] ?? 0) - (times[i - 1] ?? 0));
  distances.sort((a, b) => a - b);
  return distances[Math.floor(distances.length / 2)];
}

// A gap is longer than two scrapes.
const GAP_SCRAPES = 2;

export interface RawSeries {
  // Oldest first.
  samples: RawSample[];
  // Seconds between most samples; undefined for less than two.
  usual: number | undefined;
}

export function rawSamples({ times, values, histograms }: Series): RawSeries {
  const all: { time: number; value?: number; histogram?: Histogram }[] = [
    ...Array.from(times, (time, i) => ({ time, value: values[i] ?? NaN })),
    ...histograms.map(([time, histogram]) => ({ time, histogram })),
  ];
  all.sort((a, b) => a.time - b.time);
  const usual = usualDistance(all.map(({ time }) => time));
  const samples = all.map(({ time, value, histogram }, i) => {
    const before = all[i - 1]?.time;
    const distance = before === undefined ? undefined : time - before;
    const isGap = distance !== undefined && usual !== undefined && distance > usual * GAP_SCRAPES * 1.001;
    return { at: Math.round(time * 1000), value, histogram, distance, isGap };
  });
  return { samples, usual };
}
