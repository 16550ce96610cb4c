// Searchable rules, and groups with their own metrics.

import { searchText, type Filterable } from "../parts/filter";
import type { PlacedRule } from "./alerting";
import type { Alert, RuleGroup } from "./answers";
import type { SelfMetrics } from "./selfMetrics";

// A rule as filters see it: `group`, `file` and `type` are matchers too.
export function filterableRule({ rule, group }: PlacedRule): Filterable {
  const annotations = rule.type === "alerting" ? Object.values(rule.annotations ?? {}) : [];
  const text = searchText(
    rule.name, rule.query, group.name, group.file, rule.lastError ?? "", ...Object.values(rule.labels ?? {}), ...annotations,
  );
  return { text, labels: { ...rule.labels, group: group.name, file: group.file, type: rule.type } };
}

// An alert as filters see it: the texts and labels of its rule, and its own labels and annotations.
export function filterableAlert(ofRule: Filterable, { labels, annotations }: Alert): Filterable {
  const own = searchText(...Object.values(labels), ...Object.values(annotations ?? {}));
  return { text: `${ofRule.text} ${own}`, labels: { ...ofRule.labels, ...labels } };
}

export interface GroupRow {
  id: string;
  group: RuleGroup;
  failing: number;
  // Share of the interval that the last evaluation took.
  load: number;
  // Evaluations since the start that were missed, and those made up later.
  missed: number;
  madeUp: number;
  // Samples of the last evaluation.
  samples: number | undefined;
}

export function groupRows(groups: readonly RuleGroup[], metrics: SelfMetrics): GroupRow[] {
  return groups.map((group) => {
    const labels = { rule_group: `${group.file};${group.name}` };
    return {
      id: `${group.file};${group.name}`,
      group,
      failing: group.rules.filter(({ health }) => health === "err").length,
      load: group.interval > 0 ? group.evaluationTime / group.interval : 0,
      missed: metrics.value("firn_rule_group_iterations_missed_total", labels) ?? 0,
      madeUp: metrics.value("firn_rule_group_iterations_made_up_total", labels) ?? 0,
      samples: metrics.value("firn_rule_group_last_evaluation_samples", labels),
    };
  });
}
