// The plan of a query, from `explain=1` and `analyze=1`: its operations with their cost, and the place of each
// one in the expression.

import { BinaryExpr, OffsetExpr, parser, StepInvariantExpr } from "@prometheus-io/lezer-promql";
import type { SyntaxNode } from "@lezer/common";

export interface PlanMatcher {
  matcher: string;
  // Number of series that match it alone; null if another node or the credential hides it.
  series: number | null;
  // Whether it is checked on the series of other matchers instead of its own list.
  deferred: boolean;
}

export interface ServerHint {
  kind: string;
  text: string;
}

// A node as the API writes it. Figures exclude the children; a plan alone has none.
export interface PlanNode {
  type: string;
  text: string;
  hints: ServerHint[];
  children: PlanNode[];
  matchers?: PlanMatcher[];
  resolution?: string;
  series?: number;
  samplesRead?: number;
  totalQueryableSamples?: number;
  bytesRead?: number;
  cacheHits?: number;
  cacheMisses?: number;
  cpuSeconds?: number;
  memoryBytes?: number;
}

// A range of letters of the expression.
export interface Part {
  from: number;
  to: number;
}

export interface Operation {
  // Place in the tree: "0" is the root, "0.1" its second operand.
  path: string;
  depth: number;
  node: PlanNode;
  // Undefined if the grammar of the page and the plan of the server disagree.
  part: Part | undefined;
  // Part of the time of all operations; undefined without figures.
  share: number | undefined;
  parent: Operation | undefined;
}

const WRAPPERS: readonly number[] = [OffsetExpr, StepInvariantExpr];
const EXPRESSIONS = new Set([
  "AggregateExpr", "BinaryExpr", "FunctionCall", "MatrixSelector", "NumberDurationLiteral", "OffsetExpr", "ParenExpr",
  "StepInvariantExpr", "StringLiteral", "SubqueryExpr", "UnaryExpr", "VectorSelector",
]);
// Texts inside these are names, bounds and durations.
const CLOSED = new Set(["LabelMatchers", "GroupingLabels", "DurationExpr", "OffsetDurationExpr", "MatchingModifierClause"]);

// All operations of a plan from top to bottom. `expr` is the text that the server received.
export function operationsOf(root: PlanNode, expr: string): Operation[] {
  const found: Operation[] = [];
  const whole = parser.parse(expr).topNode;
  const top = isFaithful(whole) ? operandsOf(whole)[0] : undefined;
  const visit = (node: PlanNode, syntax: SyntaxNode | undefined, path: string, parent: Operation | undefined): void => {
    const part = syntax && { from: syntax.from, to: syntax.to };
    const made: Operation = { path, depth: parent ? parent.depth + 1 : 0, node, part, share: undefined, parent };
    found.push(made);
    const operands = syntax === undefined ? [] : operandsOf(insideOf(syntax));
    // A constant that the server computed in advance has no operands in the plan.
    const isSame = operands.length === node.children.length;
    for (const [i, child] of node.children.entries()) visit(child, isSame ? operands[i] : undefined, `${path}.${i}`, made);
  };
  visit(root, top, "0", undefined);
  const total = found.reduce((sum, { node }) => sum + (node.cpuSeconds ?? 0), 0);
  if (total > 0) for (const one of found) one.share = (one.node.cpuSeconds ?? 0) / total;
  return found;
}

// The operands of an expression in their order, without parentheses.
function operandsOf(syntax: SyntaxNode): SyntaxNode[] {
  const found: SyntaxNode[] = [];
  for (let child = syntax.firstChild; child !== null; child = child.nextSibling) {
    if (child.name === "ParenExpr") found.push(...operandsOf(child));
    else if (EXPRESSIONS.has(child.name)) found.push(child);
    else if (!CLOSED.has(child.name)) found.push(...operandsOf(child));
  }
  return found;
}

// The operation whose time or offset a wrapper sets: the plan has one node for both. A range selector is one
// node with its vector selector.
function insideOf(syntax: SyntaxNode): SyntaxNode {
  let inner = syntax;
  while (WRAPPERS.includes(inner.type.id)) inner = operandsOf(inner)[0] ?? (inner.firstChild as SyntaxNode);
  return inner.name === "MatrixSelector" ? (inner.lastChild as SyntaxNode) : inner;
}

// Without precedence for `@` and `offset`, the grammar may give them a binary operation that the server does not.
function isFaithful(whole: SyntaxNode): boolean {
  let isGood = true;
  whole.cursor().iterate(({ node, type }) => {
    isGood &&= !type.isError && !(WRAPPERS.includes(type.id) && node.firstChild?.type.id === BinaryExpr);
  });
  return isGood;
}

// The operation with the most time of its own.
export function hottestOf(operations: readonly Operation[]): Operation | undefined {
  let found: Operation | undefined;
  for (const one of operations) if ((one.share ?? 0) > (found?.share ?? 0)) found = one;
  return found;
}

// Sums over all operations.
export function totalsOf(operations: readonly Operation[]): { seconds: number; samples: number; bytes: number } {
  const sum = (name: "cpuSeconds" | "samplesRead" | "bytesRead") =>
    operations.reduce((all, { node }) => all + (node[name] ?? 0), 0);
  return { seconds: sum("cpuSeconds"), samples: sum("samplesRead"), bytes: sum("bytesRead") };
}
