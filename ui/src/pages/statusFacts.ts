// The state of the server in words, from its build, runtime and own metrics.

import { spell } from "../format/duration";
import { counted, formatGrouped, formatNumber } from "../format/number";
import { formatAgo, formatTime, parseTime } from "../format/time";
import type { Fact } from "../parts/fact";
import type { BuildAnswer, RuntimeAnswer } from "./answers";
import type { SelfMetrics } from "./selfMetrics";

export function statusFacts(build: BuildAnswer, runtime: RuntimeAnswer, now: number, zone: string): Fact[] {
  const [started, loaded] = [parseTime(runtime.startTime), parseTime(runtime.lastConfigTime)];
  const drift = Math.abs((parseTime(runtime.serverTime) ?? now) - now) / 1000;
  const facts: Fact[] = [
    { name: "Version", value: `Firn ${build.firn_version}`, field: "firn_version" },
    { name: "Compatible with", value: `Prometheus ${build.version}`, field: "version" },
    { name: "Running for", value: started === undefined ? "–" : spell(Math.round((now - started) / 1000)), field: "startTime" },
    { name: "Host", value: runtime.hostname, field: "hostname" },
    { name: "Working folder", value: runtime.CWD, field: "CWD" },
    { name: "Keeps samples for", value: runtime.storageRetention || "–", field: "storageRetention" },
    reloadFact(runtime.reloadConfigSuccess, loaded, now),
  ];
  if (started !== undefined && facts[2]) facts[2].exact = `since ${formatTime(started, zone)}`;
  if (loaded !== undefined) facts.push({ name: "Configuration of", value: formatTime(loaded, zone), field: "lastConfigTime" });
  if (runtime.corruptionCount > 0) {
    facts.push({ name: "Damage", value: counted(runtime.corruptionCount, "damaged range"), field: "corruptionCount", tone: "bad" });
  }
  // Smaller differences may come from the duration of the request.
  if (drift > 30) facts.push({ name: "Clock", value: `differs from this browser by ${spell(Math.round(drift))}`, field: "serverTime", tone: "warn" });
  return facts;
}

function reloadFact(isGood: boolean, loaded: number | undefined, now: number): Fact {
  const value = loaded === undefined ? "–" : formatAgo(loaded, now);
  if (isGood) return { name: "Last reload", value, field: "reloadConfigSuccess" };
  return { name: "Last reload", value: "failed: the configuration before it is in force", field: "reloadConfigSuccess", tone: "bad" };
}

// A value against its limit: "120 MiB of 2 GiB".
function against(used: number | undefined, limit: number | undefined, unit: string): string {
  if (used === undefined) return "–";
  const shown = (value: number) => (unit === "bytes" ? formatNumber(value, "bytes", 3) : formatGrouped(value));
  return limit ? `${shown(used)} of ${shown(limit)}` : shown(used);
}

function share(used: number | undefined, limit: number | undefined): "warn" | undefined {
  return used !== undefined && limit && used / limit > 0.9 ? "warn" : undefined;
}

export function processFacts(metrics: SelfMetrics): Fact[] {
  const value = (name: string) => metrics.value(name);
  const limited = (name: string, used: string, limit: string, unit: string): Fact => {
    const tone = share(value(used), value(limit));
    const fact: Fact = { name, value: against(value(used), value(limit), unit), field: used };
    return tone ? { ...fact, tone } : fact;
  };
  const facts: Fact[] = [
    limited("Memory accounted", "firn_memory_used_bytes", "firn_memory_limit_bytes", "bytes"),
    limited("Memory resident", "process_resident_memory_bytes", "", "bytes"),
    limited("Open files", "process_open_fds", "process_max_fds", ""),
    limited("Threads", "process_threads", "", ""),
    limited("Connections", "firn_server_connections", "", ""),
  ];
  const cpu = value("process_cpu_seconds_total");
  if (cpu !== undefined) facts.push({ name: "CPU time used", value: spell(cpu), field: "process_cpu_seconds_total" });
  if (value("firn_access_last_reload_successful") === 0) {
    facts.push({ name: "Users and certificates", value: "the last reload failed", field: "firn_access_last_reload_successful", tone: "bad" });
  }
  return facts;
}

// All fields under Prometheus's names, as they are.
export function goFields(runtime: RuntimeAnswer, build: BuildAnswer): Fact[] {
  return Object.entries({ ...build, ...runtime }).map(([name, value]) => ({ name, value: value === "" ? "–" : String(value) }));
}

// The facts as text for a bug report.
export function bugReport(facts: readonly Fact[], features: readonly [string, Record<string, boolean>][]): string {
  const on = features.flatMap(([, entries]) => Object.entries(entries).filter(([, isOn]) => isOn).map(([name]) => name));
  const hidden = new Set(["Host", "Working folder"]);
  const lines = facts.filter(({ name }) => !hidden.has(name)).map(({ name, value }) => `${name}: ${value}`);
  return `${[...lines, `Features: ${on.join(", ")}`].join("\n")}\n`;
}
