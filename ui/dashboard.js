// The dashboard on a page without queries: the state of this server, from its own metrics.

import { names, query, queryRange } from "./api.js";
import { element, formatDuration, formatNumber } from "./format.js";
import { Graph } from "./graph.js";

const WINDOW = "[1m]";
const RANGES = [900, 3600, 21600, 86400];
const REFRESH_MS = 15_000;

// A card is shown if its metric exists. `now` is the current value in its corner.
const CARDS = [
  ["Samples ingested per second", "firn_ingest_samples_total", `sum(rate(firn_ingest_samples_total${WINDOW}))`, ""],
  ["Series", "firn_storage_head_series", "max(firn_storage_head_series)", ""],
  ["Active series", "firn_storage_head_active_series", "max(firn_storage_head_active_series)", ""],
  ["Resident memory", "process_resident_memory_bytes", 'process_resident_memory_bytes{job="firn"}', "bytes"],
  ["CPU", "process_cpu_seconds_total", `rate(process_cpu_seconds_total{job="firn"}${WINDOW})`, "percent"],
  ["Log bytes written per second", "firn_storage_wal_written_bytes_total",
    `sum(rate(firn_storage_wal_written_bytes_total${WINDOW}))`, "bytes"],
  ["Log sync duration, 99th percentile", "firn_storage_wal_fsync_duration_seconds_bucket",
    `histogram_quantile(0.99, sum by (le) (rate(firn_storage_wal_fsync_duration_seconds_bucket${WINDOW})))`, "seconds"],
  ["Blocks on disk", "firn_storage_blocks_bytes", "max(firn_storage_blocks_bytes)", "bytes"],
  ["Progress of the running cut or compaction", "firn_storage_block_work_series",
    "(firn_storage_block_work_done_series / firn_storage_block_work_series) and (firn_storage_block_work_running == 1)",
    "percent"],
  ["Requests per second", "firn_server_requests_total",
    `sum by (handler) (rate(firn_server_requests_total${WINDOW})) > 0`, ""],
  ["Query duration, 99th percentile", "firn_server_request_duration_seconds_bucket",
    "histogram_quantile(0.99, sum by (le) (rate(firn_server_request_duration_seconds_bucket"
      + `{handler=~"query|query_range"}${WINDOW})))`, "seconds"],
];

export class Dashboard {
  constructor(root, { onopen }) {
    this.root = root;
    this.open = onopen;
    this.cards = new Map();
    this.range = root.querySelector("#dashboard-range");
    this.range.append(...RANGES.map((r) => element("option", { value: r }, formatDuration(r))));
    this.range.addEventListener("change", () => this.draw());
  }

  show(visible) {
    if (this.root.hidden !== visible) return;
    this.root.hidden = !visible;
    clearInterval(this.timer);
    clearTimeout(this.retry);
    if (!visible) return;
    this.draw();
    this.timer = setInterval(() => document.hidden || this.draw(), REFRESH_MS);
  }

  async draw() {
    const known = new Set(await names("label/__name__/values", '{__name__=~"firn_.+|process_.+"}'));
    const present = CARDS.filter(([, metric]) => known.has(metric));
    for (const card of present) this.cards.get(card[0]) ?? this.add(card);
    const cards = this.root.querySelector("#cards");
    if (present.length === 0) {
      cards.replaceChildren(element("p", { class: "empty" }, "This server has no metrics of itself yet. The first scrape follows within seconds."));
      // One retry at a time, because the interval draws too.
      clearTimeout(this.retry);
      this.retry = setTimeout(() => this.root.hidden || this.draw(), 2000);
      return;
    }
    cards.replaceChildren(...present.map(([title]) => this.cards.get(title).root));
    await Promise.all(present.map((card) => this.fill(card)));
  }

  add([title, , expr, unit]) {
    const now = element("span", { class: "now" });
    const link = element("a", {
      href: `query?${new URLSearchParams({ "g0.expr": expr, "g0.tab": "graph" })}`,
      title: expr,
      onclick: (event) => {
        if (event.ctrlKey || event.metaKey) return;
        event.preventDefault();
        this.open(expr, Number(this.range.value));
      },
    }, title);
    const plot = element("div");
    const root = element("article", { class: "card" }, element("h3", {}, link, now), plot);
    const graph = new Graph(plot, { height: 150, unit, legend: false });
    this.cards.set(title, { root, now, graph, unit });
  }

  async fill([title, , expr]) {
    const card = this.cards.get(title);
    const range = Number(this.range.value);
    const end = Date.now() / 1000;
    const window = { start: end - range, end, step: Math.max(5, Math.floor(range / 150)) };
    try {
      const [{ data }, latest] = await Promise.all([queryRange(expr, window), query(expr, end)]);
      card.graph.show(data.result, window);
      const values = latest.data.result.map((series) => Number(series.value?.[1]));
      const sum = values.reduce((a, b) => a + b, 0);
      card.now.textContent = values.length === 0 || Number.isNaN(sum) ? "–" : formatNumber(sum, card.unit);
    } catch (error) {
      card.now.textContent = "?";
      card.now.title = error.message;
    }
  }
}
