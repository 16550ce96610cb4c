// The query page for everybody: keys, screen readers, narrow screens.

import type { Page } from "@playwright/test";
import { violations } from "./fixtures/axe";
import type { Firn } from "./fixtures/firn";
import { expect, test } from "./fixtures/test";

const VIEWS: [string, string][] = [
  ["an empty panel", ""],
  ["graph", "g0.expr=rate(demo_requests_total[5m])"],
  ["stacked", "g0.expr=rate(demo_requests_total[5m])&g0.display_mode=stacked"],
  ["heat map", "g0.expr=rate(demo_latency_seconds_bucket[5m])"],
  ["table", "g0.expr=demo_requests_total&g0.tab=table"],
  ["raw", "g0.expr=demo_requests_total&g0.tab=raw"],
  ["value", "g0.expr=demo_requests_total&g0.tab=value"],
  ["json", "g0.expr=demo_requests_total&g0.tab=json"],
  ["explain", "g0.expr=sum(rate(demo_requests_total{handler=~'.%2B'}[1s])) / sum(demo_temperature)&g0.tab=explain"],
  ["no data", "g0.expr=demo_requests_totl"],
  ["two panels", "g0.expr=up&g1.expr=1/0"],
  ["two panels on one graph", "g0.expr=demo_temperature&g1.expr=demo_requests_total&g1.unit=bytes&g1.on=0"],
  ["comparison", "g0.expr=demo_requests_total&g0.compare=20m&g0.sort=-change"],
  ["a comparison of heat maps", "g0.expr=demo_latency_seconds_bucket&g0.compare=20m"],
  ["a comparison of tables", "g0.expr=demo_requests_total&g0.tab=table&g0.compare=20m"],
  ["a wrong comparison", "g0.expr=demo_requests_total&g0.compare=soon"],
  ["alerts and exemplars", "g0.expr=demo_temperature&g0.alerts=1&g0.show_exemplars=1"],
];

async function open(page: Page, firn: Firn, params: string): Promise<void> {
  await page.goto(`${firn.url}query?range=1h&${params}`);
  await expect(page.locator(".cm-content").first()).toBeVisible();
  if (params !== "") await expect(page.locator(".stats").first()).toContainText(/series|Cancelled/);
}

for (const scheme of ["light", "dark"] as const) {
  test(`axe finds nothing in any view, ${scheme}`, async ({ checked, shop }) => {
    test.setTimeout(180_000);
    await checked.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    const found: Record<string, string[]> = {};
    for (const [name, params] of VIEWS) {
      await open(checked, shop, params);
      await checked.waitForTimeout(300);
      found[name] = await violations(checked);
    }
    expect(found).toEqual(Object.fromEntries(VIEWS.map(([name]) => [name, []])));
  });
}

test("axe finds nothing in the dialog for an alert rule", async ({ checked, shop }) => {
  await open(checked, shop, "g0.expr=demo_temperature");
  await checked.getByRole("button", { name: "More for query A" }).click();
  await checked.getByRole("button", { name: "Open as alert rule" }).click();
  await checked.getByRole("textbox", { name: "Threshold" }).fill("x");
  expect(await violations(checked)).toEqual([]);
});

test("400 px: nothing scrolls sideways but the strip of views, and the graph is 220 px high", async ({ checked, shop }) => {
  test.setTimeout(120_000);
  await checked.setViewportSize({ width: 400, height: 800 });
  for (const [name, params] of VIEWS) {
    await open(checked, shop, params);
    await checked.waitForTimeout(200);
    expect(await checked.evaluate(() => document.documentElement.scrollWidth), name).toBeLessThanOrEqual(400);
  }
  await open(checked, shop, "g0.expr=demo_temperature");
  expect(await checked.locator(".uplot").evaluate((plot) => plot.clientHeight)).toBe(220);
  const [field, run] = await Promise.all([checked.locator(".editor").boundingBox(), checked.getByRole("button", { name: "Run" }).boundingBox()]);
  expect(run?.y).toBeGreaterThan((field?.y ?? 0) + (field?.height ?? 0) - 1);
});

test("the whole way by keys: write, complete, run, zoom, isolate, read, compare, copy the link, go to another page and back", async ({ checked, shop }) => {
  await open(checked, shop, "g0.expr=up");
  await checked.locator("main").focus();
  await checked.keyboard.press("/");
  await checked.keyboard.press("Control+A");
  await checked.keyboard.type("demo_requ");
  await expect(checked.locator(".cm-tooltip-autocomplete:not(.cm-tooltip-autocomplete-disabled) li").first()).toContainText("demo_requests_total");
  await checked.keyboard.press("Enter");
  await checked.keyboard.press("Enter");
  await expect(checked.locator(".stats")).toContainText("10 series");
  // From the editor, Tab reaches Run, the controls, the graph and the legend.
  const reached = async (selector: string): Promise<boolean> =>
    checked.evaluate((wanted) => document.activeElement?.matches(wanted) ?? false, selector);
  for (let i = 0; i < 20 && !(await reached(".graph")); i += 1) await checked.keyboard.press("Tab");
  expect(await reached(".graph")).toBe(true);
  await checked.keyboard.press("+");
  await expect(checked).toHaveURL(/range=30m/);
  for (let i = 0; i < 10 && !(await reached("button.series")); i += 1) await checked.keyboard.press("Tab");
  expect(await reached("button.series")).toBe(true);
  await expect(checked.locator("tr.on")).toContainText(/\d/);
  await checked.keyboard.press("Enter");
  await expect(checked.locator("tr.off")).toHaveCount(9);
  // Back to the controls: yesterday, which has no data here, and the link to all of it.
  const back = async (selector: string): Promise<void> => {
    for (let i = 0; i < 30 && !(await reached(selector)); i += 1) await checked.keyboard.press("Shift+Tab");
    expect(await reached(selector)).toBe(true);
  };
  await back('select:has(option[value="1d"])');
  await checked.keyboard.press("ArrowDown");
  await checked.keyboard.press("ArrowDown");
  await expect(checked).toHaveURL(/g0\.compare=1d/);
  await expect(checked.getByText(/^No data 1 d before/)).toBeVisible();
  await back('button[aria-label^="Share"]');
  await checked.keyboard.press("Enter");
  await expect(checked.getByRole("button", { name: "Copy link to this time" })).toBeVisible();
  await checked.keyboard.press("Tab");
  await checked.keyboard.press("Enter");
  await expect(checked.getByRole("status").filter({ hasText: /^Copied$/ })).toHaveCount(1);
  await checked.keyboard.press("Escape");
  await checked.keyboard.press("g");
  await checked.keyboard.press("t");
  await expect(checked.getByRole("heading", { level: 1 })).toHaveText("Targets");
  await checked.keyboard.press("g");
  await checked.keyboard.press("q");
  await expect(checked.locator("tr.off")).toHaveCount(9);
  await expect(checked.locator(".cm-content")).toHaveText("demo_requests_total");
  await expect(checked).toHaveURL(/g0\.compare=1d/);
});

test("a result is announced, and the graph is described", async ({ checked, shop }) => {
  await open(checked, shop, "g0.expr=demo_temperature");
  await expect(checked.getByRole("status").filter({ hasText: /^1 series in \d+ ms$/ })).toHaveCount(1);
  await expect(checked.getByRole("group", { name: /^Graph of 1 series over 1 h, from 19(\.\d+)? to 21/ })).toBeVisible();
});
