// Units that metadata declares, loaded once for all panels.

import type { MetricHelp } from "./editor/completion";
import { helpOf, metadata } from "./names";

let known = $state.raw<ReadonlyMap<string, MetricHelp>>(new Map());
let isRequested = false;

// The declared unit of a metric; undefined until it is known, or if there is none.
export function declaredUnit(metric: string): string | undefined {
  return helpOf(known, metric)?.unit || undefined;
}

export function loadUnits(): void {
  if (isRequested) return;
  isRequested = true;
  void metadata().then((found) => {
    known = found;
  });
}
