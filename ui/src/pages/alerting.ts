// Alerts and rules as the pages show them: the rules of all groups in one list, worst first.

import type { Labels } from "../api/types";
import { labelName, quote } from "../format/labels";
import type { Alert, AlertState, AlertingRule, Rule, RuleGroup } from "./answers";

// A rule with the group that it belongs to.
export interface PlacedRule<R extends Rule = Rule> {
  rule: R;
  group: RuleGroup;
  // Names the rule among all rules: groups may have several rules of one name.
  id: string;
}

const STATES: AlertState[] = ["firing", "pending", "unknown", "inactive"];

export const stateRank = (state: AlertState): number => STATES.indexOf(state);

// All rules with their groups, in file order.
export function placedRules(groups: readonly RuleGroup[]): PlacedRule[] {
  return groups.flatMap((group) =>
    group.rules.map((rule, i) => ({ rule, group, id: `${group.file};${group.name};${String(i)}` })));
}

const isAlerting = (placed: PlacedRule): placed is PlacedRule<AlertingRule> => placed.rule.type === "alerting";

// Alerting rules: firing first, then pending, then the rest; equal ones in file order.
export function alertingRules(groups: readonly RuleGroup[]): PlacedRule<AlertingRule>[] {
  const rules = placedRules(groups).filter(isAlerting);
  return rules.sort((a, b) => stateRank(a.rule.state) - stateRank(b.rule.state));
}

// Alerts of a rule: firing first, and then the oldest first.
export function sortedAlerts(alerts: readonly Alert[]): Alert[] {
  const since = ({ activeAt }: Alert) => Date.parse(activeAt ?? "") || 0;
  return [...alerts].sort((a, b) => stateRank(a.state) - stateRank(b.state) || since(a) - since(b));
}

export interface Count {
  name: string;
  count: number;
}

// The number of firing and pending alerts of each severity, the most frequent severity first.
export function countsBySeverity(rules: readonly PlacedRule<AlertingRule>[]): Count[] {
  const counts = new Map<string, number>();
  for (const { rule } of rules) {
    for (const { labels } of rule.alerts ?? []) {
      const severity = labels["severity"] ?? "";
      counts.set(severity, (counts.get(severity) ?? 0) + 1);
    }
  }
  const list = [...counts].map(([name, count]) => ({ name, count }));
  return list.sort((a, b) => b.count - a.count || a.name.localeCompare(b.name));
}

// Seconds until a pending alert fires if its expression stays true; never negative.
export function secondsToFiring(rule: AlertingRule, alert: Alert, nowMs: number): number | undefined {
  const since = Date.parse(alert.activeAt ?? "");
  if (alert.state !== "pending" || Number.isNaN(since)) return undefined;
  return Math.max(0, rule.duration - (nowMs - since) / 1000);
}

// The labels of an alert as matchers of a silence, as `amtool silence add` reads them.
export const silenceMatchers = (labels: Labels): string =>
  Object.entries(labels).map(([name, value]) => `${name}=${quote(value)}`).join(" ");

// The selector of the series `ALERTS` of a rule.
export function alertsSelector(rule: AlertingRule): string {
  const fixed = Object.entries(rule.labels ?? {}).filter(([, value]) => !value.includes("{{"));
  const matchers = [["alertname", rule.name] as const, ...fixed];
  return `ALERTS{${matchers.map(([name, value]) => `${labelName(name)}=${quote(value)}`).join(", ")}}`;
}

// The address of an annotation, if it is one that a browser may open safely.
export function linkOf(text: string): string | undefined {
  const trimmed = text.trim();
  if (!/^https?:\/\/\S+$/i.test(trimmed)) return undefined;
  try {
    return new URL(trimmed).href;
  } catch {
    return undefined;
  }
}
