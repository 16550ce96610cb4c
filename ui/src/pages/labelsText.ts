// Label sets as text to edit: one label a line, as name="value".

import type { Labels } from "../api/types";
import { labelName, quote } from "../format/labels";

export const labelsText = (labels: Labels): string =>
  Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => `${labelName(name)}=${quote(value)}`).join("\n");

const LINE = /^\s*("(?:[^"\\]|\\.)+"|[^\s="]+)\s*[=:]\s*(.*?)\s*,?\s*$/;

function textOf(part: string): string | undefined {
  if (!part.startsWith('"')) return part;
  try {
    const value: unknown = JSON.parse(part);
    return typeof value === "string" ? value : undefined;
  } catch {
    return undefined;
  }
}

// Parses lines of labels, or a JSON object. Values may lack their quotes. A mistake is named with its line.
export function parseLabels(text: string): { labels: Labels } | { problem: string } {
  const labels: Labels = {};
  for (const [i, line] of text.split("\n").entries()) {
    if (/^\s*[{}]?\s*,?\s*$/.test(line)) continue;
    const [, left = "", right = ""] = LINE.exec(line) ?? [];
    const [name, value] = [textOf(left), textOf(right)];
    if (!name || value === undefined) return { problem: `line ${String(i + 1)}: expected name="value"` };
    if (name in labels) return { problem: `line ${String(i + 1)}: ${name} has a value already` };
    labels[name] = value;
  }
  return { labels };
}
