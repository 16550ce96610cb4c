// The page: the server view of the path, or the query panels of the URL, or the dashboard; also the
// theme and the readiness of the server.

import { ask } from "./api.js";
import { Dashboard } from "./dashboard.js";
import { Panel } from "./panel.js";
import { isShownEarly, showView } from "./views.js";

const THEME_KEY = "firn.theme";
const THEMES = { system: "◐", light: "☀", dark: "☾" };
const RETRY_MS = 1000;

// The page title that the server sets.
const TITLE = document.title;

const panels = [];
const find = (id) => document.getElementById(id);
const dashboard = new Dashboard(find("dashboard"), {
  onopen: (expr, range) => {
    panels[0].expr.value = expr;
    panels[0].set({ range, tab: "graph" });
    scrollTo(0, 0);
  },
});

// Writes the panels into the URL: as a new history entry, or in place of the current one.
function changed({ write = "pushState" } = {}) {
  const params = new URLSearchParams(panels.flatMap((panel, i) => (panel.state.expr ? panel.params(i) : [])));
  const isEmpty = params.size === 0;
  const url = isEmpty ? location.pathname : `query?${params}`;
  if (location.search !== (isEmpty ? "" : `?${params}`)) window.history[write](null, "", url);
  document.title = panels[0]?.state.expr ? `${panels[0].state.expr} – ${TITLE}` : TITLE;
  dashboard.show(isEmpty);
  for (const panel of panels) panel.find(".remove").hidden = panels.length === 1;
}

function add(state) {
  const panel = new Panel(state, {
    onchange: () => changed(),
    onremove: (gone) => {
      panels.splice(panels.indexOf(gone), 1);
      gone.root.remove();
      changed();
    },
  });
  panels.push(panel);
  find("panels").append(panel.root);
  panel.fit();
  return panel;
}

// Builds the panels of the URL.
function restore() {
  for (const panel of panels.splice(0)) {
    panel.stop();
    panel.root.remove();
  }
  const params = new URLSearchParams(location.search);
  const numbers = [...params.keys()].flatMap((name) => /^g(\d+)\.expr$/.exec(name)?.[1] ?? []);
  for (const number of numbers.length ? numbers : ["0"]) add(Panel.stateOf(params, number));
  // Completes a link in its own history entry, so that Back leaves the page.
  changed({ write: "replaceState" });
  for (const panel of panels) if (panel.state.expr) panel.run();
  panels[0].expr.focus();
}

function applyTheme(theme) {
  const prefersDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const isDark = theme === "dark" || (theme === "system" && prefersDark);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  find("theme").textContent = THEMES[theme];
  for (const panel of panels) {
    panel.graph.drawLegend();
    panel.graph.draw();
  }
  for (const { graph } of dashboard.cards.values()) graph.draw();
}

function startTheme() {
  let theme = localStorage.getItem(THEME_KEY) ?? "system";
  if (!(theme in THEMES)) theme = "system";
  find("theme").addEventListener("click", () => {
    const order = Object.keys(THEMES);
    theme = order[(order.indexOf(theme) + 1) % order.length];
    localStorage.setItem(THEME_KEY, theme);
    applyTheme(theme);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => applyTheme(theme));
  applyTheme(theme);
}

// Waits for the end of the replay; until then the server rejects queries.
async function ready() {
  const banner = find("banner");
  for (;;) {
    const response = await fetch("-/ready").catch(() => undefined);
    if (response?.ok) break;
    banner.textContent = response ? "Firn is starting and replays its log." : "Firn does not respond.";
    banner.hidden = false;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
  banner.hidden = true;
}

async function showBuild() {
  const { data } = await ask("status/buildinfo");
  find("build").textContent = `${data.firn_version} · compatible with Prometheus ${data.version}`;
}

startTheme();
find("add").addEventListener("click", () => add({}).expr.focus());
const isEarly = isShownEarly(location) && showView(find("view"), location);
find("add").hidden = isEarly;
await ready();
if (isEarly || showView(find("view"), location)) {
  find("add").hidden = true;
} else {
  addEventListener("popstate", restore);
  restore();
}
showBuild();
