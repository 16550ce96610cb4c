// Views of the server as tables: targets, rules, alerts, settings. Each has the path of Prometheus's
// page, so that links to those pages work here.

import { ask } from "./api.js";
import { element, formatNumber, formatTime, labelsElement } from "./format.js";

// Go's zero time, year 1, means never.
const when = (time) => (time && !time.startsWith("0001-") ? formatTime(Date.parse(time)) : "never");
const seconds = (value) => formatNumber(value, "seconds");
const mono = (text) => element("span", { class: "mono" }, text);
const badge = (state) => element("span", { class: `badge ${state}` }, state);
const queryLink = (expr) =>
  element("a", { class: "mono", href: `query?${new URLSearchParams({ "g0.expr": expr, "g0.tab": "table" })}` }, expr);
const trouble = (text) => (text ? [element("p", { class: "trouble" }, text)] : []);

function address(url) {
  return /^https?:/.test(url) ? element("a", { href: url, rel: "noreferrer" }, url) : url;
}

function table(heads, rows) {
  if (rows.length === 0) return element("p", { class: "empty" }, "None");
  const row = (kind) => (cells) =>
    element("tr", {}, ...cells.map((cell) => element(kind, {}, ...[cell ?? ""].flat())));
  return element("table", {}, element("thead", {}, row("th")(heads)), element("tbody", {}, ...rows.map(row("td"))));
}

const section = (heading, ...content) =>
  element("section", { class: "part" }, element("h2", {}, ...[heading].flat()), ...content);

const pairs = (object) => table(["Name", "Value"], Object.entries(object).map(([name, value]) => [name, mono(String(value))]));

// Lists of items with the same key, by key.
function grouped(items, key) {
  const groups = new Map();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return [...groups].sort(([a], [b]) => (a < b ? -1 : 1));
}

async function targets() {
  const { activeTargets } = (await ask("targets", { state: "active" })).data;
  return grouped(activeTargets, (target) => target.scrapePool).map(([pool, of]) => section(
    `${pool} (${of.filter((target) => target.health === "up").length} of ${of.length} up)`,
    table(["Address", "State", "Labels", "Last scrape", "Duration"], of.map((target) => [
      [address(target.scrapeUrl), ...trouble(target.lastError)],
      badge(target.health),
      labelsElement(target.labels),
      when(target.lastScrape),
      seconds(target.lastScrapeDuration),
    ])),
  ));
}

async function discovery() {
  const { activeTargets, droppedTargets } = (await ask("targets")).data;
  const active = activeTargets.map((target) => [target.scrapePool, target.discoveredLabels, target.labels]);
  const dropped = droppedTargets.map((target) => [target.scrapePool, target.discoveredLabels]);
  return grouped([...active, ...dropped], ([pool]) => pool).map(([pool, of]) => section(
    `${pool} (${of.filter(([, , labels]) => labels).length} of ${of.length} are targets)`,
    table(["Discovered labels", "Target labels"], of.map(([, before, after]) => [
      labelsElement(before),
      after ? labelsElement(after) : badge("dropped"),
    ])),
  ));
}

const annotations = (of) => Object.entries(of ?? {}).map(([name, text]) => element("p", {}, `${name}: ${text}`));

async function rules() {
  const { groups } = (await ask("rules", { exclude_alerts: true })).data;
  return groups.map((group) => section(
    [`${group.name} `, element("span", { class: "muted" }, `every ${seconds(group.interval)} · ${group.file}`)],
    table(["Rule", "State", "Expression", "Last evaluation", "Duration"], group.rules.map((rule) => [
      [element("b", {}, rule.name), element("p", {}, labelsElement(rule.labels ?? {})), ...annotations(rule.annotations)],
      [badge(rule.health), ...trouble(rule.lastError)],
      [queryLink(rule.query), ...(rule.duration ? [element("p", {}, `for ${seconds(rule.duration)}`)] : [])],
      when(rule.lastEvaluation),
      seconds(rule.evaluationTime),
    ])),
  ));
}

async function alerts() {
  const { groups } = (await ask("rules", { type: "alert" })).data;
  return groups.flatMap((group) => group.rules.map((rule) => section(
    [`${rule.name} `, badge(rule.state), " ", element("span", { class: "muted" }, `${group.name} · ${group.file}`)],
    element("p", {}, queryLink(rule.query)),
    ...annotations(rule.annotations),
    ...trouble(rule.lastError),
    ...(rule.alerts.length === 0 ? [] : [table(["Labels", "State", "Active since", "Value"], rule.alerts.map((alert) => [
      [labelsElement(alert.labels), ...annotations(alert.annotations)],
      badge(alert.state),
      when(alert.activeAt),
      alert.value,
    ]))]),
  )));
}

async function alertmanagers() {
  const { activeAlertmanagers, droppedAlertmanagers } = (await ask("alertmanagers")).data;
  const list = (of) => table(["Address"], of.map(({ url }) => [address(url)]));
  return [section("Active", list(activeAlertmanagers)), section("Dropped", list(droppedAlertmanagers))];
}

async function config() {
  return [element("pre", { class: "mono" }, (await ask("status/config")).data.yaml)];
}

async function flags() {
  return [pairs((await ask("status/flags")).data)];
}

async function status() {
  const parts = [["Process", "status/runtimeinfo"], ["Build", "status/buildinfo"]];
  return Promise.all(parts.map(async ([heading, path]) => section(heading, pairs((await ask(path)).data))));
}

async function head() {
  const { headStats, ...tables } = (await ask("status/tsdb", { limit: 20 })).data;
  const names = {
    seriesCountByMetricName: "Metrics with the most series",
    labelValueCountByLabelName: "Labels with the most values",
    memoryInBytesByLabelName: "Labels by total size of their values, in bytes",
    seriesCountByLabelValuePair: "Label pairs with the most series",
  };
  const known = Object.entries(names).filter(([key]) => tables[key]);
  return [
    element("p", {}, element("a", { href: "api/v1/status/tsdb/blocks" }, "Blocks, as JSON")),
    section("Head", pairs(headStats)),
    ...known.map(([key, heading]) => section(heading, pairs(
      Object.fromEntries(tables[key].map(({ name, value }) => [name, value])),
    ))),
  ];
}

const VIEWS = {
  targets: ["Targets", targets],
  "service-discovery": ["Discovery", discovery],
  rules: ["Rules", rules],
  alerts: ["Alerts", alerts],
  "alertmanager-discovery": ["Alertmanagers", alertmanagers],
  config: ["Configuration", config],
  flags: ["Flags", flags],
  status: ["Status", status],
  agent: ["Status", status],
  "tsdb-status": ["Head", head],
};

// Hides rows without the text, and sections without a visible row.
function filter(root, text) {
  const wanted = text.trim().toLowerCase();
  const has = (node) => node.textContent.toLowerCase().includes(wanted);
  for (const part of root.querySelectorAll(".part, .content > table")) {
    const isNamed = part.matches(".part") && has(part.firstElementChild);
    const rows = [...part.querySelectorAll("tbody tr")];
    for (const row of rows) row.hidden = !isNamed && !has(row);
    part.hidden = !isNamed && !has(part) && rows.every((row) => row.hidden);
  }
}

// Fills `root` with the view of the path; returns false if there is none.
export function showView(root, { pathname, search }) {
  const view = VIEWS[pathname.split("/").at(-1)];
  if (!view) return false;
  const [title, load] = view;
  document.title = `${title} – ${document.title}`;
  root.hidden = false;
  const content = element("div", { class: "content" });
  const params = new URLSearchParams(search);
  const input = element("input", {
    type: "search", placeholder: "Filter", "aria-label": "Filter", oninput: () => filter(content, input.value),
  });
  // Filters of links to Prometheus's pages.
  input.value = params.get("search") ?? params.get("pool") ?? params.get("scrapePool") ?? "";
  root.replaceChildren(element("div", { class: "heading" }, element("h1", {}, title), input), content);
  load().then((parts) => {
    content.replaceChildren(...(parts.length ? parts : [element("p", { class: "empty" }, "None")]));
    filter(content, input.value);
  }, (error) => {
    const text = `${error.kind ? `${error.kind}: ` : ""}${error.message}`;
    content.replaceChildren(element("div", { class: "messages" }, element("p", { class: "error" }, text)));
  });
  return true;
}
