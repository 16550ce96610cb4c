import { expect, test } from "vitest";
import type { ActiveTarget, Block, BuildAnswer, HeadAnswer, RuntimeAnswer } from "../../../src/pages/answers";
import { relabelRuleText } from "../../../src/pages/discoveredRows";
import { healthFacts } from "../../../src/pages/health";
import { isFresh, jobRows } from "../../../src/pages/jobs";
import { SelfMetrics } from "../../../src/pages/selfMetrics";
import { bugReport, processFacts, statusFacts } from "../../../src/pages/statusFacts";
import { diskParts, headFacts, logFacts, retentionText, workProgress } from "../../../src/pages/storageFacts";
import { deliveries, targetRows, upRuns } from "../../../src/pages/targetRows";

const NOW = Date.parse("2026-11-28T12:00:00Z");

const RUNTIME: RuntimeAnswer = {
  startTime: "2026-11-28T10:00:00Z", CWD: "/srv", hostname: "h", serverTime: "2026-11-28T12:00:00Z",
  reloadConfigSuccess: true, lastConfigTime: "2026-11-28T11:00:00Z", corruptionCount: 0, storageRetention: "15d",
};
const BUILD: BuildAnswer = { version: "3.14.0", firn_version: "0.1.0" };

const gauges = (values: Record<string, number>) =>
  new SelfMetrics(Object.entries(values).map(([name, value]) => ({ name, metric: [{ gauge: { value } }] })));

const target = (job: string, health: ActiveTarget["health"], instance = "a:1"): ActiveTarget => ({
  discoveredLabels: {}, labels: { job, instance }, scrapePool: job, scrapeUrl: `http://${instance}/metrics`,
  globalUrl: "", lastError: "", lastScrape: "", lastScrapeDuration: 1, health, scrapeInterval: "15s", scrapeTimeout: "10s",
});

test("the status is in words, and marks a failed reload and a wrong clock", () => {
  const value = (name: string, runtime = RUNTIME) => statusFacts(BUILD, runtime, NOW, "UTC").find((fact) => fact.name === name);
  expect(value("Running for")).toMatchObject({ value: "2 h", field: "startTime", exact: "since 2026-11-28 10:00:00" });
  expect(value("Last reload")?.value).toBe("1 h ago");
  expect(value("Damage")).toBeUndefined();
  expect(value("Clock")).toBeUndefined();
  const bad = { ...RUNTIME, reloadConfigSuccess: false, corruptionCount: 2, serverTime: "2026-11-28T11:50:00Z" };
  expect(value("Last reload", bad)?.tone).toBe("bad");
  expect(value("Damage", bad)?.value).toBe("2 damaged ranges");
  expect(value("Clock", bad)?.value).toBe("differs from this browser by 10 min");
});

test("memory and files are shown with their limits", () => {
  const facts = processFacts(gauges({ firn_memory_used_bytes: 3 * 2 ** 20, firn_memory_limit_bytes: 2 ** 30, process_open_fds: 95, process_max_fds: 100 }));
  expect(facts.find(({ name }) => name === "Memory accounted")?.value).toBe("3 MiB of 1 GiB");
  expect(facts.find(({ name }) => name === "Open files")).toMatchObject({ value: "95 of 100", tone: "warn" });
});

test("a bug report omits the names of the machine", () => {
  const text = bugReport(statusFacts(BUILD, RUNTIME, NOW, "UTC"), [["api", { admin: true, search: false }]]);
  expect(text).toContain("Version: Firn 0.1.0\n");
  expect(text).toContain("Features: admin\n");
  expect(text).not.toContain("/srv");
});

test("health links to the faults", () => {
  const facts = healthFacts(RUNTIME, [target("a", "up"), target("a", "down")], [], gauges({ firn_storage_head_series: 1234 }));
  expect(facts.map(({ text, tone }) => [text, tone])).toEqual([
    ["1 of 2 targets up", "bad"],
    ["no alerting rules", "plain"],
    ["configuration loaded", "good"],
    ["1,234 series", "plain"],
  ]);
  expect(facts[0]).toMatchObject({ path: "/targets", params: { health: "down" } });
});

const counts = (total: number, own: number) => ({
  series_count_total: total,
  labels: [{ label_name: "job", label_values_count: 1, series_count: own, cardinality: [{ label_value: "firn", series_count: own }] }],
});

test("a server is fresh while it has its own series only", () => {
  expect(isFresh([target("firn", "up")], counts(900, 900))).toBe(true);
  expect(isFresh([target("firn", "up")], counts(901, 900))).toBe(false);
  expect(isFresh([target("shop", "up")], counts(900, 900))).toBe(false);
});

test("jobs that send are listed with scraped ones, Firn's own last", () => {
  const sending = { label_value: "otel", series_count: 7 };
  const answer = counts(907, 900);
  answer.labels[0]?.cardinality.push(sending);
  const rows = jobRows([target("firn", "up"), target("shop", "down")], answer, [{ metric: { job: "shop" }, value: [0, "2.5"] }], []);
  expect(rows.map(({ job, up, targets, series, rate }) => [job, up, targets, series, rate])).toEqual([
    ["otel", 0, 0, 7, undefined],
    ["shop", 0, 1, undefined, 2.5],
    ["firn", 1, 1, 900, undefined],
  ]);
});

test("targets are joined with their delivered samples and with their states, whatever the order of labels", () => {
  const metric = (name: string) => ({ __name__: name, instance: "a:1", job: "x" });
  const delivered = deliveries(
    [{ metric: metric("scrape_samples_scraped"), value: [0, "100"] }, { metric: metric("scrape_samples_post_metric_relabeling"), value: [0, "60"] }],
    [{ metric: metric("scrape_samples_post_metric_relabeling"), value: [0, "80"] }],
  );
  const times = Float64Array.from([0, 10, 20]);
  const runs = upRuns([{ metric: metric("up"), times, values: Float64Array.from([1, 0, 0]), histograms: [] }], 10);
  const [row] = targetRows([target("x", "up")], delivered, runs);
  expect(row).toMatchObject({ delivery: { scraped: 100, kept: 60, before: 80 }, lost: 0.25, secondsDown: 20, load: 0.1 });
});

const HEAD: HeadAnswer = { headStats: { numSeries: 3, numLabelPairs: 4, chunkCount: 5, minTime: NOW - 7_200_000, maxTime: NOW - 2000 } };

test("the head has ages, and an empty head has none", () => {
  const value = (head: HeadAnswer, name: string) => headFacts(head, gauges({}), NOW, "UTC").find((fact) => fact.name === name)?.value;
  expect(value(HEAD, "Oldest sample")).toBe("2 h ago");
  expect(value(HEAD, "Newest sample")).toBe("2 s ago");
  const empty = { headStats: { ...HEAD.headStats, minTime: 2 ** 63, maxTime: -(2 ** 63) } };
  expect(value(empty, "Oldest sample")).toBe("no sample");
});

test("faults of the store are shown only when there are any", () => {
  const names = (values: Record<string, number>) => logFacts(gauges(values)).filter(({ tone }) => tone).map(({ name }) => name);
  expect(names({ firn_storage_wal_disk_full: 0 })).toEqual([]);
  expect(names({ firn_storage_wal_disk_full: 1 })).toEqual(["The disk is full: writes are rejected"]);
});

test("disk parts, retention and work are in words", () => {
  const part = (name: string, value: number) => ({ label: [{ name: "part", value: name }], gauge: { value } });
  const metrics = new SelfMetrics([{ name: "firn_storage_disk_bytes", metric: [part("log", 1), part("blocks", 5), part("none", 0)] }]);
  expect(diskParts(metrics)).toEqual([{ name: "blocks", bytes: 5 }, { name: "log", bytes: 1 }]);
  const block = { maxTime: NOW - 86_400_000 } as Block;
  expect(retentionText(gauges({ firn_storage_retention_limit_seconds: 172_800 }), [block], NOW)).toBe(
    "Firn deletes samples older than 2 d. The oldest block leaves in 1 d.");
  expect(retentionText(gauges({}), [], NOW)).toBe("Nothing is deleted: there is no limit on time or size.");
  const work = { running: true, series: 4, seriesDone: 1, writtenBytes: 1024, lastDurationSeconds: 0 };
  expect(workProgress("Cut", work)).toEqual({ name: "Cut", share: 0.25, text: "1 of 4 series, 1 KiB written" });
});

test("a relabelling rule is one line without its defaults", () => {
  const rule = { source_labels: ["a", "b"], separator: ";", regex: "x.*", replacement: "$1", action: "drop" };
  expect(relabelRuleText(rule)).toBe("action: drop, source_labels: [a, b], regex: x.*");
});
