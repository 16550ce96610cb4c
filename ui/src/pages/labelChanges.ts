// Changes of labels by relabelling: label sets side by side, by name, and the steps of rules.

import type { Labels } from "../api/types";
import type { RelabelStep } from "./answers";

export type LabelChange = "same" | "added" | "changed" | "dropped";

export interface ComparedLabel {
  name: string;
  before?: string;
  after?: string;
  change: LabelChange;
}

function changeOf(before: string | undefined, after: string | undefined): LabelChange {
  if (before === after) return "same";
  if (before === undefined) return "added";
  return after === undefined ? "dropped" : "changed";
}

// Compares two label sets. Changed labels come first, then the others, both sorted by name.
export function compareLabels(before: Labels, after: Labels): ComparedLabel[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  const compared = names.map((name) => {
    const entry: ComparedLabel = { name, change: changeOf(before[name], after[name]) };
    if (name in before) entry.before = before[name];
    if (name in after) entry.after = after[name];
    return entry;
  });
  const isChanged = ({ change }: ComparedLabel) => change !== "same";
  return [...compared.filter(isChanged), ...compared.filter((entry) => !isChanged(entry))];
}

// Whether Firn itself uses the label and removes it after relabelling.
export const isInternal = (name: string): boolean => name.startsWith("__");

// The owner of the labels: a target loses its internal labels after relabelling, and a sample keeps its name.
export type RelabelNoun = "target" | "sample" | "alert";

// The noun for rules under a key of a config; rules without a key are those of targets.
export function nounOf(configs: string): RelabelNoun {
  const key = /^\s*(metric|write|alert)_relabel_configs\s*:/m.exec(configs)?.[1];
  if (key === undefined) return "target";
  return key === "alert" ? "alert" : "sample";
}

// Steps up to the one that drops the labels: the rules after it are not applied.
export function appliedSteps(steps: readonly RelabelStep[]): RelabelStep[] {
  const dropping = steps.findIndex(({ keep }) => !keep);
  return dropping === -1 ? [...steps] : steps.slice(0, dropping + 1);
}

// The labels after all rules; without rules they stay as they are.
export function resultLabels(labels: Labels, steps: readonly RelabelStep[], noun: RelabelNoun): Labels {
  const output = appliedSteps(steps).at(-1)?.output ?? labels;
  return noun === "target" ? Object.fromEntries(Object.entries(output).filter(([name]) => !isInternal(name))) : output;
}

// The block of a key in YAML: its line and the lines that belong to it, without the indentation of the key. Undefined
// if the text lacks the key.
export function blockOf(yaml: string, key: string): string | undefined {
  const lines = yaml.split("\n");
  const from = lines.findIndex((line) => line.trimStart().startsWith(`${key}:`));
  if (from === -1) return undefined;
  const indent = (lines[from] ?? "").search(/\S/);
  let to = from + 1;
  while (to < lines.length && isChild(lines[to] ?? "", indent)) to += 1;
  return `${lines.slice(from, to).map((line) => line.slice(indent)).join("\n").trimEnd()}\n`;
}

// Whether a line belongs to a key before it. A list under a key may start at the column of the key.
const isChild = (line: string, indent: number): boolean => {
  const at = line.search(/\S/);
  return at === -1 || at > indent || (at === indent && line.startsWith("- ", at));
};
