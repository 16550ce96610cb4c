// A rule evaluated over the past by `/api/v1/rules/preview`.

import { post, type Outcome } from "../api/client";
import { numberOf } from "../api/matrix";
import type { Labels } from "../api/types";
import { formatDuration, parseDuration, spell } from "../format/duration";
import { counted } from "../format/number";
import type { Firing } from "../graph/marks";
import type { Run } from "../parts/runs";
import { ruleFields } from "./ruleText";

export interface AlertPeriod {
  activeAt: string;
  firedAt?: string;
  endedAt?: string;
  value: string;
}

export interface PreviewedAlert {
  labels: Labels;
  annotations: Labels;
  periods: AlertPeriod[];
}

interface AnyPreview {
  name: string;
  query: string;
  // In seconds.
  interval: number;
  evaluations: number;
  failedEvaluations: number;
  lastError?: string;
}

export interface AlertPreview extends AnyPreview {
  type: "alerting";
  firings: number;
  firingSeconds: number;
  alerts: PreviewedAlert[];
}

export interface RecordingPreview extends AnyPreview {
  type: "recording";
  seriesCount: number;
  sampleCount: number;
  series: { labels: Labels; samples: number; lastValue?: string }[];
}

export type RulePreview = AlertPreview | RecordingPreview;

// Times of the evaluations, in seconds.
export interface PreviewTimes {
  start: number;
  end: number;
  // Undefined for the evaluation interval of the server.
  interval: number | undefined;
}

// The server evaluates a rule at most 11,000 times, which it names in its error.
const EVALUATIONS_MAX = 11_000;
const TOO_MANY = "exceeded maximum resolution";
const INTERVALS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 86_400];

// The shortest interval of a list that stays below the limit of evaluations, also with the time before the range in
// which a condition has to hold.
export function coarseInterval(rule: string, { start, end }: PreviewTimes): number {
  const span = spanOf(rule, { start, end });
  return INTERVALS.find((seconds) => span / seconds < EVALUATIONS_MAX - 1) ?? Math.ceil(span / (EVALUATIONS_MAX - 2));
}

function spanOf(rule: string, { start, end }: Pick<PreviewTimes, "start" | "end">): number {
  const fields = ruleFields(rule);
  const waits = ["for", "keep_firing_for"].map((name) => parseDuration(fields.get(name)?.value ?? "") ?? 0);
  return end - start + waits.reduce((sum, seconds) => sum + seconds, 0);
}

// Evaluates a rule at its interval, or at a longer one if that would be too often.
export async function previewRule(rule: string, times: PreviewTimes, signal: AbortSignal): Promise<Outcome<RulePreview>> {
  const ask = (interval: number | undefined) =>
    post<RulePreview>("rules/preview", { rule, start: times.start, end: times.end, interval: interval && formatDuration(interval) }, { signal });
  const isKnownTooMany = times.interval !== undefined && spanOf(rule, times) / times.interval >= EVALUATIONS_MAX - 1;
  if (isKnownTooMany) return ask(coarseInterval(rule, times));
  const outcome = await ask(times.interval);
  const isTooMany = !outcome.ok && outcome.failure.kind === "refused" && outcome.failure.message.includes(TOO_MANY);
  return isTooMany ? ask(coarseInterval(rule, times)) : outcome;
}

export interface ShownPeriod {
  // In seconds; `fired` is undefined if the alert did not fire, `ended` if it is active at the end of the range.
  active: number;
  fired: number | undefined;
  ended: number | undefined;
  value: number;
  // For how long it fired within the range.
  seconds: number;
}

export interface AlertRow {
  id: string;
  labels: Labels;
  annotations: Labels;
  periods: ShownPeriod[];
  firings: number;
  seconds: number;
}

const secondsOf = (text: string | undefined) => (text === undefined ? undefined : Date.parse(text) / 1000);

function periodOf({ activeAt, firedAt, endedAt, value }: AlertPeriod, { start, end }: PreviewTimes): ShownPeriod {
  const [active = start, fired, ended] = [activeAt, firedAt, endedAt].map(secondsOf);
  const seconds = fired === undefined ? 0 : Math.max(0, (ended ?? end) - Math.max(fired, start));
  return { active, fired, ended, value: numberOf(value), seconds };
}

// The alerts of a preview, those that fired longest first.
export function alertRows({ alerts }: AlertPreview, times: PreviewTimes): AlertRow[] {
  const rows = alerts.map(({ labels, annotations, periods: texts }) => {
    const periods = texts.map((period) => periodOf(period, times));
    return {
      id: JSON.stringify(labels),
      labels,
      annotations,
      periods,
      firings: periods.filter(({ fired }) => fired !== undefined).length,
      seconds: periods.reduce((sum, { seconds }) => sum + seconds, 0),
    };
  });
  return rows.sort((a, b) => b.seconds - a.seconds);
}

// The times at which alerts fired, as bands of a graph.
export function firingBands(rows: readonly AlertRow[], { start, end }: PreviewTimes): Firing[] {
  return rows.flatMap(({ labels, periods }) =>
    periods.flatMap(({ fired, ended }) =>
      fired === undefined ? [] : [{ name: labels["alertname"] ?? "", start: Math.max(fired, start), end: ended ?? end }]));
}

// Pending and firing times of an alert, as a strip.
export function alertRuns(periods: readonly ShownPeriod[], { start, end }: PreviewTimes): Run[] {
  return periods.flatMap(({ active, fired, ended }): Run[] => {
    const until = ended ?? end;
    const from = Math.max(active, start);
    const turn = Math.max(fired ?? until, start);
    return [
      ...(turn > from ? [{ start: from, end: turn, state: "warn" as const }] : []),
      ...(until > turn ? [{ start: turn, end: until, state: "bad" as const }] : []),
    ];
  });
}

// "3 firings of 2 alerts, 1 h 5 min in all, the longest 40 min."
export function firingWords(rows: readonly AlertRow[]): string {
  const firing = rows.filter(({ firings }) => firings > 0);
  if (firing.length === 0) return rows.length === 0 ? "no alert." : `no firing; ${counted(rows.length, "alert")} pending.`;
  const periods = firing.flatMap((row) => row.periods);
  const count = firing.reduce((sum, { firings }) => sum + firings, 0);
  const total = periods.reduce((sum, { seconds }) => sum + seconds, 0);
  const longest = Math.max(...periods.map(({ seconds }) => seconds));
  const most = count === 1 ? "" : `, the longest ${spell(longest)}`;
  return `${counted(count, "firing")} of ${counted(firing.length, "alert")}, ${spell(total)} in all${most}.`;
}

// The difference that a change of a rule makes; undefined for a recording rule.
export function changeWords(base: RulePreview, changed: RulePreview): string | undefined {
  if (base.type !== "alerting" || changed.type !== "alerting") return undefined;
  const words = (difference: number) =>
    difference === 0 ? "as many firings as" : `${counted(Math.abs(difference), "firing")} ${difference < 0 ? "fewer" : "more"} than`;
  return `${words(changed.firings - base.firings)} the rule as written, which has ${String(base.firings)}`;
}
