// Label sets and matchers in query syntax.

import type { Labels } from "../api/types";

const LEGACY_NAME = /^[a-zA-Z_][a-zA-Z0-9_]*$/;
const LEGACY_METRIC = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;

// A string literal of PromQL.
export const quote = (text: string): string => JSON.stringify(text);

export const labelName = (name: string): string => (LEGACY_NAME.test(name) ? name : quote(name));

// The selector of exactly this series: `up{job="shop"}`, `{"my.metric",job="shop"}`.
export function selectorOf(labels: Labels): string {
  const { __name__: metric = "", ...rest } = labels;
  const matchers = Object.entries(rest).map(([name, value]) => `${labelName(name)}=${quote(value)}`);
  const isLegacy = LEGACY_METRIC.test(metric);
  if (metric !== "" && !isLegacy) matchers.unshift(quote(metric));
  const braces = matchers.length > 0 || metric === "" ? `{${matchers.join(", ")}}` : "";
  return (isLegacy ? metric : "") + braces;
}
