// Panels in the address. The parameters of Prometheus's page (`g0.expr`, `g0.tab`, `g0.step_input`,
// ...) are read, in their old forms too, and written; parameters of this page alone are
// added. An unknown value is kept until the reader changes it.

import { parseDuration } from "../format/duration";
import { parseUtc } from "../format/time";
import { STYLES, type DrawStyle } from "../graph/drawStyle";

export const VIEWS = ["graph", "heatmap", "table", "raw", "value", "json", "explain"] as const;
export type View = (typeof VIEWS)[number];

export { STYLES, type DrawStyle } from "../graph/drawStyle";

export interface PanelState {
  // Number of the panel in the address: 0 for `g0`.
  number: number;
  expr: string;
  view: View;
  // Undefined: lines, or a heat map for histograms.
  style: DrawStyle | undefined;
  isLog: boolean;
  // Texts as typed; empty for automatic.
  step: string;
  min: string;
  max: string;
  unit: string;
  // A hidden panel keeps its place and its expression.
  isHidden: boolean;
  // All series are drawn and listed, not the largest ones alone.
  isWhole: boolean;
  // Range and end of its own, as typed; undefined if the panel follows the page.
  own: { range: string; end: string } | undefined;
  // Series that are not drawn, as selectors.
  off: string[];
  // Column and direction by which the legend or table is sorted: "max", "-max".
  sort: string;
  search: string;
  // Whether the graph shows the times of firing alerts, and exemplars.
  hasAlerts: boolean;
  hasExemplars: boolean;
  // Earlier time to compare with, as typed: "1d" before, or the end of a range, "2026-11-20 19:04:05" in UTC;
  // empty for none.
  compare: string;
  // Number of the panel whose graph has the lines of this one; undefined for a graph of its own.
  on: number | undefined;
  // Explain shows the plan without running the query.
  isPlan: boolean;
  // Operation of the plan that is open, by its path; "-" for none, empty for the hottest one.
  operation: string;
}

export function emptyPanel(number: number): PanelState {
  return {
    number,
    expr: "",
    view: "graph",
    style: undefined,
    isLog: false,
    step: "",
    min: "",
    max: "",
    unit: "",
    isHidden: false,
    isWhole: false,
    own: undefined,
    off: [],
    sort: "",
    search: "",
    hasAlerts: false,
    hasExemplars: false,
    compare: "",
    on: undefined,
    isPlan: false,
    operation: "",
  };
}

// Names of parameters that a panel owns; others of its group are left alone.
const NAMES = [
  "expr", "tab", "display_mode", "stacked", "step_input", "res_type", "res_step", "res_density",
  "y_axis_min", "y_axis_max", "scale", "unit", "hide", "series", "own_range", "off", "sort", "search",
  "alerts", "show_exemplars", "compare", "on", "plan", "operation",
];

// The panels of an address, in its order. There is at least one.
export function readPanels(params: URLSearchParams): PanelState[] {
  const numbers = new Set<number>();
  for (const name of params.keys()) {
    const found = /^g(\d+)\.expr$/.exec(name)?.[1];
    if (found !== undefined) numbers.add(Number(found));
  }
  const panels = [...numbers].map((number) => readPanel(params, number));
  return panels.length === 0 ? [emptyPanel(0)] : panels;
}

function readPanel(params: URLSearchParams, number: number): PanelState {
  const get = (name: string) => params.get(`g${number}.${name}`) ?? "";
  const mode = get("display_mode");
  const isOwn = get("own_range") !== "";
  return {
    number,
    expr: get("expr"),
    view: readView(get("tab"), mode),
    style: readStyle(mode, get("stacked")),
    isLog: get("scale") === "log",
    step: get("res_type") === "auto" ? "" : get("res_step") || get("step_input"),
    min: get("y_axis_min"),
    max: get("y_axis_max"),
    unit: get("unit"),
    isHidden: get("hide") === "1",
    isWhole: get("series") === "all",
    own: isOwn ? { range: get("range_input"), end: get("end_input") || get("moment_input") } : undefined,
    off: params.getAll(`g${number}.off`),
    sort: get("sort"),
    search: get("search"),
    hasAlerts: get("alerts") === "1",
    hasExemplars: get("show_exemplars") === "1",
    compare: get("compare"),
    on: /^\d+$/.test(get("on")) ? Number(get("on")) : undefined,
    isPlan: get("plan") === "1",
    operation: get("operation"),
  };
}

// Prometheus 2 numbers the tabs: 0 is the graph, 1 the table.
function readView(tab: string, mode: string): View {
  if (tab === "1" || tab === "console") return "table";
  const view = VIEWS.find((name) => name === tab) ?? "graph";
  return view === "graph" && mode === "heatmap" ? "heatmap" : view;
}

function readStyle(mode: string, stacked: string): DrawStyle | undefined {
  if (stacked === "1") return "stacked";
  return STYLES.find((name) => name === mode);
}

// Writes panels into parameters, in place of all panels there. `time` gives the range and the end of
// the page, which Prometheus keeps in each panel.
export function writePanels(
  params: URLSearchParams,
  panels: readonly PanelState[],
  time: { range: string; end: string },
): void {
  for (const name of [...params.keys()]) {
    const [, group, own] = /^(g\d+)\.(.*)$/.exec(name) ?? [];
    if (group === undefined || own === undefined) continue;
    const isKept = panels.some(({ number }) => group === `g${number}`) && !NAMES.includes(own);
    if (!isKept || /^(?:range|end|moment)_input$/.test(own)) params.delete(name);
  }
  for (const panel of panels) writePanel(params, panel, time);
}

function writePanel(params: URLSearchParams, panel: PanelState, time: { range: string; end: string }): void {
  const set = (name: string, value: string) => {
    if (value !== "") params.set(`g${panel.number}.${name}`, value);
  };
  // An empty panel is written too: it marks its place.
  params.set(`g${panel.number}.expr`, panel.expr);
  const isHeat = panel.view === "heatmap";
  set("tab", isHeat ? "graph" : panel.view);
  set("display_mode", isHeat ? "heatmap" : (panel.style ?? ""));
  set("range_input", panel.own?.range ?? time.range);
  set("end_input", panel.own ? panel.own.end : time.end);
  set("own_range", panel.own ? "1" : "");
  set("step_input", panel.step);
  set("scale", panel.isLog ? "log" : "");
  set("y_axis_min", panel.min);
  set("y_axis_max", panel.max);
  set("unit", panel.unit);
  set("hide", panel.isHidden ? "1" : "");
  set("series", panel.isWhole ? "all" : "");
  set("sort", panel.sort);
  set("search", panel.search);
  set("alerts", panel.hasAlerts ? "1" : "");
  set("show_exemplars", panel.hasExemplars ? "1" : "");
  set("compare", panel.compare);
  set("on", panel.on === undefined ? "" : String(panel.on));
  set("plan", panel.isPlan ? "1" : "");
  set("operation", panel.operation);
  for (const series of panel.off) params.append(`g${panel.number}.off`, series);
}

// A panel that others draw on, with its letter.
export interface Lead {
  panel: PanelState;
  letter: string;
}

// Whether other panels may draw on the graph of a panel.
function isLead(panel: PanelState, panels: readonly PanelState[]): boolean {
  const isGuest = panel.on !== panel.number && panels.some(({ number }) => number === panel.on);
  return panel.view === "graph" && !panel.isHidden && panel.expr.trim() !== "" && !isGuest;
}

// The panel on whose graph a panel draws; undefined for its own.
export function leadOf(panel: PanelState, panels: readonly PanelState[]): PanelState | undefined {
  return panels.find((one) => one !== panel && one.number === panel.on && isLead(one, panels));
}

// The panels on whose graphs a panel may draw: none if others draw on its own.
export function leadsFor(panel: PanelState, panels: readonly PanelState[]): PanelState[] {
  if (panels.some((one) => leadOf(one, panels) === panel)) return [];
  return panels.filter((one) => one !== panel && isLead(one, panels));
}

// A, B, ... Z, AA.
export function letterOf(index: number): string {
  const letter = String.fromCharCode(65 + (index % 26));
  return index < 26 ? letter : letterOf(Math.floor(index / 26) - 1) + letter;
}

// The number of a new panel: one above all that are there.
export const nextNumber = (panels: readonly PanelState[]) =>
  Math.max(-1, ...panels.map(({ number }) => number)) + 1;

// Seconds of a duration that was typed; undefined for none, NaN for text that is not a duration.
function typedSeconds(text: string): number | undefined {
  if (text.trim() === "") return undefined;
  const seconds = parseDuration(text);
  return seconds !== undefined && seconds > 0 ? seconds : NaN;
}

// The step that was typed; undefined for automatic.
export const stepOf = typedSeconds;

// Seconds from the time to compare with to `end`; undefined for no comparison, NaN for text that is neither a
// duration nor a time.
export function comparedBy(text: string, end: number): number | undefined {
  const seconds = typedSeconds(text);
  if (seconds === undefined || !Number.isNaN(seconds)) return seconds;
  const time = parseUtc(text);
  return time === undefined ? NaN : end - time / 1000;
}

// About one point for every three pixels of a wide screen, in whole seconds.
export const automaticStep = (range: number) => Math.max(1, Math.floor(range / 300));

// The most steps that the server computes, and the smallest step that stays below them.
const STEPS_MAX = 11_000;
export const smallestStep = (range: number) => Math.max(1, Math.ceil(range / (STEPS_MAX - 1)));
