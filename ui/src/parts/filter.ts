// Filters of lists, as typed into one box: words, and matchers of labels as in PromQL without braces.
//
//   shop down            both words occur in the item
//   "connection refused" the phrase occurs
//   job=shop zone!=b     the labels have, or have not, these values
//   instance=~"10\..*"   the whole value matches the regular expression (`!~`: does not match)
//
// Words ignore case, label values do not, as in PromQL.

import type { Labels } from "../api/types";

// An item of a filtered list. Filters search words in `text`, which `searchText` makes.
export interface Filterable {
  text: string;
  labels: Labels;
}

// Joins the searchable texts of an item in lower case, so that a key pressed in a list of thousands need not
// convert them all again.
export const searchText = (...parts: string[]): string => parts.join(" ").toLowerCase();

export type Filter = (item: Filterable) => boolean;

// The result of parsing: a filter, or the mistake in the text.
export type ParsedFilter = { filter: Filter } | { problem: string };

const TERM = /\s*(?:([a-zA-Z_][\w.]*)(=~|!~|!=|=)("(?:[^"\\]|\\.)*"?|\S*)|"((?:[^"\\]|\\.)*)"?|(\S+))/gy;

function unquoted(text: string): string {
  if (!text.startsWith('"')) return text;
  const inner = text.endsWith('"') && text.length > 1 ? text.slice(1, -1) : text.slice(1);
  return inner.replace(/\\(["\\])/g, "$1");
}

function matcherOf(name: string, operator: string, value: string): ParsedFilter {
  if (operator === "=" || operator === "!=") {
    const isEqual = operator === "=";
    return { filter: ({ labels }) => ((labels[name] ?? "") === value) === isEqual };
  }
  let pattern: RegExp;
  try {
    pattern = new RegExp(`^(?:${value})$`, "su");
  } catch {
    return { problem: `${value} is not a regular expression` };
  }
  const isMatch = operator === "=~";
  return { filter: ({ labels }) => pattern.test(labels[name] ?? "") === isMatch };
}

// Parses the text of a filter box. An empty text matches everything.
export function parseFilter(text: string): ParsedFilter {
  const filters: Filter[] = [];
  for (const [, name, operator, value, phrase, word] of text.trim().matchAll(TERM)) {
    if (name !== undefined && operator !== undefined) {
      const parsed = matcherOf(name, operator, unquoted(value ?? ""));
      if ("problem" in parsed) return parsed;
      filters.push(parsed.filter);
      continue;
    }
    const wanted = (phrase ?? word ?? "").toLowerCase();
    filters.push((item) => item.text.includes(wanted));
  }
  return { filter: (item) => filters.every((filter) => filter(item)) };
}
