// Mistakes in the YAML of a rule group at their lines.
//
// The server validates a group in a layout of its own, and only when it stores the group. Each rule is therefore
// checked by `/api/v1/rules/preview`, whose errors have the place in the text as it is written.

import { post, type Failure } from "../api/client";
import { yamlProblems, type YamlProblem } from "./yamlProblems";

export interface RuleItem {
  // Index of its first line.
  start: number;
  text: string;
}

const isBlank = (line: string) => /^\s*(#.*)?$/.test(line);
const indentOf = (line: string) => line.length - line.trimStart().length;

// The rules of a group in block style.
export function ruleItems(text: string): RuleItem[] {
  const lines = text.split("\n");
  const head = lines.findIndex((line) => /^\s*(- )?rules:\s*(#.*)?$/.test(line));
  if (head < 0) return [];
  const items: RuleItem[] = [];
  let dash: number | undefined;
  for (let at = head + 1; at < lines.length; at += 1) {
    const line = lines[at] ?? "";
    if (isBlank(line)) continue;
    dash ??= indentOf(line);
    const isItem = indentOf(line) === dash && /^\s*-(\s|$)/.test(line);
    if (!isItem && indentOf(line) <= dash) break;
    if (isItem) items.push({ start: at, text: line });
    else if (items.length > 0) {
      const item = items[items.length - 1];
      // Blank lines before it belong to the item, too.
      if (item) item.text = lines.slice(item.start, at + 1).join("\n");
    }
  }
  return items;
}

// The evaluation at one time that checks a text.
async function preview(rule: string, signal: AbortSignal): Promise<Failure | undefined> {
  const now = Math.floor(Date.now() / 1000);
  // Few evaluations for the time that a condition has to hold.
  const outcome = await post("rules/preview", { rule, start: now, end: now, interval: "1d" }, { signal });
  return outcome.ok ? undefined : outcome.failure;
}

const UNKNOWN_KEY = /^field (\S+) not found in type rulefmt\.Rule(Group)?$/;

// Mistakes of the YAML itself. The keys of a group are unknown ones of a rule.
async function syntaxProblems(text: string, signal: AbortSignal): Promise<YamlProblem[]> {
  const found = yamlProblems(await preview(text, signal));
  const isOfText = ({ message, line }: YamlProblem) => line !== undefined && line > 0 && !UNKNOWN_KEY.test(message);
  return found.filter(isOfText).map((problem) => ({ ...problem, message: problem.message.replace("a rule must be", "a group must be") }));
}

export interface GroupCheck {
  problems: YamlProblem[];
  // Rules that were checked.
  rules: number;
  // A failure that is no mistake in the text, such as a busy server.
  failure: Failure | undefined;
}

const AT_ONCE = 4;

// Checks groups of one dialog: rules that did not change are not checked again.
export class GroupChecker {
  readonly #known = new Map<string, YamlProblem[]>();

  async check(text: string, signal: AbortSignal): Promise<GroupCheck> {
    const problems = await syntaxProblems(text, signal);
    const items = ruleItems(text);
    if (problems.length > 0) return { problems, rules: items.length, failure: undefined };
    for (let at = 0; at < items.length; at += AT_ONCE) {
      const failures = await Promise.all(items.slice(at, at + AT_ONCE).map((item) => this.#checkItem(item, signal)));
      const failure = failures.find((one) => one !== undefined);
      if (failure) return { problems, rules: items.length, failure };
    }
    const found = items.flatMap((item) => (this.#known.get(item.text) ?? []).map((problem) => placed(problem, item)));
    return { problems: found, rules: items.length, failure: undefined };
  }

  async #checkItem(item: RuleItem, signal: AbortSignal): Promise<Failure | undefined> {
    if (this.#known.has(item.text)) return undefined;
    const failure = await preview(item.text, signal);
    if (failure !== undefined && failure.kind !== "refused") return failure;
    const isMistake = failure?.errorType === "bad_data";
    const found = yamlProblems(failure);
    // An expression that the server cannot evaluate now is none of the text.
    this.#known.set(item.text, isMistake && found.length === 0 ? [{ line: undefined, column: undefined, message: failure.message }] : found);
    return undefined;
  }
}

// The place in the group of a mistake in one of its rules.
function placed({ line, column, message }: YamlProblem, { start }: RuleItem): YamlProblem {
  const isPlaced = line !== undefined && line > 0;
  return { line: start + (isPlaced ? line : 1), column: isPlaced ? column : undefined, message: message.replace(/^(0:0: )+/, "") };
}

// The mistakes that the server found when it stored a group. Its lines are those of a rule file in its own layout,
// which has neither blank lines nor comments.
export function storeProblems(text: string, failure: Failure | undefined): YamlProblem[] {
  if (failure?.kind !== "refused" || failure.status !== 400) return [];
  const lines = text.split("\n").flatMap((line, i) => (isBlank(line) || /^---/.test(line) ? [] : [i + 1]));
  const items = ruleItems(text);
  return failure.message.split("\n").map((raw) => {
    const [, row, , rest] = /^(\d+):(\d+): (?:0:0: )?(.*)$/.exec(raw) ?? [];
    const message = rest ?? raw;
    const key = UNKNOWN_KEY.exec(message)?.[1];
    const ofKey = key === undefined ? -1 : text.split("\n").findIndex((line) => line.trimStart().replace(/^- /, "").startsWith(`${key}:`));
    const rule = Number(/^group ".*", rule (\d+), /.exec(message)?.[1] ?? NaN);
    const item = items[rule - 1];
    if (ofKey >= 0) return { line: ofKey + 1, column: undefined, message };
    if (item) return { line: item.start + 1, column: undefined, message };
    return { line: lines[Number(row ?? 0) - 2], column: undefined, message };
  });
}
