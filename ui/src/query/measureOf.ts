// The unit of a panel: the choice of the reader, or the unit that the expression suggests.

import { measure, NO_MEASURE, type Measure, type Unit } from "../graph/units";
import type { PanelState } from "./panels";

export interface UnitChoice {
  id: string;
  label: string;
  measure: Measure;
}

const unit = (name: Unit, perSecond = false): Measure => ({ unit: name, perSecond, noun: "" });

export const UNITS: readonly UnitChoice[] = [
  { id: "none", label: "plain", measure: NO_MEASURE },
  { id: "rate", label: "per second", measure: unit("none", true) },
  { id: "bytes", label: "bytes", measure: unit("bytes") },
  { id: "byterate", label: "bytes/s", measure: unit("bytes", true) },
  { id: "seconds", label: "seconds", measure: unit("seconds") },
  { id: "ratio", label: "per cent of 1", measure: unit("ratio") },
  { id: "time", label: "time", measure: unit("time") },
];

export function measureOf(panel: PanelState, declared: (metric: string) => string | undefined): Measure {
  return UNITS.find(({ id }) => id === panel.unit)?.measure ?? measure(panel.expr, declared);
}
