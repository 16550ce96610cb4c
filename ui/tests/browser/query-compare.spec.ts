// Comparison: of a query with an earlier time, as lines, legend, table and heat map; of two queries on one graph.

import type { Page } from "@playwright/test";
import type { Firn } from "./fixtures/firn";
import { expect, test } from "./fixtures/test";

// The data begins an hour ago: thirty minutes before the last twenty minutes there is some.
const link = (firn: Firn, expr: string, more = ""): string =>
  `${firn.url}query?g0.expr=${encodeURIComponent(expr)}&range=20m${more}`;

const chosen = (page: Page) => page.getByRole("combobox", { name: "Compare with" });
const other = (page: Page) => page.getByLabel("Compare with: time before, or time");
const legend = (page: Page) => page.getByRole("table", { name: "Series of the graph" });
const compared = (page: Page) => page.getByText(/^Compared with/);

// Number of pixels of the graph that something is drawn on.
const ink = (page: Page): Promise<number> =>
  page.locator(".plot canvas").first().evaluate((canvas: HTMLCanvasElement) => {
    const pixels = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
    let count = 0;
    for (let i = 3; i < pixels.length; i += 4) if ((pixels[i] ?? 0) > 0) count += 1;
    return count;
  });

test("by keyboard: an earlier time, and the largest change first; both are in the address", async ({ checked, shop }) => {
  await checked.goto(link(shop, "demo_requests_total"));
  await expect(legend(checked)).toBeVisible();
  await chosen(checked).focus();
  await checked.keyboard.press("End");
  await checked.keyboard.press("Tab");
  await expect(other(checked)).toBeFocused();
  await checked.keyboard.type("30m");
  await checked.keyboard.press("Enter");
  await expect(checked).toHaveURL(/g0\.compare=30m/);
  await expect(compared(checked)).toContainText("Compared with 30 min before (dashed)");
  await expect(legend(checked).getByRole("columnheader")).toHaveText(["Series", "last", "mean", "before", "change"]);
  await checked.keyboard.press("Tab");
  await checked.keyboard.press("Enter");
  await expect(checked).toHaveURL(/g0\.sort=-change/);
  const first = legend(checked).locator("tbody tr").first();
  for (const _ of ["at once", "from the address"]) {
    await expect(first).toContainText("/h9");
    await expect(first.locator("[data-head=change]")).toHaveText(/^\+1[78](\.\d)?k, \+\d+(\.\d+)? %$/);
    await expect(checked.getByRole("group", { name: /Largest change: \/h9, \+1[78](\.\d)?k/ })).toBeVisible();
    await checked.reload();
  }
  await chosen(checked).selectOption("nothing");
  await expect(checked).not.toHaveURL(/compare|sort/);
  await expect(legend(checked).getByRole("columnheader", { name: "change" })).toHaveCount(0);
});

test("earlier lines are on the same axis, and the tooltip has both values", async ({ checked, shop }) => {
  const expr = 'demo_requests_total{handler=~"/h[89]"}';
  await checked.goto(link(shop, expr, "&g0.y_axis_min=0&g0.y_axis_max=40000"));
  await expect(legend(checked)).toBeVisible();
  const alone = await ink(checked);
  await checked.goto(link(shop, expr, "&g0.y_axis_min=0&g0.y_axis_max=40000&g0.compare=30m"));
  await expect(legend(checked).getByRole("columnheader", { name: "change" })).toBeVisible();
  await expect.poll(() => ink(checked)).toBeGreaterThan(alone + 500);
  await checked.locator(".u-over").first().hover();
  await expect(checked.locator(".tip .nearest")).toContainText(/before [\d.]+k, \+[\d.]+k, \+[\d.]+ %/);
});

test("any time, typed in the zone of the page", async ({ checked, shop }) => {
  await checked.goto(link(shop, "demo_requests_total", "&zone=Asia/Tokyo"));
  await chosen(checked).selectOption("other…");
  const utc = new Date(Date.now() - 30 * 60_000).toISOString().slice(0, 19).replace("T", " ");
  const tokyo = new Date(Date.parse(`${utc}Z`) + 9 * 3_600_000).toISOString().slice(0, 19).replace("T", " ");
  await other(checked).fill(tokyo);
  await other(checked).press("Enter");
  await expect.poll(() => new URL(checked.url()).searchParams.get("g0.compare")).toBe(utc);
  await expect(other(checked)).toHaveValue(tokyo);
  await expect(compared(checked)).toContainText(`to ${tokyo}`);
});

test("wrong text stays, is marked and explained; a time without data is named", async ({ checked, shop }) => {
  await checked.goto(link(shop, "demo_requests_total", "&g0.compare=yesterday"));
  await expect(other(checked)).toHaveValue("yesterday");
  await expect(other(checked)).toHaveAttribute("aria-invalid", "true");
  await expect(checked.getByRole("alert").filter({ hasText: "yesterday" })).toContainText("expected a duration like 90s or 1h30m, or a time");
  await expect(legend(checked)).toBeVisible();
  await chosen(checked).selectOption("1 week before");
  await expect(checked.getByText(/^No data 7 d before/)).toBeVisible();
  await expect(legend(checked).locator("[data-head=change]").first()).toHaveText("new");
});

test("a table has the earlier value and the change of each row", async ({ checked, shop }) => {
  await checked.goto(link(shop, '{__name__=~"demo_requests_total|hostile"}', "&g0.tab=table&g0.compare=30m&g0.sort=-change"));
  const rows = checked.getByRole("table", { name: "Values" }).locator("tbody tr");
  await expect(rows.first()).toContainText("/h9");
  await expect(rows.first().locator("[data-head=change]")).toHaveText(/^\+1[78](\.\d)?k, \+/);
  await expect(rows.filter({ hasText: "hostile" }).locator("[data-head=change]")).toHaveText("new");
  await expect(rows.filter({ hasText: "hostile" }).locator("[data-head=before]")).toHaveText("–");
});

test("a heat map shows the difference in two hues, or the present alone", async ({ checked, shop }) => {
  await checked.goto(link(shop, "demo_latency_seconds_bucket", "&g0.compare=30m"));
  const map = checked.getByRole("group", { name: /^Heat map/ });
  await expect(map).toHaveAccessibleName(/^Heat map of the difference/);
  await expect(checked.locator(".scale")).toContainText("fewer, -");
  await expect(checked.getByRole("button", { name: "Largest change first" })).toHaveCount(0);
  await map.locator(".u-over").hover();
  await expect(checked.locator(".tip")).toContainText(/observations, before [\d.]+k? \+600, \+[\d.]+ %/);
  await checked.getByRole("checkbox", { name: "p50, p90, p99" }).check();
  await checked.getByRole("checkbox", { name: "Difference" }).uncheck();
  await expect(map).toHaveAccessibleName(/^Heat map of 1 histogram/);
  await expect(checked.locator(".scale")).toContainText("few");
});

test("a failure of the earlier query leaves the present one, and is tried again by a click", async ({ page, shop }) => {
  let isBroken = true;
  let asked = 0;
  await page.route("**/api/v1/query_range", async (route) => {
    asked += 1;
    if (asked > 1 && isBroken) await route.fulfill({ status: 503, contentType: "application/json", body: '{"status":"error","errorType":"timeout","error":"busy for a test"}' });
    else await route.continue();
  });
  await page.goto(link(shop, "demo_requests_total", "&g0.compare=30m"));
  await expect(page.getByRole("alert").filter({ hasText: "busy for a test" })).toBeVisible();
  await expect(legend(page)).toBeVisible();
  isBroken = false;
  await page.getByRole("button", { name: "Retry" }).click();
  await expect(compared(page)).toContainText("30 min before");
});

test("the earlier query is cancelled with the button of the present one", async ({ checked, shop }) => {
  let asked = 0;
  await checked.route("**/api/v1/query_range", async (route) => {
    asked += 1;
    // The earlier query gets no answer.
    if (asked === 1) await route.continue();
  });
  await checked.goto(link(shop, "demo_requests_total", "&g0.compare=30m"));
  await expect(compared(checked)).toContainText("on its way");
  await expect(legend(checked)).toBeVisible();
  await checked.getByRole("button", { name: "Cancel" }).click();
  await expect(compared(checked)).toContainText("cancelled");
  await expect(checked.getByRole("button", { name: "Run" })).toBeVisible();
  await checked.unrouteAll({ behavior: "ignoreErrors" });
});

test("two queries share one graph, with a second axis for another unit", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}query?range=1h&g0.expr=demo_temperature&g1.expr=rate(demo_requests_total[5m])&g1.unit=bytes&g2.expr=vector(3)&g2.unit=seconds`);
  await expect(checked.locator(".u-over")).toHaveCount(3);
  const panel = (letter: string) => checked.getByRole("region", { name: `Query ${letter}` });
  const graph = panel("A").getByRole("group", { name: /^Graph of 1 series/ });
  const axes = () => graph.locator(".u-axis").count();
  expect(await axes()).toBe(2);
  await panel("B").getByRole("combobox", { name: "Graph" }).selectOption("On the graph of A");
  await expect(checked).toHaveURL(/g1\.on=0/);
  await expect(checked.locator(".u-over")).toHaveCount(2);
  await expect(panel("B")).toContainText("Drawn on the graph of query A.");
  await expect(panel("A")).toContainText("With the lines of query B: plain numbers on the left, bytes on the right.");
  await expect(panel("A").getByRole("group", { name: /With 10 series of query B\./ })).toBeVisible();
  expect(await axes()).toBe(3);
  // No colour of B is that of A, and each legend has its own series.
  const [a, b] = await Promise.all(["A", "B"].map((letter) => panel(letter).locator("button.series").evaluateAll((rows) => rows.map((row) => row.firstElementChild?.outerHTML))));
  expect(new Set([...(a ?? []), ...(b ?? [])]).size).toBe(11);
  // The tooltip reads both, each in its unit.
  const plot = panel("A").locator(".u-over");
  const box = await plot.boundingBox();
  await checked.mouse.move((box?.x ?? 0) + (box?.width ?? 0) / 2, (box?.y ?? 0) + 5);
  await checked.mouse.move((box?.x ?? 0) + (box?.width ?? 0) / 2, (box?.y ?? 0) + 9);
  await expect(panel("A").locator(".tip")).toContainText(/B\/h9[\d.]+ B/);
  await expect(panel("A").locator(".tip")).toContainText(/Ademo_temperature\{room="a"\}\d/);
  // A series that is hidden in B is gone from the graph.
  await panel("B").locator("button.series").first().focus();
  await checked.keyboard.press(" ");
  await expect(panel("A").getByRole("group", { name: /With 9 series of query B\./ })).toBeVisible();
  // A third unit has no axis; the link opens the same graphs.
  await panel("C").getByRole("combobox", { name: "Graph" }).selectOption("On the graph of A");
  await expect(panel("C")).toContainText("this unit is a third one");
  await checked.reload();
  await expect(panel("A").getByRole("group", { name: /With 9 series of query B\./ })).toBeVisible();
  await expect(checked.locator(".u-over")).toHaveCount(2);
  // A stack has the own lines alone, and a table in place of the graph gives the others theirs back.
  await panel("A").getByRole("combobox", { name: "Style" }).selectOption("Stacked");
  await expect(panel("A").getByRole("group", { name: /With 9 series of query B\./ })).toBeVisible();
  await panel("A").getByRole("button", { name: "Table" }).click();
  await expect(panel("B").locator(".u-over")).toBeVisible();
  await panel("B").getByRole("combobox", { name: "Unit" }).selectOption("plain");
  await panel("A").getByRole("button", { name: "Graph" }).click();
  await expect(panel("A")).toContainText("With the lines of query B, C: plain numbers on the left, seconds on the right.");
});
