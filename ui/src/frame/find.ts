// The entries of "Find anything": pages, metrics, jobs, targets, rules, alerts, queries and settings.

import { functionHelp, FUNCTIONS } from "../query/functions";
import { readHistory, readSaved } from "../query/history";
import { best } from "../query/rank";
import { address } from "../state/address.svelte";
import { settings, THEMES } from "../state/settings.svelte";
import type { Route } from "./routes";
import { counts } from "./server.svelte";

export interface Found {
  name: string;
  // "page", "metric": shown beside the name.
  kind: string;
  // More about it, not searched.
  detail?: string;
  open: () => void;
}

// Most results of one kind, so that ten thousand metrics do not hide a page.
const EACH = 6;
const ALL = 30;

const graph = (expr: string) => (): void => {
  address.go("/query", { "g0.expr": expr, "g0.tab": "graph" });
};

// Things of each kind; earlier kinds come first in the results.
export function things(routes: readonly Route[], metrics: readonly string[]): Found[][] {
  return [
    routes.map(({ path, title }) => ({ name: title, kind: "page", open: () => { address.go(path); } })),
    rules(),
    targets(),
    metrics.map((name) => ({ name, kind: "metric", open: graph(name) })),
    readSaved().map(({ name, expr }) => ({ name, kind: "saved query", detail: expr, open: graph(expr) })),
    readHistory().map((expr) => ({ name: expr, kind: "recent query", open: graph(expr) })),
    [...FUNCTIONS.keys()].map((name) => ({ name, kind: "function", detail: functionHelp(name)?.help ?? "", open: graph(`${name}()`) })),
    THEMES.map((theme) => ({ name: `Theme: ${theme}`, kind: "setting", open: () => { settings.setTheme(theme); } })),
  ];
}

function rules(): Found[] {
  const all = (counts.rules.data?.groups ?? []).flatMap((group) => group.rules);
  return all.map(({ name, type }) => {
    const path = type === "alerting" ? "/alerts" : "/rules";
    return { name, kind: type === "alerting" ? "alert" : "rule", open: () => { address.go(path, { search: name }); } };
  });
}

function targets(): Found[] {
  const all = counts.targets.data?.activeTargets ?? [];
  const jobs = [...new Set(all.map((target) => target.scrapePool))];
  return [
    ...jobs.map((job) => ({ name: job, kind: "job", open: () => { address.go("/targets", { pool: job }); } })),
    ...all.map(({ scrapeUrl, health }) => ({
      name: scrapeUrl,
      kind: "target",
      detail: health,
      open: () => { address.go("/targets", { search: new URL(scrapeUrl).host }); },
    })),
  ];
}

// The best things of each kind for a word; all pages for none.
export function find(kinds: readonly Found[][], word: string): Found[] {
  if (word.trim() === "") return kinds[0]?.slice() ?? [];
  return kinds.flatMap((kind) => best(kind, ({ name }) => name, word.trim(), EACH)).slice(0, ALL);
}
