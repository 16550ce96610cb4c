// Reasons of rejected samples in words, and the next step for each.

import type { Discard } from "./answers";

interface Advice {
  title: string;
  next: string;
}

const MALFORMED = "The sender made an invalid request. Update it, or report the example to its authors.";

const ADVICE: Record<string, Advice> = {
  out_of_order: {
    title: "Older than the newest sample of its series",
    next: "Two senders may write the same series: give each its own labels. To accept late samples, raise storage.tsdb.out_of_order_time_window.",
  },
  duplicate_timestamp: {
    title: "Another value at the same time",
    next: "Two senders write the same series, or an exporter repeats its timestamps: give each sender its own labels, or set honor_timestamps: false.",
  },
  out_of_bounds: { title: "Older than the store accepts", next: "Import old samples by /api/v1/import/prometheus, or raise storage.tsdb.out_of_order_time_window." },
  too_old: { title: "Later than the limit of late samples", next: "Raise storage.tsdb.out_of_order_time_window, or import old samples by /api/v1/import/prometheus." },
  too_far_in_future: { title: "Time too far in the future", next: "Compare the clock of the sender with that of this server." },
  series_limit: { title: "Memory for series is full", next: "Find the metric that grew on the page Cardinality and drop it, or give Firn more memory." },
  active_series_limit: { title: "Limit of series of the tenant reached", next: "Find the metric that grew on the page Cardinality and drop it, or raise max_global_series_per_user." },
  new_series_limit: { title: "Too many new series", next: "A label with ever new values is the usual cause; the example shows it. Drop the label, or raise firn.new_series_limit." },
  job_series_limit: { title: "Too many new series of one job", next: "A label with ever new values is the usual cause; the example shows it. Drop the label, or raise firn.new_series_per_job_limit." },
  metric_name: { title: "Invalid metric name", next: "Correct the name at its source, or replace it by relabelling." },
  label_name: { title: "Invalid label name", next: "Correct the label at its source, or drop it by relabelling." },
  label_value: { title: "Label value that is no UTF-8", next: "Correct the label at its source, or drop it by relabelling." },
  duplicate_label: { title: "A label twice", next: MALFORMED },
  label_count: { title: "Too many labels", next: "Drop labels by relabelling, or raise max_label_names_per_series." },
  label_name_length: { title: "Label name too long", next: "Shorten the name at its source, or drop the label by relabelling." },
  label_value_length: { title: "Label value too long", next: "Shorten the value at its source, or drop the label by relabelling." },
  histogram: { title: "Invalid histogram", next: MALFORMED },
  label_refs: { title: "Invalid references to labels", next: MALFORMED },
  metadata_refs: { title: "Invalid references to metadata", next: MALFORMED },
  no_samples: { title: "Series without samples", next: MALFORMED },
  metric_type: { title: "Type of metric that Firn does not store", next: "Configure the sender for another type, or drop the metric." },
  temporality: { title: "Delta values where only cumulative ones are stored", next: "Configure the sender for cumulative values, or switch the conversion of deltas on." },
  delta_out_of_order: { title: "Delta that arrived late", next: "Send the deltas of a series in order, over one connection." },
  delta_older_start: { title: "Delta that overlaps its predecessor", next: "Two senders may write the same series: give each its own labels." },
  delta_limit: { title: "Too many series of deltas", next: "Reduce the series of the sender, or configure it for cumulative values." },
};

export const adviceOf = (reason: string): Advice => ADVICE[reason] ?? { title: reason.replaceAll("_", " "), next: "The example contains the error." };

// The sender of rejected samples in words.
export function senderText({ kind, job, group, tenant, address }: Discard["sender"]): string {
  if (kind === "scrape") return `scrape of ${job ?? ""}`;
  if (kind === "rules") return `rule group ${group ?? ""}`;
  if (kind !== "push") return kind;
  const from = address ?? "an unknown address";
  return `push from ${from}${tenant === undefined || tenant === "anonymous" ? "" : ` (${tenant})`}`;
}
