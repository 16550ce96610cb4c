// A rule in YAML as text: the values of its fields, and a change of one of them that leaves the rest as it was
// written. Fields of a rule in braces are not read; the server itself parses every form.

import { yamlText } from "./matchers";

export interface RuleField {
  value: string;
  // Lines of the field; the end is exclusive.
  from: number;
  to: number;
  style: "plain" | "quoted" | "block";
}

interface Layout {
  lines: string[];
  // Column of the keys, behind the dash of a list.
  indent: number;
  fields: Map<string, RuleField>;
}

const isBlank = (line: string) => /^\s*(#.*)?$/.test(line);
const indentOf = (line: string) => line.length - line.trimStart().length;

function quotedValue(text: string): string | undefined {
  const single = /^'((?:[^']|'')*)'\s*(?:#.*)?$/.exec(text)?.[1];
  if (single !== undefined) return single.replaceAll("''", "'");
  const double = /^("(?:[^"\\]|\\.)*")\s*(?:#.*)?$/.exec(text)?.[1];
  try {
    return double === undefined ? undefined : String(JSON.parse(double));
  } catch {
    return undefined;
  }
}

function blockValue(head: string, lines: readonly string[]): string {
  const depth = Math.min(...lines.filter((line) => line.trim() !== "").map(indentOf));
  const texts = lines.map((line) => line.slice(depth));
  return texts.join(head.startsWith("|") ? "\n" : " ").trimEnd();
}

function valueOf(head: string, rest: readonly string[]): Pick<RuleField, "value" | "style"> | undefined {
  if (/^[|>][-+\d]*\s*(#.*)?$/.test(head)) return { value: blockValue(head, rest), style: "block" };
  const text = [head, ...rest.map((line) => line.trim())].join(" ").trim();
  if (/^['"]/.test(text)) {
    const value = quotedValue(text);
    return value === undefined ? undefined : { value, style: "quoted" };
  }
  const isMapping = head === "" && rest.some((line) => /^\s*['"\w.-]+\s*:(\s|$)/.test(line));
  if (isMapping) return undefined;
  const value = text.replace(/(^|\s)#.*$/, "").trim();
  return value === "" || /^[[{&*!]/.test(value) ? undefined : { value, style: "plain" };
}

function layoutOf(text: string): Layout {
  const lines = text.split("\n");
  const fields = new Map<string, RuleField>();
  const first = lines.findIndex((line) => !isBlank(line) && !/^---/.test(line));
  const indent = /^\s*(?:- +)?/.exec(lines[first] ?? "")?.[0].length ?? 0;
  let at = Math.max(0, first);
  while (at < lines.length) {
    const line = lines[at] ?? "";
    // Another item of the list follows, which the server refuses.
    if (at > first && !isBlank(line) && indentOf(line) < indent) break;
    let next = at + 1;
    while (next < lines.length && (isBlank(lines[next] ?? "") || indentOf(lines[next] ?? "") > indent)) next += 1;
    const [, name, head = ""] = /^([a-z_]+)\s*:(?:\s+(.*))?$/.exec(line.slice(indent)) ?? [];
    // Blank lines at the end do not belong to the field.
    let to = next;
    while (to > at + 1 && isBlank(lines[to - 1] ?? "")) to -= 1;
    const value = name === undefined ? undefined : valueOf(head.trim(), lines.slice(at + 1, to));
    if (name !== undefined && value !== undefined) fields.set(name, { ...value, from: at, to });
    at = next;
  }
  return { lines, indent, fields };
}

// The fields of a rule with a text as their value, by name.
export const ruleFields = (text: string): ReadonlyMap<string, RuleField> => layoutOf(text).fields;

// The rule with another value of a field. A field that it lacks follows the expression; undefined if the rule has
// no expression that can be read.
export function withField(text: string, name: string, value: string): string | undefined {
  const { lines, indent, fields } = layoutOf(text);
  const known = fields.get(name);
  const expr = fields.get("expr");
  if (expr === undefined) return undefined;
  const place = known ?? { from: expr.to, to: expr.to, style: "plain" };
  const prefix = known === undefined ? " ".repeat(indent) : (lines[known.from] ?? "").slice(0, indent);
  const isBlock = place.style === "block" || value.includes("\n");
  const changed = isBlock
    ? [`${prefix}${name}: |-`, ...value.split("\n").map((line) => `${" ".repeat(indent + 2)}${line}`)]
    : [`${prefix}${name}: ${place.style === "plain" ? value : yamlText(value)}`];
  return [...lines.slice(0, place.from), ...changed, ...lines.slice(place.to)].join("\n");
}

// A rule group of one rule, which has its name.
export function groupOfRule(rule: string, interval: string): string {
  const { lines, fields } = layoutOf(rule.trimEnd());
  const name = fields.get("alert")?.value ?? fields.get("record")?.value ?? "new";
  const first = lines.findIndex((line) => !isBlank(line));
  const isItem = /^\s*- /.test(lines[first] ?? "");
  const indented = lines.map((line, i) => (line === "" || i < first ? line : `${i === first ? "- " : "  "}${line}`));
  return [`name: ${yamlText(name)}`, ...(interval === "" ? [] : [`interval: ${interval}`]), "rules:", ...(isItem ? lines : indented), ""].join("\n");
}

interface LoadedRule {
  type: "alerting" | "recording";
  name: string;
  query: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  // In seconds.
  duration?: number;
  keepFiringFor?: number;
}

function mapLines(name: string, values: Record<string, string> | undefined): string[] {
  const entries = Object.entries(values ?? {});
  return entries.length === 0 ? [] : [`${name}:`, ...entries.map(([key, value]) => `  ${yamlText(key)}: ${mapText(value)}`)];
}

// A text of several lines needs double quotes: single ones fold lines.
const mapText = (text: string): string => (text.includes("\n") ? JSON.stringify(text) : yamlText(text));

// A rule that the server has loaded, as YAML.
export function ruleYaml(rule: LoadedRule, spelled: (seconds: number) => string): string {
  const expr = rule.query.includes("\n")
    ? ["expr: |-", ...rule.query.split("\n").map((line) => `  ${line}`)]
    : [`expr: ${yamlText(rule.query)}`];
  const wait = (name: string, seconds = 0) => (seconds > 0 ? [`${name}: ${spelled(seconds)}`] : []);
  return [
    `${rule.type === "alerting" ? "alert" : "record"}: ${yamlText(rule.name)}`,
    ...expr,
    ...wait("for", rule.duration),
    ...wait("keep_firing_for", rule.keepFiringFor),
    ...mapLines("labels", rule.labels),
    ...mapLines("annotations", rule.annotations),
    "",
  ].join("\n");
}
