// Which view shows an answer. A histogram opens as a heat map unless the reader chose lines.

import type { Series } from "../api/types";
import { isClassicNames } from "../histogram/cells";
import type { PanelState, View } from "./panels";
import type { Answer } from "./run.svelte";

const isHistogram = (result: readonly Series[]) =>
  result.length > 0 && (result.some(({ histograms }) => histograms.length > 0) || isClassicNames(result.map(({ metric }) => metric)));

export function shownView(panel: PanelState, answer: Answer | undefined): View {
  if (panel.view !== "graph" || panel.style !== undefined || answer === undefined) return panel.view;
  const { data, question } = answer;
  const isHeat = question.kind === "range" && data.resultType === "matrix" && isHistogram(data.result);
  return isHeat ? "heatmap" : "graph";
}
