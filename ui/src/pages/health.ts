// The health of the server as short texts, each with the page that has the details.

import { counted, formatGrouped, formatNumber } from "../format/number";
import { parseTime } from "../format/time";
import { alertingRules, placedRules } from "./alerting";
import type { ActiveTarget, RuleGroup, RuntimeAnswer } from "./answers";
import type { SelfMetrics } from "./selfMetrics";

export interface HealthFact {
  text: string;
  tone: "good" | "warn" | "bad" | "plain";
  // Page with the details, and its parameters.
  path: string;
  params: Record<string, string>;
  // A time that the text ends with, in milliseconds.
  at?: number;
}

function targetsFact(targets: readonly ActiveTarget[]): HealthFact {
  const down = targets.filter(({ health }) => health === "down").length;
  const up = targets.filter(({ health }) => health === "up").length;
  if (targets.length === 0) return { text: "no targets", tone: "plain", path: "/targets", params: {} };
  const text = `${formatGrouped(up)} of ${counted(targets.length, "target")} up`;
  return down === 0 ? { text, tone: "good", path: "/targets", params: {} } : { text, tone: "bad", path: "/targets", params: { health: "down" } };
}

function alertsFact(groups: readonly RuleGroup[]): HealthFact {
  const rules = alertingRules(groups);
  const of = (state: string) => rules.flatMap(({ rule }) => rule.alerts ?? []).filter((alert) => alert.state === state).length;
  const [firing, pending] = [of("firing"), of("pending")];
  if (firing > 0) return { text: `${counted(firing, "alert")} firing`, tone: "bad", path: "/alerts", params: { state: "firing" } };
  if (pending > 0) return { text: `${counted(pending, "alert")} pending`, tone: "warn", path: "/alerts", params: { state: "pending" } };
  const text = rules.length === 0 ? "no alerting rules" : "no alert fires";
  return { text, tone: rules.length === 0 ? "plain" : "good", path: "/alerts", params: {} };
}

function rulesFact(groups: readonly RuleGroup[]): HealthFact | undefined {
  const rules = placedRules(groups);
  const failing = rules.filter(({ rule }) => rule.health === "err").length;
  if (rules.length === 0) return undefined;
  if (failing > 0) return { text: `${counted(failing, "rule")} failing`, tone: "bad", path: "/rules", params: { health: "err" } };
  return { text: `${counted(rules.length, "rule")} fine`, tone: "good", path: "/rules", params: {} };
}

function reloadFact(runtime: RuntimeAnswer): HealthFact {
  const at = parseTime(runtime.lastConfigTime);
  if (!runtime.reloadConfigSuccess) return { text: "the last reload failed", tone: "bad", path: "/config", params: {} };
  const fact: HealthFact = { text: "configuration loaded", tone: "good", path: "/config", params: {} };
  return at === undefined ? fact : { ...fact, at };
}

function storageFacts(metrics: SelfMetrics): HealthFact[] {
  const facts: HealthFact[] = [];
  const add = (text: string, tone: HealthFact["tone"]) => facts.push({ text, tone, path: "/tsdb-status", params: {} });
  const series = metrics.value("firn_storage_head_series");
  if (series !== undefined) add(`${formatGrouped(series)} series`, "plain");
  const disk = metrics.sum("firn_storage_disk_bytes");
  const limit = metrics.value("firn_storage_retention_limit_bytes") ?? 0;
  if (disk !== undefined) {
    add(limit > 0 ? `${formatNumber(disk, "bytes", 3)} of ${formatNumber(limit, "bytes", 3)} on disk` : `${formatNumber(disk, "bytes", 3)} on disk`, "plain");
  }
  const damages = (metrics.sum("firn_storage_damages_total") ?? 0) + (metrics.sum("firn_storage_blocks_bad") ?? 0);
  if (damages > 0) add(`${counted(damages, "damaged range")} found`, "bad");
  return facts;
}

// Parts that the credential may not read, or that the server lacks in its mode, are left out.
export function healthFacts(
  runtime: RuntimeAnswer | undefined,
  targets: readonly ActiveTarget[] | undefined,
  groups: readonly RuleGroup[] | undefined,
  metrics: SelfMetrics,
): HealthFact[] {
  const facts = [
    targets && targetsFact(targets),
    groups && alertsFact(groups),
    groups && rulesFact(groups),
    runtime && reloadFact(runtime),
    ...storageFacts(metrics),
  ];
  return facts.filter((fact) => fact !== undefined);
}
