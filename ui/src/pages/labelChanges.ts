// Changes of the labels of a target by relabelling: label sets side by side, by name.

import type { Labels } from "../api/types";

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
