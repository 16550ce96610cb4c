// The kinds of hints: those of the server by their names in the API, and those of the page.

export interface HintKind {
  // In the settings.
  name: string;
  // For hints of the page; those of the server have their own text.
  text: string;
  // Three sentences.
  why: string;
  page: string;
}

const SLOW_QUERIES = "docs/operations/slow-queries.md";
const PAGE = "docs/page.md";

export const HINT_KINDS: Record<string, HintKind> = {
  short_range: {
    name: "Range shorter than two scrapes",
    text: "",
    why: "Functions such as rate compare at least two samples of a window. A window that is shorter than two scrapes often has one, and then there is no result at that step. Four scrapes leave room for one that fails.",
    page: SLOW_QUERIES,
  },
  counter_without_rate: {
    name: "Counter without rate",
    text: "A counter only grows, and starts at zero with its process.",
    why: "The height of a counter depends on how long its process has run. Its rate is its growth per second, and takes restarts into account. Its increase is its growth in a window.",
    page: SLOW_QUERIES,
  },
  rate_of_gauge: {
    name: "Rate of a gauge",
    text: "",
    why: "The function takes each decrease for a restart, and adds the value after it. A gauge decreases in normal operation, so the result is too large. The functions deriv and delta handle both directions.",
    page: SLOW_QUERIES,
  },
  matches_everything: {
    name: "Matcher that matches everything",
    text: "",
    why: "The matcher excludes no series. The look-up may still have to read all values of its label. Without the matcher, the result is the same.",
    page: SLOW_QUERIES,
  },
  join_drops_series: {
    name: "Join that drops series",
    text: "",
    why: "A binary operation pairs series whose labels are equal on both sides. A series without a partner is not in the result. The modifiers on and ignoring select the labels that count.",
    page: SLOW_QUERIES,
  },
  "quantile-of-counters": {
    name: "Quantile of plain buckets",
    text: "This quantile is over all observations since each process started.",
    why: "Buckets are counters: they hold every observation since the start, so recent changes hardly move the quantile. The rate of the buckets counts the observations of a window alone. Restarts are taken into account too.",
    page: PAGE,
  },
  "quantile-without-le": {
    name: "Quantile without the label le",
    text: "The aggregation drops the label le, which holds the bounds of the buckets.",
    why: "histogram_quantile reads the bound of each bucket from the label le. An aggregation that does not keep le adds all buckets together. No quantile can be computed from the sum.",
    page: PAGE,
  },
};
