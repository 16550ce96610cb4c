// Rows of the page of targets: the states of the scrape jobs, joined with the delivered samples.

import type { Labels, Sample, Series } from "../api/types";
import { parseDuration } from "../format/duration";
import { searchText, type Filterable } from "../parts/filter";
import { runsOf, secondsIn, type Run } from "../parts/runs";
import type { ActiveTarget } from "./answers";

// Delivered samples of a target, from the series that each scrape writes.
export interface Delivery {
  // Samples scraped, and those left by `metric_relabel_configs`.
  scraped?: number;
  kept?: number;
  // Series that the last scrape began.
  added?: number;
  // Samples left at the start of the range.
  before?: number;
}

export interface TargetRow extends Filterable {
  id: string;
  target: ActiveTarget;
  delivery: Delivery;
  // States of `up` over the range; undefined if they were not requested.
  runs: Run[] | undefined;
  // Seconds of the range in which it was down.
  secondsDown: number;
  // Share of the samples that it lost in the range; undefined if it lost none.
  lost: number | undefined;
  // Share of the timeout that the last scrape took.
  load: number;
}

const FIELDS: Record<string, keyof Delivery> = {
  scrape_samples_scraped: "scraped",
  scrape_samples_post_metric_relabeling: "kept",
  scrape_series_added: "added",
};

// Selects the series with the fields of `Delivery`.
export const DELIVERY_QUERY = `{__name__=~"${Object.keys(FIELDS).join("|")}"}`;
export const KEPT_QUERY = "scrape_samples_post_metric_relabeling";

// The same label sets have the same key, whatever their order.
export function labelsKey(labels: Labels): string {
  const names = Object.keys(labels).filter((name) => name !== "__name__").sort();
  return names.map((name) => `${name}\0${labels[name] ?? ""}`).join("\0");
}

export function deliveries(now: readonly Sample[], before: readonly Sample[]): Map<string, Delivery> {
  const found = new Map<string, Delivery>();
  const entry = (labels: Labels) => {
    const key = labelsKey(labels);
    const known = found.get(key) ?? {};
    found.set(key, known);
    return known;
  };
  for (const { metric, value } of now) {
    const field = FIELDS[metric["__name__"] ?? ""];
    if (field && value) entry(metric)[field] = Number(value[1]);
  }
  for (const { metric, value } of before) if (value) entry(metric).before = Number(value[1]);
  return found;
}

const upState = (value: number) => (value === 1 ? "good" as const : "bad" as const);

// The states of `up` of each target, by the key of its labels.
export function upRuns(series: readonly Series[], step: number): Map<string, Run[]> {
  return new Map(series.map(({ metric, times, values }) => [labelsKey(metric), runsOf(times, values, step, upState)]));
}

function lostShare({ kept, before }: Delivery): number | undefined {
  if (kept === undefined || before === undefined || before <= kept) return undefined;
  return (before - kept) / before;
}

export function targetRows(
  targets: readonly ActiveTarget[],
  delivered: ReadonlyMap<string, Delivery>,
  runs: ReadonlyMap<string, Run[]> | undefined,
): TargetRow[] {
  return targets.map((target) => {
    const key = labelsKey(target.labels);
    const delivery = delivered.get(key) ?? {};
    const ownRuns = runs?.get(key);
    const timeout = parseDuration(target.scrapeTimeout) ?? 0;
    return {
      id: `${target.scrapePool} ${target.scrapeUrl}`,
      target,
      delivery,
      runs: ownRuns,
      secondsDown: secondsIn(ownRuns ?? [], "bad"),
      lost: lostShare(delivery),
      load: timeout > 0 ? target.lastScrapeDuration / timeout : 0,
      labels: target.labels,
      text: searchText(target.scrapeUrl, target.health, target.lastError, target.scrapePool, ...Object.values(target.labels)),
    };
  });
}
