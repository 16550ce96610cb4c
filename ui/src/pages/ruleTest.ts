// The state of the page that tests a rule: its parameters in the address, and the rule with the threshold and the
// time to wait that the reader tries.

import { formatDuration, parseDuration } from "../format/duration";
import { thresholdOf, withThreshold, type Threshold } from "../query/alertRule";
import type { Rule } from "./answers";
import { ruleFields, ruleYaml, withField } from "./ruleText";

// Range of the page when it is opened from a rule.
const RANGE = "1d";

// Parameters of the page for a loaded rule.
export function testParams(rule: Rule, interval: number): Record<string, string> {
  return { rule: ruleYaml(rule, formatDuration), interval: formatDuration(interval), range: RANGE };
}

// Changes that the reader tries, as typed; empty for none.
export interface Trial {
  threshold: string;
  wait: string;
}

export interface TriedRule {
  // Values of the rule as written; undefined if it has none, or none that can be read.
  threshold: Threshold | undefined;
  wait: string | undefined;
  isAlert: boolean;
  // The rule with the changes; undefined without any, or with a wrong one.
  changed: string | undefined;
  faults: Partial<Record<keyof Trial, string>>;
}

export function triedRule(rule: string, { threshold, wait }: Trial): TriedRule {
  const fields = ruleFields(rule);
  const expr = fields.get("expr")?.value ?? "";
  const known = thresholdOf(expr);
  const isNumber = threshold.trim() === "" || Number.isFinite(Number(threshold));
  const seconds = wait.trim() === "" ? 0 : parseDuration(wait);
  const faults = {
    ...(!isNumber && { threshold: "a number like 0.5 or 1e9" }),
    ...(seconds === undefined && { wait: "a duration like 90s or 1h30m" }),
  };
  let changed: string | undefined = rule;
  if (threshold.trim() !== "" && known !== undefined) changed = withField(changed, "expr", withThreshold(expr, threshold.trim()));
  if (wait.trim() !== "" && changed !== undefined) changed = withField(changed, "for", formatDuration(seconds ?? 0));
  const isChanged = changed !== rule && Object.keys(faults).length === 0;
  return {
    threshold: known,
    wait: fields.get("for")?.value,
    isAlert: fields.has("alert"),
    changed: isChanged ? changed : undefined,
    faults,
  };
}

// The limits of a slider for a threshold: the range of the values, widened to the threshold itself, and a round
// distance of its places.
export function sliderOf(low: number, high: number, threshold: number): { min: number; max: number; step: number } | undefined {
  const [min, max] = [Math.min(low, threshold), Math.max(high, threshold)];
  if (!Number.isFinite(min) || !Number.isFinite(max) || min >= max) return undefined;
  const step = 10 ** Math.floor(Math.log10((max - min) / 100));
  const place = (value: number) => Number(placeText(value, step));
  return { min: place(Math.floor(min / step) * step), max: place(Math.ceil(max / step) * step), step };
}

// A place of the slider without the noise of binary fractions.
export const placeText = (value: number, step: number): string => String(Number(value.toFixed(Math.max(0, -Math.floor(Math.log10(step))))));
