// Views of the server as tables: targets, rules, alerts, settings. Each has the path of Prometheus's
// page, so that links to those pages work here.

import { ask } from "./api.js";
import { element, formatDuration, formatNumber, formatTime, labelsElement } from "./format.js";

// Interval at which views of a changing state are loaded again.
const REFRESH_MS = 2000;

// Go's zero time, year 1, means never.
const when = (time) => (time && !time.startsWith("0001-") ? formatTime(Date.parse(time)) : "never");
const seconds = (value) => formatNumber(value, "seconds");
const mono = (text) => element("span", { class: "mono" }, text);
const badge = (state) => element("span", { class: `badge ${state}` }, state.replaceAll("_", " "));
const queryLink = (expr) =>
  element("a", { class: "mono", href: `query?${new URLSearchParams({ "g0.expr": expr, "g0.tab": "table" })}` }, expr);
const trouble = (text) => (text ? [element("p", { class: "trouble" }, text)] : []);

function address(url) {
  return /^https?:/.test(url) ? element("a", { href: url, rel: "noreferrer" }, url) : url;
}

function table(heads, rows) {
  if (rows.length === 0) return element("p", { class: "empty" }, "None");
  // Narrow windows show the head of a column in each cell.
  const row = (kind) => (cells) => element("tr", {}, ...cells.map((cell, i) =>
    element(kind, { "data-head": kind === "td" ? heads[i] : undefined }, ...[cell ?? ""].flat())));
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

// "3m10s ago"; from ten minutes on without seconds.
function age(seconds) {
  const unit = seconds < 600 ? 1 : 60;
  return `${formatDuration(Math.max(0, Math.floor(seconds / unit) * unit))} ago`;
}

function memberRow(status, node) {
  const isOwn = node.name === status.node;
  const seen = node.seenSecondsAgo === undefined ? "never" : age(node.seenSecondsAgo);
  return [
    element("b", {}, node.name || "unknown"),
    mono(node.address),
    badge(node.state),
    isOwn ? "this node" : seen,
    String(node.partitionsLed),
    node.version,
  ];
}

function partitionRow(status, partition) {
  const since = (time) => (time === undefined ? "–" : age((status.time - time) / 1000));
  const { leader, series, logBytes } = partition;
  return [
    element("b", {}, String(partition.partition)),
    leader ?? element("span", { class: "trouble" }, "none"),
    // With another leader, the fault is that of a leadership that ended at this node.
    [badge(partition.state), ...trouble(partition.state === "following" ? "" : partition.fault)],
    String(partition.epoch),
    String(partition.position),
    series === undefined ? "–" : formatNumber(series),
    logBytes === undefined ? "–" : formatNumber(logBytes, "bytes"),
    since(partition.cutTime),
    since(partition.lastCommitTime),
  ];
}

async function cluster() {
  const status = (await ask("status/cluster")).data;
  if (!status.enabled) {
    return [element("p", { class: "empty" }, "This server is not a node of a cluster: firn.cluster is not set.")];
  }
  const { nodes, partitions } = status;
  const alive = nodes.filter((node) => node.state !== "silent").length;
  const led = partitions.filter((partition) => partition.leader !== undefined).length;
  const seenBy = element("span", { class: "muted" }, `${status.cluster || "not joined yet"} · seen by ${status.node}`);
  const draining = status.draining ? [" ", badge("draining")] : [];
  const memberHeads = ["Node", "Address", "State", "Last answer", "Partitions led", "Version"];
  const partitionHeads = ["Partition", "Leader", "State", "Epoch", "Records", "Series", "Log", "Blocks end",
    "Last commit"];
  return [
    element("p", {}, seenBy, ...draining, " ", element("a", { href: "api/v1/status/cluster" }, "as JSON")),
    ...trouble(status.fault),
    section(`Nodes (${alive} of ${nodes.length} answer)`, table(memberHeads, nodes.map((node) => memberRow(status, node)))),
    section(
      `Partitions (${led} of ${partitions.length} have a leader)`,
      table(partitionHeads, partitions.map((partition) => partitionRow(status, partition))),
    ),
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
  cluster: ["Cluster", cluster, { refreshes: true }],
};

// Returns whether the view of a path is shown before the server is ready: it shows how a start goes on.
export const isShownEarly = ({ pathname }) => pathname.split("/").at(-1) === "cluster";

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
  const [title, load, { refreshes = false } = {}] = view;
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
  const fill = () => load().then((parts) => {
    content.replaceChildren(...(parts.length ? parts : [element("p", { class: "empty" }, "None")]));
    filter(content, input.value);
  }, (error) => {
    const text = `${error.kind ? `${error.kind}: ` : ""}${error.message}`;
    content.replaceChildren(element("div", { class: "messages" }, element("p", { class: "error" }, text)));
  });
  // A hidden page is not loaded, and selected text is kept.
  const isWatched = () => !document.hidden && getSelection().isCollapsed;
  const refresh = async () => {
    if (isWatched()) await fill();
    setTimeout(refresh, REFRESH_MS);
  };
  fill().then(() => refreshes && setTimeout(refresh, REFRESH_MS));
  return true;
}
