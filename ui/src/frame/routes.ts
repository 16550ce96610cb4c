// The pages: path, title, place in the sidebar, and component, loaded when it is opened. The server
// answers these paths, and no others, with index.html (crates/core/server/src/routes/table/pages.rs).

import type { Component } from "svelte";
import type { IconName } from "./icons";

export type Group = "" | "Explore" | "Alerting" | "Scraping" | "Server";

export interface Route {
  path: string;
  // Further paths of the same page, from Prometheus.
  aliases?: readonly string[];
  title: string;
  group: Group;
  // Path of the page in the sidebar that leads to this one, which has no entry of its own.
  within?: string;
  icon: IconName;
  load: () => Promise<{ default: Component }>;
  // Whether the top bar has the time range.
  hasRange?: boolean;
  // Seconds between refreshes until the reader chooses an interval; 0 for none.
  refresh?: number;
  // Shown only if the server is a node of a cluster.
  needsCluster?: boolean;
  // Shown only if the server stores data; an agent does not.
  needsStore?: boolean;
  // A credential restricted by `match` cannot read it.
  needsWhole?: boolean;
  // It shows parts that all tenants share: a credential for some tenants cannot read it.
  isOfAll?: boolean;
  // A count beside the name in the sidebar.
  count?: "alerts" | "rules" | "targets";
}

const LIST_REFRESH = 15;

export const ROUTES: readonly Route[] = [
  { path: "/", title: "Home", group: "", icon: "home", load: () => import("../pages/Home.svelte"), hasRange: true, refresh: LIST_REFRESH },
  {
    path: "/query",
    aliases: ["/graph"],
    title: "Query",
    group: "",
    icon: "query",
    load: () => import("../query/QueryPage.svelte"),
    hasRange: true,
    needsStore: true,
  },
  { path: "/explore/metrics", title: "Metrics", group: "Explore", icon: "metrics", load: () => import("../pages/Metrics.svelte"), hasRange: true, needsStore: true },
  { path: "/explore/cardinality", title: "Cardinality", group: "Explore", icon: "cardinality", load: () => import("../pages/Cardinality.svelte"), needsStore: true },
  { path: "/explore/usage", title: "Usage", group: "Explore", icon: "usage", load: () => import("../pages/Usage.svelte"), needsStore: true, needsWhole: true },
  { path: "/alerts", title: "Alerts", group: "Alerting", icon: "alert", load: () => import("../pages/Alerts.svelte"), refresh: LIST_REFRESH, needsStore: true, needsWhole: true, count: "alerts" },
  { path: "/rules", title: "Rules", group: "Alerting", icon: "rules", load: () => import("../pages/Rules.svelte"), refresh: LIST_REFRESH, needsStore: true, needsWhole: true, count: "rules" },
  { path: "/rules/test", title: "Rule test", group: "Alerting", within: "/rules", icon: "rules", load: () => import("../pages/RuleTest.svelte"), hasRange: true, needsStore: true },
  { path: "/alertmanager-discovery", title: "Alertmanagers", group: "Alerting", icon: "bell", load: () => import("../pages/Alertmanagers.svelte"), refresh: LIST_REFRESH, needsStore: true, needsWhole: true, isOfAll: true },
  { path: "/targets", title: "Targets", group: "Scraping", icon: "target", load: () => import("../pages/Targets.svelte"), hasRange: true, refresh: LIST_REFRESH, needsWhole: true, count: "targets" },
  { path: "/service-discovery", title: "Discovery", group: "Scraping", icon: "discovery", load: () => import("../pages/Discovery.svelte"), refresh: LIST_REFRESH, needsWhole: true },
  { path: "/relabel", title: "Relabelling", group: "Scraping", icon: "relabel", load: () => import("../pages/Relabelling.svelte"), needsWhole: true },
  { path: "/discards", title: "Refused samples", group: "Scraping", icon: "discards", load: () => import("../pages/Discards.svelte"), refresh: LIST_REFRESH, needsWhole: true },
  { path: "/queries", title: "Queries", group: "Server", icon: "queries", load: () => import("../pages/Queries.svelte"), refresh: 2, needsStore: true, needsWhole: true },
  { path: "/tsdb-status", title: "Storage", group: "Server", icon: "storage", load: () => import("../pages/Storage.svelte"), refresh: LIST_REFRESH, needsStore: true, needsWhole: true },
  { path: "/cluster", title: "Cluster", group: "Server", icon: "cluster", load: () => import("../pages/Cluster.svelte"), refresh: 2, needsCluster: true, needsWhole: true },
  { path: "/config", title: "Configuration", group: "Server", icon: "config", load: () => import("../pages/Configuration.svelte"), needsWhole: true, isOfAll: true },
  { path: "/flags", title: "Flags", group: "Server", icon: "flag", load: () => import("../pages/Flags.svelte"), needsWhole: true, isOfAll: true },
  { path: "/status", aliases: ["/agent"], title: "Status", group: "Server", icon: "status", load: () => import("../pages/Status.svelte"), refresh: LIST_REFRESH, needsWhole: true, isOfAll: true },
];

// The page at a path below the root; a slash at the end is the same page.
export function routeOf(path: string): Route | undefined {
  const bare = path.length > 1 ? path.replace(/\/+$/, "") : path;
  return ROUTES.find((route) => route.path === bare || route.aliases?.includes(bare));
}

// Seconds between refreshes of a page: the reader's choice, or the page's own.
export function refreshOf(path: string, chosen: number | undefined): number {
  return chosen ?? routeOf(path)?.refresh ?? 0;
}
