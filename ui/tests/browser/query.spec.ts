// The query page: editor, views, states, cost and patience.

import type { Page } from "@playwright/test";
import { type Firn, pause } from "./fixtures/firn";
import { expect, test } from "./fixtures/test";

const RANGE = "range=1h";

function link(firn: Firn, expr: string, more = ""): string {
  return `${firn.url}query?g0.expr=${encodeURIComponent(expr)}&${RANGE}${more}`;
}

const editor = (page: Page, nth = 0) => page.locator(".cm-content").nth(nth);
const stats = (page: Page) => page.locator(".stats").first();
const completions = (page: Page) => page.locator(".cm-tooltip-autocomplete:not(.cm-tooltip-autocomplete-disabled) li");

async function write(page: Page, text: string): Promise<void> {
  await editor(page).click();
  await page.keyboard.press("Control+A");
  await page.keyboard.type(text);
}

// Moves the pointer over the lines of a graph.
async function pointAt(page: Page, x: number, y: number): Promise<void> {
  const box = await page.locator(".u-over").first().boundingBox();
  if (!box) throw new Error("no graph");
  await page.mouse.move(box.x + box.width * x, box.y + box.height * y, { steps: 3 });
}

test.describe("editor", () => {
  test("a finished word runs at the first Enter, an unfinished one is completed", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}query`);
    await write(checked, "up");
    await expect(completions(checked).filter({ hasText: /^up/ }).first()).toBeVisible();
    await checked.keyboard.press("Enter");
    await expect(stats(checked)).toContainText("series");
    await expect(checked).toHaveURL(/g0\.expr=up&/);
    await write(checked, "demo_tempera");
    await expect(completions(checked).first()).toContainText("demo_temperature");
    await checked.keyboard.press("Enter");
    await expect(editor(checked)).toHaveText("demo_temperature");
    await checked.keyboard.press("Enter");
    await expect(checked).toHaveURL(/g0\.expr=demo_temperature/);
  });

  test("completion shows signature and help, and only names of the server", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}query`);
    await write(checked, "rat");
    await expect(completions(checked).first()).toContainText("rate(v range-vector) – Growth of a counter per second");
    await write(checked, "limit_r");
    await pause(300);
    await expect(completions(checked).filter({ hasText: "limit_ratio" })).toHaveCount(0);
    await write(checked, "demo_requests_total{");
    await expect(completions(checked)).toHaveText([/^handler/, /^namespace/]);
    await checked.keyboard.type('handler="/h');
    await expect(completions(checked).first()).toHaveText("/h0");
    await write(checked, "rate(demo_requests_total[");
    await expect(completions(checked).first()).toContainText("1m");
    await write(checked, "sum(demo_temperature) by (");
    await expect(completions(checked)).toHaveText([/^room/]);
  });

  test("is styled under the content policy, by sheets of its shadow root", async ({ checked, shop }) => {
    await checked.goto(link(shop, 'rate(demo_requests_total{handler="/h1"}[5m])'));
    const colours = await editor(checked).evaluate((content) =>
      [...content.querySelectorAll("span")].map((span) => getComputedStyle(span).color),
    );
    expect(new Set(colours).size).toBeGreaterThan(2);
    expect(await editor(checked).evaluate((content) => getComputedStyle(content).whiteSpace)).toBe("break-spaces");
  });

  test("Shift-Enter makes a line, Format writes the expression anew, and Undo takes it back", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}query`);
    await write(checked, "sum(up)");
    await checked.keyboard.press("Shift+Enter");
    await checked.keyboard.type("by (job)");
    await expect(editor(checked).locator(".cm-line")).toHaveCount(2);
    await checked.getByRole("button", { name: "More for query A" }).click();
    await checked.getByRole("button", { name: "Format" }).click();
    await expect(editor(checked)).toHaveText("sum by (job) (up)");
    await editor(checked).click();
    await checked.keyboard.press("Control+Z");
    await expect(editor(checked).locator(".cm-line")).toHaveCount(2);
  });
});

test.describe("mistakes", () => {
  test.use({ allowed: /Failed to load resource/ });

  test("an error of the server is underlined at its place, and the last answer stays", async ({ checked, shop }) => {
    await checked.goto(link(shop, "up"));
    await expect(stats(checked)).toContainText("2 series");
    await write(checked, "rate(up)");
    await checked.keyboard.press("Control+Enter");
    await expect(checked.getByRole("alert")).toContainText('expected type range vector in call to function "rate"');
    await expect(checked.locator(".cm-lintRange-error")).toHaveText("up");
    await expect(checked.locator(".u-over")).toBeVisible();
    await write(checked, "up");
    await checked.keyboard.press("Control+Enter");
    await expect(checked.getByRole("alert")).toHaveCount(0);
  });

  test("a wrong step stays as typed, is marked and explained", async ({ checked, shop }) => {
    await checked.goto(link(shop, "up"));
    await expect(stats(checked)).toContainText("step 12 s");
    await checked.getByRole("button", { name: "Axis, step and time" }).click();
    const step = checked.getByRole("textbox", { name: "Step" });
    await step.fill("abc");
    await step.press("Enter");
    await expect(step).toHaveValue("abc");
    await expect(step).toHaveAttribute("aria-invalid", "true");
    await expect(checked.getByText("Expected: a duration like 90s or 1h30m")).toBeVisible();
    await expect(stats(checked)).toContainText("step 12 s");
    await step.fill("1m");
    await step.press("Enter");
    await expect(stats(checked)).toContainText("step 1 min");
  });

  test("too many points: the smallest step that works is one click", async ({ checked, shop }) => {
    await checked.goto(`${link(shop, "up", "&g0.step_input=1").replace(RANGE, "range=1d")}`);
    await expect(checked.getByRole("alert")).toContainText("exceeded maximum resolution of 11,000 points");
    await checked.getByRole("button", { name: "Use step 8 s" }).click();
    await expect(stats(checked)).toContainText("step 8 s");
  });

  test("a proxy's page and a lost connection are shown in words", async ({ checked, shop }) => {
    await checked.goto(link(shop, "up"));
    await expect(stats(checked)).toContainText("series");
    await checked.route("**/api/v1/query_range", (route) =>
      route.fulfill({ status: 502, contentType: "text/html", body: "<html><body><h1>Bad Gateway</h1></body></html>" }),
    );
    await checked.getByRole("button", { name: "Run" }).click();
    await expect(checked.getByRole("alert").first()).toContainText("No answer from Firn");
    await checked.unroute("**/api/v1/query_range");
    await checked.route("**/api/v1/query_range", (route) => route.abort());
    await checked.getByRole("button", { name: "Run" }).click();
    await expect(checked.getByRole("alert").filter({ hasText: "No connection to Firn" }).first()).toBeVisible();
    await expect(checked.locator(".u-over")).toBeVisible();
    await checked.unroute("**/api/v1/query_range");
    await checked.getByRole("button", { name: "Run" }).click();
    await expect(checked.getByRole("alert")).toHaveCount(0);
  });
});

test.describe("answers without series", () => {
  test("a metric that ended: its newest sample, and the way there", async ({ checked, shop }) => {
    const at = Date.now() - 40 * 60_000;
    await shop.write(`ended_metric{job="old"} 1 ${at}\n`);
    await checked.goto(link(shop, "ended_metric").replace(RANGE, "range=10m"));
    await expect(checked.getByText("No data in this range.")).toBeVisible();
    await expect(checked.getByText(/is from 40 min( \d+ s)? ago/)).toBeVisible();
    await checked.getByRole("button", { name: "Go there" }).click();
    await expect(stats(checked)).toContainText("1 series");
  });

  test("an unknown metric and an unknown value: the nearest ones", async ({ checked, shop }) => {
    await checked.goto(link(shop, "demo_temprature"));
    await checked.getByRole("button", { name: "demo_temperature" }).click();
    await expect(stats(checked)).toContainText("1 series");
    await checked.goto(link(shop, 'demo_requests_total{handler="/h11"}'));
    await expect(checked.getByText('No series has handler="/h11".')).toBeVisible();
    await checked.getByRole("button", { name: "/h1", exact: true }).click();
    await expect(stats(checked)).toContainText("1 series");
  });

  test("a range shorter than two samples: their distance, and a range that works", async ({ checked, shop }) => {
    await checked.goto(link(shop, "rate(demo_requests_total[1s])"));
    await expect(checked.getByText("The range [1s] holds fewer than two samples.")).toBeVisible();
    await expect(checked.getByText("has one every 15 s")).toBeVisible();
    await checked.getByRole("button", { name: "[1m]" }).click();
    await expect(editor(checked)).toHaveText("rate(demo_requests_total[1m])");
    await expect(stats(checked)).toContainText("10 series");
  });

  test("a quantile of plain buckets: a note on its period, and its rate", async ({ checked, shop }) => {
    await checked.goto(link(shop, "histogram_quantile(0.9, demo_latency_seconds_bucket)"));
    await expect(checked.getByText("This quantile is over all observations since each process started.")).toBeVisible();
    await checked.getByRole("button", { name: "Use rate(…[5m])" }).click();
    await expect(editor(checked)).toHaveText("histogram_quantile(0.9, rate(demo_latency_seconds_bucket[5m]))");
  });

  test("an expression that drops all series: a note", async ({ checked, shop }) => {
    await checked.goto(link(shop, "up > 5"));
    await expect(checked.getByText("The expression leaves nothing.")).toBeVisible();
  });
});

test.describe("graph", () => {
  test("reads the line under the pointer, and brings it forward in the legend", async ({ checked, shop }) => {
    await checked.goto(link(shop, "rate(demo_requests_total[5m])"));
    await expect(stats(checked)).toContainText("10 series");
    await pointAt(checked, 0.5, 0.05);
    await expect(checked.locator(".tip .nearest")).toContainText("/h9");
    await expect(checked.locator(".tip .nearest")).toContainText("/s");
    await expect(checked.locator("tr.on")).toContainText("/h9");
    // The picture has lines: more colours than those of the grid and letters.
    const coloured = await checked.locator(".uplot canvas:not(.overlay)").evaluate((node) => {
      const canvas = node as HTMLCanvasElement;
      const { data } = (canvas.getContext("2d") as CanvasRenderingContext2D).getImageData(0, 0, canvas.width, canvas.height);
      let count = 0;
      for (let i = 0; i < data.length; i += 4) {
        const rgb = [data[i] ?? 0, data[i + 1] ?? 0, data[i + 2] ?? 0];
        if ((data[i + 3] ?? 0) > 128 && Math.max(...rgb) - Math.min(...rgb) > 60) count += 1;
      }
      return count;
    });
    expect(coloured).toBeGreaterThan(1000);
  });

  test("dragging zooms, Escape and Back go one zoom back", async ({ checked, shop }) => {
    await checked.goto(link(shop, "demo_temperature"));
    await expect(stats(checked)).toContainText("step 12 s");
    await pointAt(checked, 0.25, 0.5);
    await checked.mouse.down();
    await pointAt(checked, 0.5, 0.5);
    await checked.mouse.up();
    await expect(checked).toHaveURL(/range=1[45]m/);
    await checked.locator("[role=group].graph").focus();
    await checked.keyboard.press("+");
    await expect(checked).toHaveURL(/range=7m/);
    await checked.keyboard.press("Escape");
    await expect(checked).toHaveURL(/range=1[45]m/);
    await checked.goBack();
    await checked.goBack();
    await checked.goBack();
    await expect(checked).toHaveURL(/range=1h/);
    await expect(stats(checked)).toContainText("step 12 s");
  });

  test("Enter shows a line alone, Space hides one, and the address keeps it", async ({ checked, shop }) => {
    await checked.goto(link(shop, "rate(demo_requests_total[5m])"));
    const rows = checked.getByRole("table", { name: "Series of the graph" }).locator("button.series");
    await expect(rows).toHaveCount(10);
    await rows.nth(2).focus();
    await checked.keyboard.press("Enter");
    await expect(checked.locator("tr.off")).toHaveCount(9);
    await checked.reload();
    await expect(checked.locator("tr.off")).toHaveCount(9);
    await checked.getByRole("button", { name: "Show all 10" }).click();
    await rows.first().focus();
    await checked.keyboard.press("ArrowDown");
    await checked.keyboard.press("Space");
    await expect(checked.locator("tr.off")).toHaveText(/\/h1/);
    await checked.getByRole("button", { name: "max" }).click();
    await expect(rows.first()).toContainText("/h9");
    await expect(checked).toHaveURL(/g0\.sort=-max/);
  });

  test("values without a place on the axis are named", async ({ checked, shop }) => {
    await checked.goto(link(shop, "1/0"));
    await expect(checked.getByText("No place on the axis: +Inf at 301 steps.")).toBeVisible();
  });

  test("many series: the drawn ones, and changes that reduce them", async ({ checked, shop }) => {
    const now = Date.now();
    const lines = Array.from({ length: 1500 }, (_, i) => `many{pod="p${i}",code="c${i % 6}"} ${i} ${now}`);
    await shop.write(`${lines.join("\n")}\n`);
    await checked.goto(link(shop, "many"));
    await expect(checked.getByText("Drawn: the largest 100 of more than 1,000 series.")).toBeVisible();
    await expect(checked.getByText(/Labels that tell them apart: pod \d+, code \d/)).toBeVisible();
    await checked.getByRole("button", { name: "Sum by code" }).click();
    await expect(editor(checked)).toHaveText("sum by (code) (many)");
    await expect(stats(checked)).toContainText("6 series");
    await checked.goBack();
    await checked.getByRole("button", { name: "Show the top 10" }).click();
    await expect(stats(checked)).toContainText("10 series");
    await checked.goBack();
    await checked.getByRole("button", { name: "Draw all" }).click();
    await expect(stats(checked)).toContainText("1,500 series");
  });
});

test.describe("histograms", () => {
  test("classic buckets open as a heat map; Graph draws their lines", async ({ checked, shop }) => {
    await checked.goto(link(shop, "rate(demo_latency_seconds_bucket[5m])"));
    await expect(checked.getByRole("button", { name: "Heat map" })).toHaveAttribute("aria-pressed", "true");
    await pointAt(checked, 0.6, 0.4);
    await expect(checked.locator(".tip")).toContainText(/100 ms to 500 ms|500 ms to 1 s/);
    await expect(checked.locator(".tip")).toContainText("observations");
    await checked.getByRole("button", { name: "Graph", exact: true }).click();
    await expect(checked.getByRole("table", { name: "Series of the graph" })).toBeVisible();
    await expect(checked).toHaveURL(/g0\.display_mode=lines/);
  });

  test("native ones open as a heat map, and as bars in the table", async ({ checked, fresh, serve }) => {
    const config = `
global: {scrape_interval: 1s}
scrape_configs:
- job_name: firn
  scrape_native_histograms: true
  static_configs: [{targets: ["${new URL(fresh.url).host}"]}]
`;
    const firn = await serve({ files: { "firn.yml": config } });
    const metric = 'firn_server_request_duration_seconds{handler="query"}';
    for (let i = 0; i < 20; i += 1) await fresh.query("up");
    await firn.waitForSeries(`histogram_count(${metric}) > 0`);
    await checked.goto(link(firn, metric).replace(RANGE, "range=1m"));
    await expect(checked.getByText("These are all observations since the start of each process.")).toBeVisible();
    await expect(checked.getByText("few")).toBeVisible();
    await checked.getByRole("button", { name: "Table" }).click();
    await expect(checked.getByRole("img", { name: "Buckets" })).toBeVisible();
    await expect(checked.getByRole("row").nth(1)).toContainText(/sum .* mean/);
    await checked.getByRole("button", { name: "Graph", exact: true }).click();
    await expect(checked.getByText("A native histogram has no single value to draw.")).toBeVisible();
  });
});

test.describe("views", () => {
  test("the table has a column for each label that differs, sorts, searches and sums", async ({ checked, shop }) => {
    await checked.goto(link(shop, "demo_requests_total", "&g0.tab=table"));
    const table = checked.getByRole("table", { name: "Values" });
    await expect(table.getByRole("columnheader")).toHaveText(["handler", "value"]);
    await expect(checked.getByText('10 rows, all with demo_requests_total{namespace="shop"}')).toBeVisible();
    await table.getByRole("button", { name: "value" }).click();
    await expect(table.getByRole("row").nth(1)).toContainText("/h9");
    await expect(table.getByRole("row").nth(1)).toContainText(/[3-9]\d,\d{3}/);
    await checked.getByRole("searchbox", { name: "Search rows" }).fill("h3");
    await expect(table.getByRole("row")).toHaveCount(2);
    await expect(checked).toHaveURL(/g0\.search=h3/);
  });

  test("raw samples have times and distances", async ({ checked, shop }) => {
    await checked.goto(link(shop, "demo_temperature", "&g0.tab=raw"));
    const table = checked.getByRole("table", { name: "Samples" });
    await expect(table.getByRole("row").nth(1)).toContainText("15 s");
    await expect(checked.getByText(/\d+ samples, usually every 15 s/)).toBeVisible();
  });

  test("the newest value and the answer itself", async ({ checked, shop }) => {
    await checked.goto(link(shop, "demo_temperature", "&g0.tab=value"));
    await expect(checked.locator(".tile .value")).toHaveText(/^(19|2[01])/);
    await checked.getByRole("button", { name: "JSON" }).click();
    await expect(checked.getByText('resultType: "vector"')).toBeVisible();
    await expect(checked.getByRole("button", { name: "Copy JSON" })).toBeVisible();
  });

  test("labels with markup stay text", async ({ checked, shop }) => {
    for (const tab of ["graph", "table", "raw", "value", "json"]) {
      await checked.goto(link(shop, "hostile", `&g0.tab=${tab}`));
      await expect(checked.locator("main")).toContainText("onerror");
    }
    expect(await checked.evaluate(() => "hacked" in window)).toBe(false);
    expect(await checked.locator("main img").count()).toBe(0);
  });
});

test.describe("addresses", () => {
  test("links of Prometheus open the same thing, and queries survive a walk to another page", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}graph?g0.expr=up&g0.tab=1&g1.expr=vector(7)&g1.tab=0&g1.range_input=2h`);
    await expect(checked.getByRole("table", { name: "Values" })).toBeVisible();
    await expect(editor(checked, 1)).toHaveText("vector(7)");
    await checked.getByRole("link", { name: "Targets" }).click();
    await expect(checked.getByRole("heading", { level: 1 })).toHaveText("Targets");
    await checked.getByRole("link", { name: "Query", exact: true }).click();
    await expect(editor(checked, 1)).toHaveText("vector(7)");
  });

  test("panels are added, copied, hidden and removed", async ({ checked, shop }) => {
    await checked.goto(link(shop, "up"));
    await checked.getByRole("button", { name: "+ Add query" }).click();
    await expect(editor(checked, 1)).toBeVisible();
    await checked.getByRole("button", { name: "More for query A" }).click();
    await checked.getByRole("button", { name: "Copy below" }).click();
    await expect(editor(checked, 1)).toHaveText("up");
    await checked.getByRole("button", { name: "More for query B" }).click();
    await checked.getByRole("button", { name: "Hide" }).click();
    await expect(checked.locator(".stats")).toHaveCount(2);
    await checked.getByRole("button", { name: "More for query B" }).click();
    await checked.getByRole("button", { name: "Remove" }).click();
    await expect(checked.locator(".cm-content")).toHaveCount(2);
  });

  test("the history is reached, searched and left by keys", async ({ checked, shop }) => {
    await checked.goto(link(shop, "up"));
    await write(checked, "demo_temperature");
    await checked.keyboard.press("Control+Enter");
    await expect(checked).toHaveURL(/demo_temperature/);
    const button = checked.getByRole("button", { name: "History and saved queries" });
    await button.focus();
    await checked.keyboard.press("Enter");
    const search = checked.getByRole("searchbox", { name: "Search queries" });
    await expect(search).toBeVisible();
    await checked.keyboard.press("Escape");
    await expect(search).toBeHidden();
    await button.click();
    await search.fill("temper");
    await checked.getByRole("button", { name: "demo_temperature", exact: true }).click();
    await expect(search).toBeHidden();
    await expect(editor(checked)).toHaveText("demo_temperature");
  });
});

test.describe("patience", () => {
  const SLOW = "max_over_time(sum_over_time(slow[1h:1s])[1h:1s])";

  async function running(firn: Firn): Promise<{ query: string; queryId?: string }[]> {
    const response = await fetch(`${firn.url}api/v1/status/active_queries`);
    return ((await response.json()) as { data: { queries: { query: string; queryId?: string }[] } }).data.queries;
  }

  test("a slow query shows its time and progress, and Cancel ends it on the server", async ({ checked, shop }) => {
    const now = Date.now();
    const lines = Array.from({ length: 1500 }, (_, i) => `slow{n="${i}"} 1 ${now - 3_000_000}\nslow{n="${i}"} 1 ${now}`);
    await shop.write(`${lines.join("\n")}\n`);
    await checked.goto(link(shop, "up"));
    await expect(stats(checked)).toContainText("series");
    await write(checked, SLOW);
    await checked.keyboard.press("Control+Enter");
    const cancel = checked.getByRole("button", { name: "Cancel" });
    await expect(cancel).toBeVisible();
    await expect(stats(checked)).toContainText(/\d\.\d s · evaluates · [\d,]+ samples? read so far/);
    await expect(checked.locator(".u-over")).toBeVisible();
    expect((await running(shop)).some(({ query }) => query === SLOW)).toBe(true);
    await editor(checked).click();
    await checked.keyboard.press("Escape");
    await expect(stats(checked)).toContainText("Cancelled.");
    await expect(checked.getByRole("button", { name: "Run" })).toBeVisible();
    await expect.poll(async () => (await running(shop)).length).toBe(0);
  });

  test("auto-refresh follows the present and waits for the answer under way", async ({ checked, shop }) => {
    let requests = 0;
    await checked.route("**/api/v1/query_range", async (route) => {
      requests += 1;
      await pause(2500);
      await route.continue();
    });
    await checked.goto(link(shop, "up", "&refresh=2s"));
    await expect.poll(() => requests, { timeout: 20_000 }).toBeGreaterThan(2);
    await expect(stats(checked)).toContainText("series");
    await checked.unrouteAll({ behavior: "ignoreErrors" });
  });
});
