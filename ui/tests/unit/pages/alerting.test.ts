import { expect, test } from "vitest";
import * as alerting from "../../../src/pages/alerting";
import type { Alert, AlertingRule, RuleGroup } from "../../../src/pages/answers";

const NOW = Date.parse("2026-11-28T12:00:00Z");

function rule(name: string, state: AlertingRule["state"], alerts: Alert[] = []): AlertingRule {
  return {
    type: "alerting", name, state, alerts, query: "up == 0", duration: 300, health: "ok",
    evaluationTime: 0, lastEvaluation: "", labels: { severity: "page", team: "{{ $labels.team }}" },
  };
}

const alert = (state: Alert["state"], activeAt: string, severity = "page"): Alert =>
  ({ state, activeAt, labels: { severity }, value: "1e+00" });

const group = (rules: AlertingRule[]): RuleGroup =>
  ({ name: "g", file: "f", interval: 60, evaluationTime: 0, lastEvaluation: "", rules });

test("firing rules come first, and equal rules keep the order of the file", () => {
  const states = ["inactive", "pending", "firing", "pending"] as const;
  const rules = alerting.alertingRules([group(states.map((state, i) => rule(`r${String(i)}`, state)))]);
  expect(rules.map((placed) => placed.rule.name)).toEqual(["r2", "r1", "r3", "r0"]);
  expect(new Set(rules.map(({ id }) => id)).size).toBe(4);
});

test("alerts of a rule are sorted by state and age", () => {
  const alerts = [
    alert("pending", "2026-11-28T10:00:00Z"),
    alert("firing", "2026-11-28T11:00:00Z"),
    alert("firing", "2026-11-28T09:00:00Z"),
  ];
  expect(alerting.sortedAlerts(alerts).map(({ activeAt }) => activeAt?.slice(11, 13))).toEqual(["09", "11", "10"]);
});

test("severities are counted over all alerts", () => {
  const alerts = [alert("firing", ""), alert("firing", "", "warn"), alert("pending", "", "warn")];
  const rules = alerting.alertingRules([group([rule("a", "firing", alerts)])]);
  expect(alerting.countsBySeverity(rules)).toEqual([{ name: "warn", count: 2 }, { name: "page", count: 1 }]);
});

test("a pending alert has the rest of its time left, others have none", () => {
  const pending = alert("pending", "2026-11-28T11:58:00Z");
  expect(alerting.secondsToFiring(rule("a", "pending"), pending, NOW)).toBe(180);
  expect(alerting.secondsToFiring(rule("a", "pending"), pending, NOW + 3_600_000)).toBe(0);
  expect(alerting.secondsToFiring(rule("a", "firing"), alert("firing", "2026-11-28T11:58:00Z"), NOW)).toBeUndefined();
});

test("matchers quote values, and selectors leave out templates", () => {
  expect(alerting.silenceMatchers({ alertname: "A", path: 'a"b\\' })).toBe('alertname="A" path="a\\"b\\\\"');
  expect(alerting.alertsSelector(rule("Down", "firing"))).toBe('ALERTS{alertname="Down", severity="page"}');
});

test.each([
  ["https://runbooks.example/a?b=c", "https://runbooks.example/a?b=c"],
  [" http://a.example ", "http://a.example/"],
  ["javascript:alert(1)", undefined],
  ["JavaScript:alert(1)//https://a", undefined],
  ["data:text/html,x", undefined],
  ["see https://a.example", undefined],
  ["https://", undefined],
])("annotation %j links to %j", (text, link) => {
  expect(alerting.linkOf(text)).toBe(link);
});
