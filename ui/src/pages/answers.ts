// Answers of the API that the pages of this folder read: the fields that they use, by endpoint.

import type { Labels } from "../api/types";

// `/api/v1/targets`
export interface ActiveTarget {
  discoveredLabels: Labels;
  labels: Labels;
  scrapePool: string;
  scrapeUrl: string;
  globalUrl: string;
  lastError: string;
  lastScrape: string;
  // In seconds.
  lastScrapeDuration: number;
  health: "up" | "down" | "unknown";
  scrapeInterval: string;
  scrapeTimeout: string;
}

export interface DroppedTarget {
  discoveredLabels: Labels;
  scrapePool: string;
}

export interface TargetsAnswer {
  activeTargets: ActiveTarget[];
  droppedTargets?: DroppedTarget[];
  droppedTargetCounts?: Record<string, number>;
}

// `/api/v1/targets/relabel_steps`
export interface RelabelStep {
  rule: Record<string, unknown>;
  output: Labels;
  keep: boolean;
}

// `/api/v1/rules`
export type AlertState = "firing" | "pending" | "inactive" | "unknown";

export interface Alert {
  labels: Labels;
  annotations?: Labels;
  state: AlertState;
  activeAt?: string;
  value: string;
  keepFiringSince?: string;
}

interface AnyRule {
  name: string;
  query: string;
  labels?: Labels;
  health: "ok" | "err" | "unknown";
  lastError?: string;
  // In seconds.
  evaluationTime: number;
  lastEvaluation: string;
}

export interface RecordingRule extends AnyRule {
  type: "recording";
}

export interface AlertingRule extends AnyRule {
  type: "alerting";
  state: AlertState;
  // `for` and `keep_firing_for`, in seconds.
  duration: number;
  keepFiringFor?: number;
  annotations?: Labels;
  alerts?: Alert[];
}

export type Rule = RecordingRule | AlertingRule;

export interface RuleGroup {
  name: string;
  file: string;
  // In seconds.
  interval: number;
  limit?: number;
  evaluationTime: number;
  lastEvaluation: string;
  rules: Rule[];
}

export interface RulesAnswer {
  groups: RuleGroup[];
}

// `/api/v1/rules/backfill`
export interface Backfill {
  group: string;
  file: string;
  start: string;
  end: string;
  state: "running" | "done";
  instantsDone: number;
  instants: number;
  samples: number;
  lastError?: string;
}

// `/api/v1/alertmanagers`
export interface AlertmanagersAnswer {
  activeAlertmanagers: { url: string }[];
  droppedAlertmanagers: { url: string }[];
}

// `/api/v1/status/tsdb`
export interface CountOfName {
  name: string;
  value: number;
}

export interface HeadAnswer {
  headStats: {
    numSeries: number;
    numLabelPairs: number;
    chunkCount: number;
    minTime: number;
    maxTime: number;
  };
  seriesCountByMetricName?: CountOfName[];
  labelValueCountByLabelName?: CountOfName[];
  memoryInBytesByLabelName?: CountOfName[];
  seriesCountByLabelValuePair?: CountOfName[];
}

// `/api/v1/status/tsdb/blocks`
export interface Block {
  ulid: string;
  minTime: number;
  maxTime: number;
  stats: { numSamples?: number; numSeries?: number; numChunks?: number; numHistogramSamples?: number };
  compaction: { level: number; sources?: string[] };
  firn: { bytes: number; late: boolean; bad: boolean; firstTime: number; lastTime: number };
}

export interface BlockWork {
  running: boolean;
  series: number;
  seriesDone: number;
  writtenBytes: number;
  lastDurationSeconds: number;
}

export interface BlocksAnswer {
  blocks: Block[];
  firn?: { cutTime?: number; cut: BlockWork; compaction: BlockWork };
}

// `/api/v1/status/runtimeinfo`
export interface RuntimeAnswer {
  startTime: string;
  CWD: string;
  hostname: string;
  serverTime: string;
  reloadConfigSuccess: boolean;
  lastConfigTime: string;
  corruptionCount: number;
  storageRetention: string;
  [field: string]: unknown;
}

// `/api/v1/status/buildinfo`
export interface BuildAnswer {
  version: string;
  firn_version: string;
  [field: string]: unknown;
}

// `/api/v1/status/cluster`
export interface ClusterNode {
  name: string;
  address: string;
  version: string;
  state: string;
  seenSecondsAgo?: number;
  partitionsLed: number;
}

export interface ClusterPartition {
  partition: number;
  leader?: string;
  epoch: number;
  state: string;
  position: number;
  series?: number;
  cutTime?: number;
  lastCommitTime?: number;
  logBytes?: number;
  fault?: string;
}

export type ClusterAnswer =
  | { enabled: false }
  | {
      enabled: true;
      cluster: string;
      node: string;
      version: string;
      draining: boolean;
      time: number;
      fault?: string;
      nodes: ClusterNode[];
      partitions: ClusterPartition[];
    };

// `/api/v1/status/active_queries`, `/top_queries`, `/query_history`
export interface ActiveQuery {
  id: number;
  queryId?: string;
  query: string;
  handler: string;
  tenant: string;
  client: string;
  ageSeconds: number;
  samples: number;
  bytes: number;
  phase: "wait" | "select" | "evaluate" | "encode";
}

export interface TopQuery {
  query: string;
  count: number;
  avgDurationSeconds: number;
  sumDurationSeconds: number;
}

export interface TopQueriesAnswer {
  topByCount: TopQuery[];
  topByAvgDuration: TopQuery[];
  topBySumDuration: TopQuery[];
}

export interface EndedQuery {
  query: string;
  tenant: string;
  client: string;
  startedAt: string;
  durationSeconds: number;
}

// `/api/v1/cardinality/label_values`
export interface LabelValuesAnswer {
  series_count_total: number;
  // Of the other time range of the request, if there is one.
  baseline_series_count_total?: number;
  labels: {
    label_name: string;
    label_values_count: number;
    series_count: number;
    cardinality: { label_value: string; series_count: number; baseline_series_count?: number }[];
  }[];
}

// `/api/v1/cardinality/label_names`
export interface LabelNamesAnswer {
  label_values_count_total: number;
  label_names_count: number;
  cardinality: { label_name: string; label_values_count: number }[];
}

// `/api/v1/status/discards`
export interface Discard {
  reason: string;
  sender: { kind: string; job?: string; group?: string; tenant?: string; address?: string | null };
  job: string;
  samples: number;
  writes: number;
  // In seconds since the epoch.
  first: number;
  last: number;
  example: string;
  labels: Labels;
}

// `/api/v1/status/metric_names_stats`
export interface MetricNameStat {
  metricName: string;
  requestsCount: number;
  // In seconds since the epoch.
  lastRequestTimestamp: number;
  queries: string[];
}
