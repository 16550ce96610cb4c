// The state of the store in words, from the head and Firn's own metrics.

import { spell } from "../format/duration";
import { counted, formatGrouped, formatNumber } from "../format/number";
import { formatAgo, formatExact } from "../format/time";
import type { Fact } from "../parts/fact";
import type { Block, BlockWork, HeadAnswer } from "./answers";
import type { SelfMetrics } from "./selfMetrics";

const STORAGE = "firn_storage_";

const shown = (value: number | undefined) => (value === undefined ? "–" : formatGrouped(value));

// Facts for metrics that are above zero only when something is wrong.
function faults(metrics: SelfMetrics, list: readonly [string, string, "warn" | "bad"][]): Fact[] {
  return list.flatMap(([metric, name, tone]) => {
    const value = metrics.sum(STORAGE + metric) ?? 0;
    return value > 0 ? [{ name, value: formatGrouped(value), field: STORAGE + metric, tone }] : [];
  });
}

function sampleTime(name: string, field: string, at: number, now: number, zone: string): Fact {
  // An empty head has bounds far outside of any time.
  const isSet = at > 0 && at < now + 365 * 86_400_000;
  if (!isSet) return { name, value: "no sample", field };
  return { name, value: formatAgo(at, now), field, exact: formatExact(at, zone) };
}

export function headFacts({ headStats }: HeadAnswer, metrics: SelfMetrics, now: number, zone: string): Fact[] {
  const count = (name: string, metric: string): Fact => ({ name, value: shown(metrics.value(STORAGE + metric)), field: STORAGE + metric });
  return [
    { name: "Series", value: formatGrouped(headStats.numSeries), field: "numSeries" },
    count("Active series", "head_active_series"),
    { name: "Chunks", value: formatGrouped(headStats.chunkCount), field: "chunkCount" },
    { name: "Label pairs", value: formatGrouped(headStats.numLabelPairs), field: "numLabelPairs" },
    sampleTime("Oldest sample", "minTime", headStats.minTime, now, zone),
    sampleTime("Newest sample", "maxTime", headStats.maxTime, now, zone),
    count("Samples accepted", "head_appended_samples_total"),
    count("Late samples", "head_late_samples_total"),
    ...faults(metrics, [
      ["head_late_refused_samples_total", "Late samples refused", "warn"],
      ["head_refused_series_total", "New series refused", "bad"],
    ]),
  ];
}

export function logFacts(metrics: SelfMetrics): Fact[] {
  const value = (name: string) => metrics.value(STORAGE + name);
  const bytes = (name: string, metric: string): Fact =>
    ({ name, value: value(metric) === undefined ? "–" : formatNumber(value(metric) ?? 0, "bytes", 3), field: STORAGE + metric });
  const facts = [
    bytes("Log on disk", "wal_size_bytes"),
    { name: "Segments of the log", value: shown(value("wal_segments")), field: `${STORAGE}wal_segments` },
    bytes("Waiting to be written", "wal_queued_bytes"),
    bytes("Log written since the start", "wal_written_bytes_total"),
    { name: "Groups waiting for sealing", value: shown(value("seal_queue_groups")), field: `${STORAGE}seal_queue_groups` },
    { name: "Pages written", value: shown(value("seal_pages_total")), field: `${STORAGE}seal_pages_total` },
  ];
  return [
    ...facts,
    ...faults(metrics, [
      ["wal_poisoned", "The log rejects writes until a restart", "bad"],
      ["wal_disk_full", "The disk is full: writes are rejected", "bad"],
      ["wal_stalled", "Blocks wait in memory for the disk", "bad"],
      ["wal_faults_total", "Failed writes and syncs", "bad"],
      ["seal_stuck_groups", "Groups that cannot be sealed", "bad"],
      ["cut_failures_total", "Failed cuts", "warn"],
      ["compaction_failures_total", "Failed compactions", "warn"],
      ["damages_total", "Damaged ranges found", "bad"],
      ["blocks_bad", "Blocks in quarantine", "bad"],
      ["blocks_apart", "Blocks with damaged bytes", "warn"],
    ]),
  ];
}

export interface DiskPart {
  name: string;
  bytes: number;
}

// Bytes on disk by kind, the largest first.
export function diskParts(metrics: SelfMetrics): DiskPart[] {
  const parts = metrics.all(`${STORAGE}disk_bytes`).map(({ labels, value }) => ({ name: Object.values(labels).join(" "), bytes: value }));
  return parts.filter(({ bytes }) => bytes > 0).sort((a, b) => b.bytes - a.bytes);
}

// The limits of the retention, and the time until the oldest block is deleted.
export function retentionText(metrics: SelfMetrics, blocks: readonly Block[], now: number): string {
  const value = (name: string) => metrics.value(`${STORAGE}retention_limit_${name}`) ?? 0;
  const limits = [
    value("seconds") > 0 ? `samples older than ${spell(value("seconds"))}` : "",
    value("bytes") > 0 ? `the oldest blocks above ${formatNumber(value("bytes"), "bytes")}` : "",
    value("percentage") > 0 ? `the oldest blocks above ${formatGrouped(value("percentage"))} % of the file system` : "",
  ].filter(Boolean);
  if (limits.length === 0) return "Nothing is deleted: there is no limit on time or size.";
  const oldest = [...blocks].sort((a, b) => a.maxTime - b.maxTime)[0];
  const rule = `Firn deletes ${limits.join(", and ")}.`;
  if (!oldest || value("seconds") === 0) return rule;
  const left = (oldest.maxTime + value("seconds") * 1000 - now) / 1000;
  return `${rule} The oldest block leaves ${left > 0 ? `in ${spell(Math.round(left))}` : "at the next check"}.`;
}

export interface WorkProgress {
  name: string;
  share: number | undefined;
  text: string;
}

// The progress of a cut or a compaction, or the duration of the last one.
export function workProgress(name: string, work: BlockWork): WorkProgress {
  if (!work.running) {
    const text = work.lastDurationSeconds > 0 ? `the last one took ${spell(work.lastDurationSeconds)}` : "none since the start";
    return { name, share: undefined, text };
  }
  const share = work.series > 0 ? work.seriesDone / work.series : undefined;
  const text = `${formatGrouped(work.seriesDone)} of ${counted(work.series, "series", "series")}, ${formatNumber(work.writtenBytes, "bytes", 3)} written`;
  return { name, share, text };
}
