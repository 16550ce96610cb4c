// Values with their unit: short on axes and in legends, or with all digits in tables.

import { formatNumber } from "../format/number";
import type { Measure } from "./units";

// A short text for legends and tooltips, such as "29.34M" or "2.4 MiB/s".
export function shortText(value: number, measure: Measure, digits = 4): string {
  if (measure.unit === "time" && Number.isFinite(value)) return timeText(value);
  const unit = measure.unit === "none" ? "" : measure.unit;
  return formatNumber(value, unit, digits) + (measure.perSecond && Number.isFinite(value) ? "/s" : "");
}

const timeText = (seconds: number) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");

// A text for the value axis: "/s" stands in the name of the axis instead.
export const axisText = (value: number, measure: Measure, digits: number) =>
  shortText(value, { ...measure, perSecond: false }, digits);

// The name of a unit for the name of an axis and the menu of units.
export function measureName({ unit, perSecond, noun }: Measure): string {
  const names = { none: noun, bytes: "bytes", seconds: "seconds", ratio: "%", time: "time" };
  const name = names[unit];
  if (!perSecond) return name;
  return name === "" ? "per second" : `${name}/s`;
}
