// The request of a panel.

import { parseDuration } from "../format/duration";
import { parseUtc } from "../format/time";
import { REQUESTED_MAX } from "../graph/many";
import { automaticStep, comparedBy, stepOf, type PanelState, type View } from "./panels";
import type { Kind, Question } from "./run.svelte";
import { isRange, isString, rawExpression } from "./selectors";

// Rows of a table, and series of raw samples, that a panel requests at most.
const ROWS_MAX = 10_000;
const RAW_SERIES_MAX = 100;

export interface PageTime {
  // Seconds.
  range: number;
  // Milliseconds; undefined for now.
  end: number | undefined;
}

// The time of a panel: its own, or that of the page.
export function timeOf(panel: PanelState, page: PageTime): PageTime {
  if (panel.own === undefined) return page;
  const range = parseDuration(panel.own.range) || page.range;
  return { range, end: panel.own.end === "" ? undefined : parseUtc(panel.own.end) };
}

const INSTANT: readonly View[] = ["table", "raw", "json"];

// Explain analyzes the range, and one time where an expression has no value at a step.
export function kindOf({ view, expr }: Pick<PanelState, "view" | "expr">): Kind {
  const isInstant = view === "explain" ? isRange(expr) || isString(expr) : INSTANT.includes(view);
  return isInstant ? "instant" : "range";
}

// Views that show an earlier time beside the present one.
const COMPARED: readonly View[] = ["graph", "heatmap", "table"];

// The same question at the earlier time that a panel compares with; undefined without one.
export function earlierOf(panel: PanelState, question: Question | undefined): Question | undefined {
  if (question === undefined || !COMPARED.includes(panel.view) || question.report) return undefined;
  const seconds = comparedBy(panel.compare, question.end);
  if (seconds === undefined || Number.isNaN(seconds)) return undefined;
  return { ...question, start: question.start - seconds, end: question.end - seconds };
}

// A refresh moves a question by a small part of its range.
const MOVED_MAX = 0.1;
const INSTANT_MOVED_MAX = 60;

// Whether two questions differ at most by the time that a refresh moves them: the answer of one is shown until
// that of the other comes.
export function isAlike(one: Question | undefined, other: Question | undefined): boolean {
  if (one === undefined || other === undefined) return false;
  const shape = ({ start, end, ...rest }: Question) => JSON.stringify({ ...rest, range: Math.round((end - start) * 1000) });
  const most = one.kind === "range" ? (one.end - one.start) * MOVED_MAX : INSTANT_MOVED_MAX;
  return shape(one) === shape(other) && Math.abs(one.end - other.end) <= most;
}

// The question of a panel now; undefined without an expression, or if the step is not a duration.
export function questionOf(panel: PanelState, page: PageTime, nowMs: number): Question | undefined {
  const expr = panel.expr.trim();
  const chosen = stepOf(panel.step);
  if (expr === "" || Number.isNaN(chosen)) return undefined;
  const { range, end: endMs } = timeOf(panel, page);
  const end = (endMs ?? nowMs) / 1000;
  const shared = { kind: kindOf(panel), start: end - range, end, step: chosen ?? automaticStep(range) };
  if (panel.view === "raw") {
    const raw = rawExpression(expr, range);
    return { ...shared, expr: raw?.expr ?? expr, limit: panel.isWhole ? 0 : RAW_SERIES_MAX };
  }
  const most = shared.kind === "instant" ? ROWS_MAX : REQUESTED_MAX;
  const question = { ...shared, expr, limit: panel.isWhole ? 0 : most };
  return panel.view === "explain" ? { ...question, report: panel.isPlan ? "plan" : "analysis" } : question;
}
