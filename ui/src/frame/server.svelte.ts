// Facts of the server in the frame: its mode, counts beside the pages, links of the operator.

import { get } from "../api/client";
import { Resource } from "../state/resource.svelte";

export interface Counts {
  firing: number;
  failing: number;
  down: number;
}

interface AlertRule {
  name: string;
  type: string;
  health: string;
  alerts?: { state: string }[];
}

interface Targets {
  activeTargets: { scrapePool: string; scrapeUrl: string; health: string }[];
}

const EVERY_SECONDS = 15;

// A meta element of index.html, which the server fills.
function meta(name: string): string {
  return document.querySelector<HTMLMetaElement>(`meta[name="firn:${name}"]`)?.content ?? "";
}

export const isAgent = meta("mode") === "agent";
export const isCluster = meta("cluster") !== "";
// The operator's own page below the root; empty if there is none.
export const consoles = meta("consoles");

export const counts = {
  rules: new Resource((signal) => get<{ groups: { rules: AlertRule[] }[] }>("rules", {}, { signal }), { every: () => EVERY_SECONDS }),
  targets: new Resource((signal) => get<Targets>("targets", { state: "active" }, { signal }), { every: () => EVERY_SECONDS }),
};

export function countsNow(): Counts {
  const rules = (counts.rules.data?.groups ?? []).flatMap((group) => group.rules);
  return {
    firing: rules.flatMap((rule) => rule.alerts ?? []).filter((alert) => alert.state === "firing").length,
    failing: rules.filter((rule) => rule.health === "err").length,
    down: (counts.targets.data?.activeTargets ?? []).filter((target) => target.health === "down").length,
  };
}

