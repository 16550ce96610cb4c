// Jobs as the start page lists them: those that are scraped, and those that send.

import type { Sample, Series } from "../api/types";
import type { ActiveTarget, LabelValuesAnswer } from "./answers";

// Job of Firn's own metrics.
export const OWN_JOB = "firn";

// Samples per second of each scraped job.
export const RATE_QUERY = "sum by (job) (sum_over_time(scrape_samples_post_metric_relabeling[2m])) / 120";

export interface JobRow {
  job: string;
  up: number;
  targets: number;
  // Active series; undefined if the server did not count them.
  series: number | undefined;
  rate: number | undefined;
  // Samples per second over the last hour.
  points: [number, number][];
}

export function jobRows(
  targets: readonly ActiveTarget[],
  counts: LabelValuesAnswer | undefined,
  now: readonly Sample[],
  history: readonly Series[],
): JobRow[] {
  const series = new Map((counts?.labels[0]?.cardinality ?? []).map((entry) => [entry.label_value, entry.series_count]));
  const names = new Set([...targets.map(({ scrapePool }) => scrapePool), ...series.keys()]);
  const rows = [...names].filter((name) => name !== "").map((job): JobRow => {
    const own = targets.filter(({ scrapePool }) => scrapePool === job);
    const rate = now.find(({ metric }) => metric["job"] === job)?.value;
    const line = history.find(({ metric }) => metric["job"] === job);
    return {
      job,
      up: own.filter(({ health }) => health === "up").length,
      targets: own.length,
      series: series.get(job),
      rate: rate && Number(rate[1]),
      points: line ? [...line.times].map((time, i) => [time, line.values[i] ?? NaN]) : [],
    };
  });
  const isOwn = ({ job }: JobRow) => Number(job === OWN_JOB);
  return rows.sort((a, b) => isOwn(a) - isOwn(b) || (b.series ?? 0) - (a.series ?? 0) || a.job.localeCompare(b.job));
}

// Whether the server has nothing but its own metrics yet.
export function isFresh(targets: readonly ActiveTarget[], counts: LabelValuesAnswer | undefined): boolean {
  if (targets.some(({ scrapePool }) => scrapePool !== OWN_JOB)) return false;
  return foreignSeries(counts) === 0;
}

// Active series that are not Firn's own.
export function foreignSeries(counts: LabelValuesAnswer | undefined): number {
  const own = counts?.labels[0]?.cardinality.find((entry) => entry.label_value === OWN_JOB)?.series_count ?? 0;
  return Math.max(0, (counts?.series_count_total ?? 0) - own);
}
