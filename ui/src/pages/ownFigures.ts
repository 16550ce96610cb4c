// Firn's own figures on the start page. A figure is shown if its metric exists.

export interface OwnFigure {
  title: string;
  metric: string;
  expr: string;
  unit: "" | "bytes" | "seconds" | "ratio";
}

const WINDOW = "[1m]";
const sum = (metric: string) => `sum(rate(${metric}${WINDOW}))`;
const p99 = (metric: string, matchers = "") => `histogram_quantile(0.99, sum by (le) (rate(${metric}${matchers}${WINDOW})))`;

export const OWN_FIGURES: readonly OwnFigure[] = [
  { title: "Samples ingested per second", metric: "firn_ingest_samples_total", expr: sum("firn_ingest_samples_total"), unit: "" },
  { title: "Series", metric: "firn_storage_head_series", expr: "max(firn_storage_head_series)", unit: "" },
  { title: "Active series", metric: "firn_storage_head_active_series", expr: "max(firn_storage_head_active_series)", unit: "" },
  { title: "Resident memory", metric: "process_resident_memory_bytes", expr: 'process_resident_memory_bytes{job="firn"}', unit: "bytes" },
  { title: "CPU", metric: "process_cpu_seconds_total", expr: `rate(process_cpu_seconds_total{job="firn"}${WINDOW})`, unit: "ratio" },
  { title: "Log bytes written per second", metric: "firn_storage_wal_written_bytes_total", expr: sum("firn_storage_wal_written_bytes_total"), unit: "bytes" },
  {
    title: "Log sync duration, 99th percentile",
    metric: "firn_storage_wal_fsync_duration_seconds_bucket",
    expr: p99("firn_storage_wal_fsync_duration_seconds_bucket"),
    unit: "seconds",
  },
  { title: "Blocks on disk", metric: "firn_storage_blocks_bytes", expr: "max(firn_storage_blocks_bytes)", unit: "bytes" },
  {
    title: "Requests per second",
    metric: "firn_server_requests_total",
    expr: `sum by (handler) (rate(firn_server_requests_total${WINDOW})) > 0`,
    unit: "",
  },
  {
    title: "Query duration, 99th percentile",
    metric: "firn_server_request_duration_seconds_bucket",
    expr: p99("firn_server_request_duration_seconds_bucket", '{handler=~"query|query_range"}'),
    unit: "seconds",
  },
];

// Points of a figure over the range, and the pause between them.
const STEPS = 300;
const STEP_MIN = 5;

export const stepOf = (range: number): number => Math.max(STEP_MIN, Math.floor(range / STEPS));
