// Explain: the plan of a query, its cost, and the hints of the server.

import type { Page } from "@playwright/test";
import type { Firn } from "./fixtures/firn";
import { expect, test } from "./fixtures/test";

const link = (firn: Firn, expr: string, more = ""): string =>
  `${firn.url}query?g0.expr=${encodeURIComponent(expr)}&range=1h${more}`;

const EXPR = 'sum by (handler) (rate(demo_requests_total{namespace="shop"}[5m]))';
const SELECTOR = 'demo_requests_total{namespace="shop"}[5m]';

const operations = (page: Page) => page.getByRole("group", { name: "Operations of the query" }).locator("button.part");
const open = (page: Page) => page.getByRole("group", { name: "Operations of the query" }).locator("button.part[aria-expanded=true]");
const marked = (page: Page) => page.locator(".cm-part");

test("one key shows the operations, their cost, and the hottest one open", async ({ checked, shop }) => {
  await checked.goto(link(shop, EXPR));
  await expect(checked.locator(".u-over")).toBeVisible();
  await checked.locator("main").focus();
  await checked.keyboard.press("e");
  await expect(checked).toHaveURL(/g0\.tab=explain/);
  await expect(operations(checked).locator("code")).toHaveText([EXPR, `rate(${SELECTOR})`, SELECTOR]);
  await expect(checked.locator(".hot")).toHaveCount(1);
  await expect(open(checked)).toContainText("hottest");
  await expect(checked.getByText(/ of processor time, [\d,]+ samples?, [\d.]+ (B|KiB|MiB) read/)).toBeVisible();
  const selector = checked.locator(".line").filter({ has: checked.locator("code", { hasText: /^demo_requests_total/ }) });
  await expect(selector.locator(".figure").nth(1)).toHaveText("series 10");
  await checked.keyboard.press("e");
  await expect(checked).toHaveURL(/g0\.tab=graph/);
});

test("a part is marked in the editor by the pointer and by the arrow keys", async ({ checked, shop }) => {
  await checked.goto(link(shop, EXPR, "&g0.tab=explain"));
  await expect(operations(checked)).toHaveCount(3);
  await operations(checked).nth(1).hover();
  await expect(marked(checked)).toHaveText([`rate(${SELECTOR})`]);
  await checked.mouse.move(0, 0);
  await expect(marked(checked)).toHaveCount(0);
  await operations(checked).nth(1).focus();
  await checked.keyboard.press("ArrowDown");
  await expect(marked(checked)).toHaveText([SELECTOR]);
  await operations(checked).nth(2).blur();
  await expect(marked(checked)).toHaveCount(0);
});

test("matchers, help, and the open operation is in the address", async ({ checked, shop }) => {
  await checked.goto(link(shop, EXPR, "&g0.tab=explain&g0.operation=0.0.0"));
  const matchers = checked.getByRole("table", { name: /^Matchers of/ });
  await expect(matchers.getByRole("row").filter({ hasText: '__name__="demo_requests_total"' })).toContainText("10");
  await operations(checked).nth(1).click();
  await expect(checked).toHaveURL(/g0\.operation=0\.0(&|$)/);
  await expect(checked.getByText("Growth of a counter per second over the range")).toBeVisible();
  await operations(checked).nth(1).click();
  await expect(open(checked)).toHaveCount(0);
  await checked.reload();
  await expect(operations(checked)).toHaveCount(3);
  await expect(open(checked)).toHaveCount(0);
});

test("a part opens as a graph or a table below, or replaces the query", async ({ checked, shop }) => {
  await checked.goto(link(shop, EXPR, "&g0.tab=explain&g0.operation=0.0"));
  await checked.getByRole("button", { name: "Graph of this part" }).click();
  await expect(checked.locator(".cm-content").nth(1)).toHaveText(`rate(${SELECTOR})`);
  await expect(checked.locator(".u-over")).toBeVisible();
  await expect(operations(checked)).toHaveCount(3);
  await checked.goto(link(shop, EXPR, "&g0.tab=explain&g0.operation=0.0.0"));
  await expect(checked.getByRole("button", { name: "Graph of this part" })).toHaveCount(0);
  await checked.getByRole("button", { name: "Table of this part" }).click();
  await expect(checked.getByRole("table", { name: "Values" })).toBeVisible();
  await checked.getByRole("button", { name: "Continue with this part alone" }).click();
  await expect(checked.locator(".cm-content").first()).toHaveText(SELECTOR);
  await expect(operations(checked)).toHaveCount(1);
});

test("the plan alone does not run the query", async ({ checked, shop }) => {
  const asked: string[] = [];
  checked.on("request", (request) => {
    if (/query(_range)?$/.test(request.url())) asked.push(request.postData() ?? "");
  });
  await checked.goto(link(shop, EXPR, "&g0.tab=explain&g0.plan=1"));
  await expect(operations(checked)).toHaveCount(3);
  await expect(checked.getByText("The plan, without cost.")).toBeVisible();
  expect(asked.filter((body) => !body.includes("explain=true"))).toEqual([]);
  await checked.getByRole("checkbox", { name: "Plan only, without running the query" }).uncheck();
  await expect(checked.locator(".hot")).toHaveCount(1);
  expect(asked.some((body) => body.includes("analyze=true"))).toBe(true);
});

test("the plan is there while the query runs, and after it was cancelled", async ({ checked, shop }) => {
  await checked.route("**/api/v1/query_range", async (route) => {
    if ((route.request().postData() ?? "").includes("explain=true")) await route.continue();
  });
  await checked.goto(link(shop, EXPR, "&g0.tab=explain"));
  await expect(checked.getByText("The plan; the cost follows.")).toBeVisible();
  await expect(operations(checked)).toHaveCount(3);
  await checked.getByRole("button", { name: "Cancel" }).click();
  await expect(checked.getByText("The plan, without cost.")).toBeVisible();
  await expect(operations(checked)).toHaveCount(3);
  await checked.unrouteAll({ behavior: "ignoreErrors" });
});

test("hints of the server apply their change with one click", async ({ checked, shop }) => {
  await checked.goto(link(shop, 'rate(demo_requests_total{handler=~".*"}[1s])', "&g0.tab=explain"));
  await expect(checked.getByText(/The range 1s is shorter than two scrapes/)).toBeVisible();
  await checked.getByText("Why?").first().click();
  await expect(checked.getByText("docs/operations/slow-queries.md").first()).toBeVisible();
  await checked.getByRole("button", { name: "Remove the matcher" }).click();
  await expect(checked.locator(".cm-content")).toHaveText("rate(demo_requests_total[1s])");
  await checked.getByRole("button", { name: "Use [1m]" }).click();
  await expect(checked.locator(".cm-content")).toHaveText("rate(demo_requests_total[1m])");
  await expect(checked.locator(".notice")).toHaveCount(0);
});

test("a join that drops series opens both sides; kinds of hints are switched off and on", async ({ checked, shop }) => {
  await checked.goto(link(shop, "demo_temperature / demo_requests_total", "&g0.tab=explain"));
  const drops = checked.locator(".notice").filter({ hasText: "No series on the other side has the same labels" });
  await expect(drops).toBeVisible();
  await checked.locator(".notice").filter({ hasText: "is a counter" }).getByRole("button", { name: "Do not show again" }).click();
  await expect(checked.locator(".notice")).toHaveCount(1);
  await drops.getByRole("button", { name: "Show both sides" }).click();
  await expect(checked.locator(".cm-content").nth(1)).toHaveText("demo_temperature");
  await expect(checked.locator(".cm-content").nth(2)).toHaveText("demo_requests_total");
  await checked.getByRole("button", { name: "Settings" }).click();
  await checked.getByText("Hints on queries").click();
  const kind = checked.getByRole("checkbox", { name: "Counter without rate" });
  await expect(kind).not.toBeChecked();
  await kind.check();
  await expect(checked.locator(".notice").filter({ hasText: "is a counter" })).not.toHaveCount(0);
});
