// Completion in the expression box: metrics, labels and their values from the API; functions,
// aggregations and keywords of the language.

import { names } from "./api.js";
import { element } from "./format.js";

const SHOWN_MAX = 40;

// All functions of crates/core/promql/src/functions/table.rs; a style test compares the lists.
const FUNCTIONS = `abs absent absent_over_time acos acosh asin asinh atan atanh avg_over_time ceil changes
clamp clamp_max clamp_min cos cosh count_over_time day_of_month day_of_week day_of_year days_in_month deg delta
deriv double_exponential_smoothing end exp first_over_time floor histogram_avg histogram_count
histogram_fraction histogram_quantile histogram_quantiles histogram_stddev histogram_stdvar histogram_sum hour
idelta increase info irate label_join label_replace last_over_time ln log10 log2 mad_over_time max_of
max_over_time min_of min_over_time minute month pi predict_linear present_over_time quantile_over_time rad range
rate resets round scalar sgn sin sinh sort sort_by_label sort_by_label_desc sort_desc sqrt start start_timestamp
stddev_over_time stdvar_over_time step sum_over_time tan tanh time timestamp ts_of_first_over_time
ts_of_last_over_time ts_of_max_over_time ts_of_min_over_time vector year`.split(/\s+/);
const AGGREGATIONS = `avg bottomk count count_values group limit_ratio limitk max min quantile stddev stdvar sum
topk`.split(/\s+/);
const KEYWORDS = "and atan2 bool by end group_left group_right ignoring offset on or start unless without".split(" ");

// The token before the cursor: a label or its value inside braces, otherwise a name.
export function context(before) {
  const open = before.lastIndexOf("{");
  if (open > before.lastIndexOf("}")) {
    const metric = /([a-zA-Z_:][\w:]*)\s*$/.exec(before.slice(0, open))?.[1];
    const inside = before.slice(open + 1);
    const value = /([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)$/.exec(inside);
    const quotes = (inside.match(/(?<!\\)"/g) ?? []).length;
    if (value && quotes % 2 === 1) return { kind: "value", metric, label: value[1], word: value[2] };
    if (quotes % 2 === 1) return undefined;
    return { kind: "label", metric, word: /\w*$/.exec(inside)[0] };
  }
  const grouping = /\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)$/.exec(before);
  if (grouping) return { kind: "label", word: /\w*$/.exec(grouping[1])[0] };
  if (/\[[^\]]*$/.test(before)) return undefined;
  const word = /[a-zA-Z_:][\w:]*$/.exec(before)?.[0] ?? "";
  return word ? { kind: "name", word } : undefined;
}

async function candidates({ kind, metric, label }) {
  const typed = (list, type) => list.map((text) => ({ text, type }));
  if (kind === "label") return typed(await names("labels", metric), "label");
  if (kind === "value") return typed(await names(`label/${encodeURIComponent(label)}/values`, metric), "");
  return [
    ...typed(await names("label/__name__/values"), "metric"),
    ...typed(AGGREGATIONS, "aggregation"),
    ...typed(FUNCTIONS, "function"),
    ...typed(KEYWORDS, "keyword"),
  ];
}

// Smaller is better; undefined does not match. Every part of the word must occur, in order.
export function rank(text, word) {
  const [hay, needle] = [text.toLowerCase(), word.toLowerCase()];
  if (hay.startsWith(needle)) return hay.length / 1000;
  const at = hay.indexOf(needle);
  if (at >= 0) return 1 + (/[_:]/.test(hay[at - 1]) ? 0 : 1) + hay.length / 1000;
  let from = 0;
  for (const part of needle.split(/[_: ]/)) {
    const found = hay.indexOf(part, from);
    if (found < 0) return undefined;
    from = found + part.length;
  }
  return 4 + hay.length / 1000;
}

export class Completion {
  constructor(input, list, onchange) {
    Object.assign(this, { input, list, onchange, items: [], chosen: 0, asked: 0 });
    input.addEventListener("input", () => this.update());
    input.addEventListener("blur", () => setTimeout(() => this.close(), 120));
    input.addEventListener("click", () => this.close());
  }

  get isOpen() {
    return !this.list.hidden;
  }

  async update() {
    this.asked += 1;
    const asked = this.asked;
    const place = context(this.input.value.slice(0, this.input.selectionStart));
    if (!place) return this.close();
    const found = await candidates(place);
    if (asked !== this.asked) return undefined;
    this.items = found
      .map((item) => ({ ...item, rank: rank(item.text, place.word) }))
      .filter((item) => item.rank !== undefined)
      .sort((a, b) => a.rank - b.rank)
      .slice(0, SHOWN_MAX);
    this.place = place;
    this.chosen = 0;
    const isDone = this.items.length === 1 && this.items[0].text === place.word;
    if (this.items.length === 0 || isDone) return this.close();
    this.draw();
    return undefined;
  }

  draw() {
    this.list.replaceChildren(...this.items.map((item, i) => {
      const name = element("span", { class: "mono" });
      const at = item.text.toLowerCase().indexOf(this.place.word.toLowerCase());
      const end = at + this.place.word.length;
      if (at < 0) name.append(item.text);
      else name.append(item.text.slice(0, at), element("b", {}, item.text.slice(at, end)), item.text.slice(end));
      return element("li", {
        role: "option",
        class: i === this.chosen ? "chosen" : "",
        onpointerdown: (event) => {
          event.preventDefault();
          this.take(i);
        },
      }, name, element("span", { class: "muted" }, item.type));
    }));
    this.list.hidden = false;
    this.list.children[this.chosen]?.scrollIntoView({ block: "nearest" });
  }

  // Returns whether the list handled the key.
  key(event) {
    if (!this.isOpen) return false;
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves) {
      this.chosen = (this.chosen + moves[event.key] + this.items.length) % this.items.length;
      this.draw();
    } else if (event.key === "Tab" || (event.key === "Enter" && !event.ctrlKey && !event.shiftKey)) {
      this.take(this.chosen);
    } else if (event.key === "Escape") {
      this.close();
    } else {
      return false;
    }
    event.preventDefault();
    return true;
  }

  take(index) {
    const { text, type } = this.items[index];
    const { selectionStart: cursor, value } = this.input;
    const start = cursor - this.place.word.length;
    const isCall = type === "function" || type === "aggregation";
    const written = this.place.kind === "value" ? JSON.stringify(text).slice(1, -1) : text;
    const follows = isCall && !/^\s*\(/.test(value.slice(cursor)) ? "(" : "";
    this.input.value = value.slice(0, start) + written + follows + value.slice(cursor);
    const end = start + written.length + follows.length;
    this.input.setSelectionRange(end, end);
    this.close();
    this.onchange();
  }

  close() {
    this.asked += 1;
    this.list.hidden = true;
  }
}
