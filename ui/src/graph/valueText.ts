// Values with their unit: short on axes and in legends, or with all digits in tables.

import { formatNumber } from "../format/number";
import { formatUtc } from "../format/time";
import type { Measure } from "./units";

// A short text for legends and tooltips, such as "29.34M" or "2.4 MiB/s".
export function shortText(value: number, measure: Measure, digits = 4): string {
  if (measure.unit === "time" && Number.isFinite(value)) return formatUtc(value * 1000);
  const unit = measure.unit === "none" ? "" : measure.unit;
  return formatNumber(value, unit, digits) + (measure.perSecond && Number.isFinite(value) ? "/s" : "");
}

// A text for the value axis: the name of the axis has "/s" instead.
export const axisText = (value: number, measure: Measure, digits: number) =>
  shortText(value, { ...measure, perSecond: false }, digits);

// The name of a unit for the name of an axis and the menu of units.
export function measureName({ unit, perSecond, noun }: Measure): string {
  const names = { none: noun, bytes: "bytes", seconds: "seconds", ratio: "%", time: "time" };
  const name = names[unit];
  if (!perSecond) return name;
  return name === "" ? "per second" : `${name}/s`;
}
