// Selectors that pages build by clicks: a metric and matchers, as text in the address.

import { labelName, quote } from "../format/labels";
import { hasMistake, selectorsOf, type Matcher } from "../query/selectors";

const LEGACY_METRIC = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;

// The matchers of a selector, its name among them; empty for an empty text, undefined for one that is no
// selector.
export function matchersOf(text: string): Matcher[] | undefined {
  const trimmed = text.trim();
  if (trimmed === "" || trimmed === "{}") return [];
  if (hasMistake(trimmed)) return undefined;
  const [only, ...others] = selectorsOf(trimmed);
  if (only === undefined || others.length > 0 || only.text !== trimmed) return undefined;
  const isNamed = only.matchers.some(({ label }) => label === "__name__");
  const name: Matcher[] = only.metric !== "" && !isNamed ? [{ label: "__name__", operator: "=", value: only.metric }] : [];
  return [...name, ...only.matchers];
}

export function textOf(matchers: readonly Matcher[]): string {
  const isName = ({ label, operator, value }: Matcher) => label === "__name__" && operator === "=" && LEGACY_METRIC.test(value);
  const name = matchers.find(isName);
  const rest = matchers.filter((matcher) => matcher !== name);
  const inner = rest.map(({ label, operator, value }) => `${labelName(label)}${operator}${quote(value)}`).join(", ");
  return `${name?.value ?? ""}${inner === "" ? "" : `{${inner}}`}`;
}

// The selector with `label` equal to `value`, in place of its other matchers of this label. An empty value
// removes them. A text that is no selector is replaced.
export function withEqual(text: string, label: string, value: string): string {
  const others = (matchersOf(text) ?? []).filter((matcher) => matcher.label !== label);
  return textOf(value === "" ? others : [...others, { label, operator: "=", value }]);
}

// The value that a selector requires of a label; empty without one.
export const equalOf = (text: string, label: string): string =>
  matchersOf(text)?.find((matcher) => matcher.label === label && matcher.operator === "=")?.value ?? "";

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// A text of YAML in single quotes.
export const yamlText = (text: string): string => `'${text.replaceAll("'", "''")}'`;

// The rule of `metric_relabel_configs` that drops the series of a selector; undefined for an empty selector,
// and for negative matchers, which a rule cannot express.
export function dropRule(text: string): string | undefined {
  const matchers = matchersOf(text);
  if (!matchers || matchers.length === 0 || matchers.some(({ operator }) => operator.startsWith("!"))) return undefined;
  const regex = matchers.map(({ operator, value }) => (operator === "=" ? escaped(value) : `(?:${value})`)).join(";");
  const labels = matchers.map(({ label }) => labelName(label)).join(", ");
  return ["metric_relabel_configs:", `- source_labels: [${labels}]`, `  regex: ${yamlText(regex)}`, "  action: drop", ""].join("\n");
}

// The rule that removes a label from the series of a metric, or from all series.
export function labelDropRule(label: string, metric: string): string {
  const rule = metric === ""
    ? [`- regex: ${yamlText(escaped(label))}`, "  action: labeldrop"]
    : ["- source_labels: [__name__]", `  regex: ${yamlText(escaped(metric))}`, `  target_label: ${yamlText(label)}`, "  replacement: ''"];
  return ["metric_relabel_configs:", ...rule, ""].join("\n");
}

// The rule that drops metrics by their names.
export function dropNamesRule(names: readonly string[]): string {
  const regex = names.map(escaped).join("|");
  return ["metric_relabel_configs:", "- source_labels: [__name__]", `  regex: ${yamlText(regex)}`, "  action: drop", ""].join("\n");
}
