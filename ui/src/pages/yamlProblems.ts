// Mistakes of a text with their places, from errors of the server.

import type { Failure } from "../api/client";

export interface YamlProblem {
  // From 1; undefined if the error has no place.
  line: number | undefined;
  column: number | undefined;
  message: string;
}

const PREFIX = /^(?:invalid parameter "rule": |configs:)/;

// The mistakes in the text of a request; none for a failure of another kind.
export function yamlProblems(failure: Failure | undefined): YamlProblem[] {
  if (failure?.kind !== "refused" || !PREFIX.test(failure.message)) return [];
  const found: YamlProblem[] = [];
  for (const line of failure.message.replace(PREFIX, "").split("\n")) {
    const [, row, column, text] = /^\s*(\d+):(\d+): (.*)$/.exec(line) ?? [];
    const last = found.at(-1);
    if (row !== undefined && text !== undefined) found.push({ line: Number(row), column: Number(column), message: text });
    else if (last === undefined) found.push({ line: undefined, column: undefined, message: line });
    // An error of several lines.
    else last.message += `\n${line}`;
  }
  return found;
}

// The offset of a place in a text.
export function offsetOf(text: string, line: number, column: number): number {
  const before = text.split("\n").slice(0, line - 1);
  return Math.min(text.length, before.reduce((sum, one) => sum + one.length + 1, 0) + column - 1);
}
