// The action of Enter. It accepts a completion that was chosen with the arrows, or that completes an
// unfinished word; on a finished word it runs the query.

import { completionStatus, currentCompletions, selectedCompletionIndex } from "@codemirror/autocomplete";
import type { EditorState } from "@codemirror/state";

const WORD = /[\w:.]+$/;

// Index of the completion that Enter accepts; undefined if Enter runs the query. Nothing is chosen
// when the list opens, so a chosen entry was chosen by the user.
export function accepted(state: EditorState): number | undefined {
  if (completionStatus(state) !== "active") return undefined;
  const chosen = selectedCompletionIndex(state);
  if (chosen !== null && chosen >= 0) return chosen;
  const { head } = state.selection.main;
  const word = WORD.exec(state.sliceDoc(Math.max(0, head - 200), head))?.[0] ?? "";
  return unfinished(word, currentCompletions(state));
}

// Index of the entry that `word` is the beginning of; undefined for a finished or unknown word.
export function unfinished(word: string, options: readonly { label: string; type?: string }[]): number | undefined {
  if (word === "" || /^[\d.]/.test(word)) return undefined;
  if (options.some(({ label }) => label === word)) return undefined;
  const found = options.findIndex(({ label, type }) => type !== "history" && label.startsWith(word));
  return found < 0 ? undefined : found;
}
