// An alerting rule from the expression of a panel: its condition, its threshold, its YAML, and its storage.

import {
  And,
  BinaryExpr,
  BoolModifier,
  Eql,
  FunctionCall,
  Gte,
  Gtr,
  Lss,
  Lte,
  Neq,
  NumberDurationLiteral,
  Or,
  ParenExpr,
  parser,
  UnaryExpr,
  Unless,
} from "@prometheus-io/lezer-promql";
import type { SyntaxNode } from "@lezer/common";
import type { Outcome } from "../api/client";
import { parseDuration } from "../format/duration";
import { yamlText } from "../pages/matchers";
import { saveGroup } from "../pages/ruleFolder";

export const OPERATORS = [">", ">=", "<", "<=", "==", "!="] as const;
export type Operator = (typeof OPERATORS)[number];

export interface RuleDraft {
  name: string;
  expr: string;
  // Not used if the expression is a condition already.
  operator: Operator;
  // Empty if the alert fires for each series of the expression.
  threshold: string;
  // How long the condition has to hold, as typed.
  wait: string;
  severity: string;
  summary: string;
}

const COMPARISONS = [Gtr, Gte, Lss, Lte, Eql, Neq];

// Whether an expression has series only while something holds, such as a comparison without `bool`.
export function isCondition(expr: string): boolean {
  const top = parser.parse(expr).topNode.firstChild;
  return top !== null && holds(expr, top);
}

function holds(expr: string, node: SyntaxNode): boolean {
  const [left, right] = operandsOf(node);
  if (node.type.id === FunctionCall) return /^absent(_over_time)?\s*\(/.test(expr.slice(node.from, node.to));
  if (node.type.id === ParenExpr) return left !== undefined && holds(expr, left);
  if (node.type.id !== BinaryExpr || left === undefined || right === undefined) return false;
  const has = (...types: number[]) => types.some((type) => node.getChild(type) !== null);
  if (has(Unless)) return true;
  if (has(And)) return holds(expr, left) || holds(expr, right);
  if (has(Or)) return holds(expr, left) && holds(expr, right);
  return has(...COMPARISONS) && !has(BoolModifier);
}

export interface Threshold {
  // The number as written, and its place.
  text: string;
  from: number;
  to: number;
  // The expression that is compared with it.
  compared: string;
}

// The number at the right of the comparison that an expression consists of; undefined for other expressions.
export function thresholdOf(expr: string): Threshold | undefined {
  let node = parser.parse(expr).topNode.firstChild;
  while (node?.type.id === ParenExpr) node = operandsOf(node)[0] ?? null;
  if (node?.type.id !== BinaryExpr) return undefined;
  const top = node;
  const isComparison = COMPARISONS.some((type) => top.getChild(type) !== null) && top.getChild(BoolModifier) === null;
  const [left, right] = operandsOf(top);
  if (!isComparison || left === undefined || right === undefined) return undefined;
  const number = right.type.id === UnaryExpr ? operandsOf(right)[0] : right;
  if (number?.type.id !== NumberDurationLiteral) return undefined;
  return { text: expr.slice(right.from, right.to), from: right.from, to: right.to, compared: expr.slice(left.from, left.to) };
}

// The expression with another number in place of its threshold.
export function withThreshold(expr: string, threshold: string): string {
  const known = thresholdOf(expr);
  return known === undefined ? expr : expr.slice(0, known.from) + threshold + expr.slice(known.to);
}

const operandsOf = (node: SyntaxNode): SyntaxNode[] =>
  childrenOf(node).filter(({ type }) => /(Expr|Selector|Call|Literal)$/.test(type.name));

function childrenOf(node: SyntaxNode): SyntaxNode[] {
  const found: SyntaxNode[] = [];
  for (let child = node.firstChild; child !== null; child = child.nextSibling) found.push(child);
  return found;
}

// The expression of the rule.
export function conditionOf({ expr, operator, threshold }: Pick<RuleDraft, "expr" | "operator" | "threshold">): string {
  const trimmed = expr.trim();
  if (threshold.trim() === "" || isCondition(trimmed)) return trimmed;
  const isJoined = parser.parse(trimmed).topNode.firstChild?.type.id === BinaryExpr;
  return `${isJoined ? `(${trimmed})` : trimmed} ${operator} ${threshold.trim()}`;
}

// "HttpRequestsTotal" of "http_requests_total".
export const alertName = (metric: string): string =>
  metric.split(/[^a-zA-Z0-9]+/).map((word) => word.slice(0, 1).toUpperCase() + word.slice(1)).join("");

// What is wrong with a draft, by its field.
export function faultsOf({ name, threshold, wait }: RuleDraft): Partial<Record<"name" | "threshold" | "wait", string>> {
  const isNumber = threshold.trim() === "" || Number.isFinite(Number(threshold));
  return {
    ...(name.trim() === "" && { name: "a name" }),
    ...(!isNumber && { threshold: "a number like 0.5 or 1e9" }),
    ...(wait.trim() !== "" && parseDuration(wait) === undefined && { wait: "a duration like 90s or 1h30m" }),
  };
}

function ruleLines(draft: RuleDraft): string[] {
  const { name, wait, severity, summary } = draft;
  const condition = conditionOf(draft);
  const expr = condition.includes("\n")
    ? ["  expr: |-", ...condition.split("\n").map((line) => `    ${line}`)]
    : [`  expr: ${yamlText(condition)}`];
  return [
    `- alert: ${yamlText(name.trim())}`,
    ...expr,
    ...(wait.trim() === "" ? [] : [`  for: ${wait.trim()}`]),
    ...(severity.trim() === "" ? [] : ["  labels:", `    severity: ${yamlText(severity.trim())}`]),
    ...(summary.trim() === "" ? [] : ["  annotations:", `    summary: ${yamlText(summary.trim())}`]),
  ];
}

// A group as the rule editor of the server takes it.
export const groupYaml = (draft: RuleDraft, group: string): string =>
  [`name: ${yamlText(group)}`, "rules:", ...ruleLines(draft), ""].join("\n");

// The rule alone.
export const ruleText = (draft: RuleDraft): string => [...ruleLines(draft), ""].join("\n");

// A rule file.
export const fileYaml = (draft: RuleDraft, group: string): string =>
  ["groups:", `- name: ${yamlText(group)}`, "  rules:", ...ruleLines(draft).map((line) => `  ${line}`), ""].join("\n");

// Stores the group of a rule in a namespace of the server's rule folder. A group of that name is left as it is.
export const storeRule = (draft: RuleDraft, namespace: string, group: string): Promise<Outcome<unknown>> =>
  saveGroup({ namespace, text: groupYaml(draft, group) });
