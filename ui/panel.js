// One query: its editor, its controls, its graph and its table.

import { ask, query, queryRange } from "./api.js";
import { Completion } from "./completion.js";
import { element, formatDuration, formatTime, formatUtc, labelsElement, parseDuration, parseUtc } from "./format.js";
import { Graph } from "./graph.js";

const RANGES = [60, 300, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 1209600, 2419200, 4838400, 9676800, 31536000];
const ROWS_MAX = 2000;
const HISTORY_KEY = "firn.history";
const HISTORY_MAX = 40;

function history() {
  try {
    return JSON.parse(localStorage.getItem(HISTORY_KEY)) ?? [];
  } catch {
    return [];
  }
}

function remember(expr) {
  const list = [expr, ...history().filter((old) => old !== expr)].slice(0, HISTORY_MAX);
  localStorage.setItem(HISTORY_KEY, JSON.stringify(list));
}

// About one point for every three pixels of a wide screen, in whole seconds.
const autoStep = (range) => Math.max(1, Math.floor(range / 300));

export class Panel {
  // `state`: expr, tab, range (seconds), end (ms or undefined), step (seconds or undefined).
  constructor(state, { onchange, onremove }) {
    this.state = { expr: "", tab: "graph", range: 3600, end: undefined, step: undefined, ...state };
    this.changed = onchange;
    const template = document.getElementById("panel-template");
    this.root = template.content.firstElementChild.cloneNode(true);
    this.find = (selector) => this.root.querySelector(selector);
    this.expr = this.find(".expr");
    this.graph = new Graph(this.find(".graph"), { onselect: (start, end) => this.zoom(start, end) });
    this.completion = new Completion(this.expr, this.find(".completion"), () => this.fit());
    this.listen(onremove);
    this.write();
  }

  on(selector, event, handler) {
    this.find(selector).addEventListener(event, handler);
  }

  listen(onremove) {
    this.expr.addEventListener("input", () => this.fit());
    this.expr.addEventListener("keydown", (event) => {
      if (this.completion.key(event)) return;
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        this.run();
      }
    });
    this.on(".run", "click", () => this.run());
    this.on(".remove", "click", () => {
      this.stop();
      onremove(this);
    });
    this.on(".format", "click", () => this.format());
    this.on(".history", "click", () => this.toggleHistory());
    for (const tab of this.root.querySelectorAll(".tab")) {
      tab.addEventListener("click", () => this.set({ tab: tab.dataset.tab }));
    }
    this.on(".shorter", "click", () => this.set({ range: RANGES.findLast((r) => r < this.state.range) ?? RANGES[0] }));
    this.on(".longer", "click", () => this.set({ range: RANGES.find((r) => r > this.state.range) ?? RANGES.at(-1) }));
    this.on(".range", "change", (event) => this.set({ range: parseDuration(event.target.value) || this.state.range }));
    this.on(".step", "change", (event) => this.set({ step: parseDuration(event.target.value) || undefined }));
    this.on(".end", "change", (event) => this.set({ end: event.target.value ? Date.parse(event.target.value) : undefined }));
    this.on(".now", "click", () => this.set({ end: undefined }));
    this.on(".earlier", "click", () => this.move(-1));
    this.on(".later", "click", () => this.move(1));
    this.on(".refresh", "change", (event) => this.refresh(Number(event.target.value)));
    this.graph.plot.addEventListener("dblclick", () => this.set({ range: this.state.range * 2 }));
  }

  set(changes) {
    Object.assign(this.state, changes);
    this.run();
  }

  move(direction) {
    const end = (this.state.end ?? Date.now()) + (direction * this.state.range * 1000) / 2;
    this.set({ end: end >= Date.now() ? undefined : end });
  }

  zoom(start, end) {
    this.set({ range: Math.max(1, Math.round(end - start)), end: Math.round(end * 1000), step: undefined });
  }

  refresh(seconds) {
    clearInterval(this.timer);
    if (seconds > 0) this.timer = setInterval(() => document.hidden || this.again(), seconds * 1000);
  }

  stop() {
    clearInterval(this.timer);
    this.request?.abort();
    this.graph.observer.disconnect();
  }

  // Shows the state in the controls.
  write() {
    const { expr, tab, range, end, step } = this.state;
    if (this.expr.value !== expr) this.expr.value = expr;
    this.find(".range").value = formatDuration(range);
    this.find(".step").value = step ? formatDuration(step) : "";
    this.find(".step").placeholder = formatDuration(autoStep(range));
    const local = end && new Date(end - new Date(end).getTimezoneOffset() * 60_000);
    this.find(".end").value = local ? local.toISOString().slice(0, 19) : "";
    for (const button of this.root.querySelectorAll(".tab")) {
      button.classList.toggle("active", button.dataset.tab === tab);
      button.setAttribute("aria-selected", button.dataset.tab === tab);
    }
    for (const node of this.root.querySelectorAll(".graph-only")) node.hidden = tab !== "graph";
    this.find(".graph").hidden = tab !== "graph";
    this.find(".table").hidden = tab !== "table";
    this.fit();
  }

  // Grows the editor with its text.
  fit() {
    this.expr.style.height = "auto";
    this.expr.style.height = `${this.expr.scrollHeight + 2}px`;
  }

  async run() {
    this.completion.close();
    this.state.expr = this.expr.value.trim();
    this.write();
    this.changed();
    this.request?.abort();
    this.request = undefined;
    if (!this.state.expr) return this.clear();
    remember(this.state.expr);
    return this.execute();
  }

  // Repeats the last query, not the text in the editor, unless a query is running.
  again() {
    if (this.state.expr && !this.request) this.execute();
  }

  async execute() {
    const request = new AbortController();
    this.request = request;
    this.find(".run").classList.add("busy");
    const since = performance.now();
    try {
      const document = await (this.state.tab === "graph" ? this.runRange(request) : this.runInstant(request));
      this.messages(document);
      this.find(".result").hidden = false;
      this.find(".stats").textContent =
        `${this.count(document.data)} in ${Math.round(performance.now() - since)} ms`;
    } catch (error) {
      if (error.name === "AbortError") return undefined;
      this.clear();
      this.messages({ error: `${error.kind ? `${error.kind}: ` : ""}${error.message}` });
    }
    if (this.request === request) {
      this.request = undefined;
      this.find(".run").classList.remove("busy");
    }
    return undefined;
  }

  async runRange({ signal }) {
    const { expr, range, step } = this.state;
    const end = (this.state.end ?? Date.now()) / 1000;
    const window = { start: end - range, end, step: step ?? autoStep(range) };
    const document = await queryRange(expr, window, { signal });
    const hasHistograms = document.data.result.some((series) => series.histograms);
    this.graph.show(document.data.result, window);
    if (hasHistograms) {
      document.infos = [...(document.infos ?? []), "Native histograms are shown in the table only."];
    }
    return document;
  }

  async runInstant({ signal }) {
    const time = (this.state.end ?? Date.now()) / 1000;
    const document = await query(this.state.expr, time, { signal });
    this.showTable(document.data);
    return document;
  }

  count({ resultType, result }) {
    if (resultType === "scalar" || resultType === "string") return resultType;
    return `${result.length} series`;
  }

  showTable({ resultType, result }) {
    const rows = resultType === "scalar" || resultType === "string" ? [{ value: result }] : result;
    const cells = rows.slice(0, ROWS_MAX).map((row) => {
      const values = row.values ?? row.histograms ?? [row.value ?? row.histogram];
      const lines = values.map(([time, value]) => {
        const text = typeof value === "string" ? value : JSON.stringify(value);
        return resultType === "matrix" ? `${text} @${formatTime(time * 1000)}` : text;
      });
      const value = element("td", { class: "number mono" });
      value.append(...lines.flatMap((line) => [line, element("br")]).slice(0, -1));
      return element("tr", {}, element("td", {}, row.metric ? labelsElement(row.metric) : resultType), value);
    });
    const more = rows.length - ROWS_MAX;
    const note = more > 0 ? [element("p", { class: "muted" }, `and ${more} more series`)] : [];
    const empty = [element("p", { class: "empty" }, "No data at this time")];
    const table = element("table", {}, element("tbody", {}, ...cells));
    this.find(".table").replaceChildren(...(rows.length ? [table, ...note] : empty));
  }

  messages({ error, warnings = [], infos = [] }) {
    const line = (kind) => (text) => element("p", { class: kind }, text);
    const all = [...[error ?? []].flat().map(line("error")), ...warnings.map(line("warning")), ...infos.map(line("info"))];
    this.find(".messages").replaceChildren(...all);
  }

  clear() {
    this.find(".stats").textContent = "";
    this.find(".run").classList.remove("busy");
    this.messages({});
    this.find(".result").hidden = true;
  }

  async format() {
    try {
      const { data } = await ask("format_query", { query: this.expr.value }, { post: true });
      this.expr.value = data;
      this.fit();
    } catch (error) {
      this.messages({ error: error.message });
    }
  }

  toggleHistory() {
    const menu = this.find(".history-menu");
    const items = history().map((expr) => element("li", {
      class: "mono",
      onclick: () => {
        this.expr.value = expr;
        menu.hidden = true;
        this.run();
      },
    }, expr));
    menu.replaceChildren(...(items.length ? items : [element("li", { class: "muted" }, "No earlier queries")]));
    menu.hidden = !menu.hidden;
  }

  // The state as URL parameters of Prometheus's page.
  params(index) {
    const { expr, tab, range, end, step } = this.state;
    const params = [["expr", expr], ["tab", tab], ["range_input", formatDuration(range)]];
    if (end) params.push(["end_input", formatUtc(end)]);
    if (step) params.push(["step_input", String(step)]);
    return params.map(([name, value]) => [`g${index}.${name}`, value]);
  }

  static stateOf(params, index) {
    const get = (name) => params.get(`g${index}.${name}`);
    const end = get("end_input") ?? get("moment_input");
    return {
      expr: get("expr") ?? "",
      // Prometheus 2 numbers the tabs: 0 is the graph, 1 the table.
      tab: ["1", "table"].includes(get("tab")) ? "table" : "graph",
      range: parseDuration(get("range_input") ?? "1h") || 3600,
      end: end ? parseUtc(end) || undefined : undefined,
      step: parseDuration(get("step_input") ?? "") || undefined,
    };
  }
}
