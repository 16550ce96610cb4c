// Which metrics queries and rules select, and how many series the others cost.

import { searchText, type Filterable } from "../parts/filter";
import { selectorsOf } from "../query/selectors";
import type { CountOfName, MetricNameStat, RuleGroup } from "./answers";

export interface UsedMetric extends Filterable {
  name: string;
  series: number;
  // Queries since the start of the server that selected it.
  requests: number;
  // Milliseconds since the epoch.
  last: number | undefined;
  // Expressions of queries that selected it.
  queries: string[];
  // Names of the rules that select it.
  rules: string[];
  isUsed: boolean;
}

// The names of the rules that select each metric.
export function rulesByMetric(groups: readonly RuleGroup[]): Map<string, string[]> {
  const found = new Map<string, Set<string>>();
  for (const rule of groups.flatMap((group) => group.rules)) {
    for (const { metric } of selectorsOf(rule.query)) {
      const names = found.get(metric) ?? new Set();
      found.set(metric, names.add(rule.name));
    }
  }
  return new Map([...found].map(([metric, names]) => [metric, [...names].sort()]));
}

export function usedMetrics(
  counts: readonly CountOfName[],
  stats: readonly MetricNameStat[],
  groups: readonly RuleGroup[],
): UsedMetric[] {
  const byName = new Map(stats.map((stat) => [stat.metricName, stat]));
  const rules = rulesByMetric(groups);
  return counts.map(({ name, value }) => {
    const stat = byName.get(name);
    const own = rules.get(name) ?? [];
    return {
      name,
      series: value,
      requests: stat?.requestsCount ?? 0,
      last: stat && stat.lastRequestTimestamp * 1000,
      queries: stat?.queries ?? [],
      rules: own,
      isUsed: stat !== undefined || own.length > 0,
      labels: { __name__: name },
      text: searchText(name, ...own, ...(stat?.queries ?? [])),
    };
  });
}
