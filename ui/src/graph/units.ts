// The unit of the values of an expression: from the metadata and the name of its metric, and from
// the functions applied to it.

export type Unit = "none" | "bytes" | "seconds" | "ratio" | "time";

// A unit, and whether it is counted per second.
export interface Measure {
  unit: Unit;
  perSecond: boolean;
  // Noun of a counter, such as "requests"; empty if unknown.
  noun: string;
}

export const NO_MEASURE: Measure = { unit: "none", perSecond: false, noun: "" };

const RATES = /\b(rate|irate|deriv)\s*\(/;
// Functions whose values have no unit of their operand.
const COUNTS =
  /^\s*(count|group|count_values|absent|sgn|changes|resets|hour|minute|month|year|count_over_time|histogram_count|present_over_time|absent_over_time)\b/;
const METRIC = /[a-zA-Z_:][\w:]*/g;
const WORDS = new Set(
  "and or unless by without on ignoring group_left group_right offset bool start end inf nan atan2".split(" "),
);

// Metric names of an expression, quoted ones first; labels, strings, ranges and functions are not among them.
export function metricNames(expr: string): string[] {
  const names: string[] = [];
  const bare = expr
    .replace(/#[^\n]*/g, " ")
    // The braces contain a name outside the classic alphabet: {"my.metric", job="x"}.
    .replace(/\{\s*"((?:[^"\\]|\\.)*)"\s*(?:,[^}]*)?\}/g, (_, name: string) => {
      names.push(name);
      return " ";
    })
    .replace(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`/g, " ")
    .replace(/\{[^}]*\}/g, " ")
    .replace(/\[[^\]]*\]/g, " ")
    .replace(/\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)/g, " ");
  for (const found of bare.matchAll(METRIC)) {
    const [name] = found;
    const [before, after] = [bare[found.index - 1] ?? "", bare.slice(found.index + name.length)];
    if (/[\w.]/.test(before) || WORDS.has(name.toLowerCase())) continue;
    if (/^\s*\(/.test(after) || /^\s+(by|without)\b/.test(after)) continue;
    names.push(name);
  }
  return names;
}

// The measure of a metric by its name; the metadata's unit wins.
export function nameMeasure(name: string, declared = ""): Measure {
  const base = name.replace(/_(total|sum|bucket)$/, "");
  const noun = /_total$/.test(name) ? (base.split(/[_:]/).at(-1) ?? "") : "";
  const unit = declared !== "" ? declared : (base.split(/[_:]/).at(-1) ?? "");
  if (/_count$/.test(name)) return { ...NO_MEASURE, noun: "" };
  if (unit === "bytes" || unit === "byte") return { unit: "bytes", perSecond: false, noun: "" };
  if (/timestamp_seconds$/.test(base)) return { unit: "time", perSecond: false, noun: "" };
  if (unit === "seconds" || unit === "second") return { unit: "seconds", perSecond: false, noun: "" };
  if (unit === "ratio") return { unit: "ratio", perSecond: false, noun: "" };
  return { unit: "none", perSecond: false, noun };
}

// The unit of the values of `expr`. `unitOf` gives the unit that the metadata declares.
export function measure(expr: string, unitOf: (metric: string) => string | undefined = () => undefined): Measure {
  if (COUNTS.test(expr)) return NO_MEASURE;
  const names = metricNames(expr);
  const [name] = names;
  // A product has another unit than its factors, and a wrong unit is worse than none.
  if (name === undefined || /[*^%]/.test(expr.replace(/"[^"]*"/g, ""))) return NO_MEASURE;
  const found = nameMeasure(name, unitOf(name));
  const isComparison = /[<>=!]=|[<>]/.test(expr.replace(/\{[^}]*\}/g, ""));
  if (isComparison && /\bbool\b/.test(expr)) return NO_MEASURE;
  if (/histogram_quantile|histogram_avg/.test(expr)) return { ...found, perSecond: false, noun: "" };
  if (/histogram_fraction/.test(expr)) return { unit: "ratio", perSecond: false, noun: "" };
  if (/\//.test(expr.replace(/"[^"]*"/g, ""))) return isMean(names) ? found : NO_MEASURE;
  if (/_bucket$/.test(name)) return { unit: "none", perSecond: RATES.test(expr), noun: "" };
  const perSecond = RATES.test(expr);
  // Seconds per second of CPU are cores; as a share they read best.
  if (perSecond && found.unit === "seconds") return { unit: "none", perSecond: false, noun: "" };
  return { ...found, perSecond };
}

// Whether a quotient is the mean of a classic histogram: its sum over its count.
const isMean = ([sum = "", count = "", ...rest]: string[]) =>
  rest.length === 0 && /_sum$/.test(sum) && /_count$/.test(count);
