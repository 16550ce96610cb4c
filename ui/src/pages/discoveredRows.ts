// Rows of the page of discovery: each target as found, and with its labels after relabelling if it was
// kept.

import type { Labels } from "../api/types";
import { searchText, type Filterable } from "../parts/filter";
import type { TargetsAnswer } from "./answers";

export interface DiscoveredRow extends Filterable {
  id: string;
  pool: string;
  before: Labels;
  // Undefined if relabelling dropped the target.
  after: Labels | undefined;
}

function rowOf(pool: string, before: Labels, after: Labels | undefined, i: number): DiscoveredRow {
  const labels = { ...before, ...after };
  const text = searchText(pool, ...Object.values(before), ...Object.values(after ?? {}), after ? "kept" : "dropped");
  // Two targets may have the same address.
  return { id: `${pool} ${before["__address__"] ?? ""} ${String(i)}`, pool, before, after, labels, text };
}

export function discoveredRows({ activeTargets, droppedTargets = [] }: TargetsAnswer): DiscoveredRow[] {
  return [
    ...activeTargets.map((target, i) => rowOf(target.scrapePool, target.discoveredLabels, target.labels, i)),
    ...droppedTargets.map((target, i) => rowOf(target.scrapePool, target.discoveredLabels, undefined, i)),
  ];
}

// Default values of a relabelling rule, which the text of a rule omits.
const DEFAULTS: Record<string, unknown> = { separator: ";", regex: "(.*)", replacement: "$1", action: "replace" };

// A relabelling rule in one line, without its defaults.
export function relabelRuleText(rule: Record<string, unknown>): string {
  const entries = Object.entries(rule).filter(([name, value]) => name === "action" || DEFAULTS[name] !== value);
  const order = (name: string) => (name === "action" ? 0 : 1);
  entries.sort(([a], [b]) => order(a) - order(b));
  return entries.map(([name, value]) => `${name}: ${Array.isArray(value) ? `[${value.join(", ")}]` : String(value)}`).join(", ");
}
