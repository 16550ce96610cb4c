// Budgets of size and time. Each bound is twice the goal; the figures are printed.

import type { CDPSession, Page } from "@playwright/test";
import { gzipSync } from "node:zlib";
import { startProxy } from "../browser/fixtures/firn";
import { expect, test } from "../browser/fixtures/test";

function report(name: string, value: number, unit: string, goal: number): void {
  console.log(`${name}: ${Math.round(value)} ${unit} (goal ${goal} ${unit})`);
  expect(value, name).toBeLessThanOrEqual(2 * goal);
}

async function slowDown(page: Page, rate: number): Promise<CDPSession> {
  const session = await page.context().newCDPSession(page);
  await session.send("Emulation.setCPUThrottlingRate", { rate });
  return session;
}

// A range answer of `count` series with a point each 12 s of the last hour.
function matrix(count: number, points: number): string {
  const end = Math.floor(Date.now() / 1000);
  const times = Array.from({ length: points }, (_, i) => end - (points - 1 - i) * 12);
  const result = Array.from({ length: count }, (_, k) => ({
    metric: { __name__: "many", pod: `pod-${k}`, code: String(k % 6) },
    values: times.map((time, i) => [time, String(k + Math.sin(i / 10))]),
  }));
  return JSON.stringify({ status: "success", data: { resultType: "matrix", result } });
}

// Watches the main thread: the longest task since the call, in milliseconds.
async function watchTasks(page: Page): Promise<() => Promise<number>> {
  await page.evaluate(() => {
    const seen = window as unknown as { longest: number };
    seen.longest = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) seen.longest = Math.max(seen.longest, entry.duration);
    }).observe({ type: "longtask" });
  });
  return () => page.evaluate(() => (window as unknown as { longest: number }).longest);
}

test("first view: bytes of scripts and styles", async ({ page, fresh }) => {
  const sizes: Promise<number>[] = [];
  page.on("response", (response) => {
    if (/\.(js|css)$/.test(new URL(response.url()).pathname)) {
      sizes.push(response.request().sizes().then(({ responseBodySize }) => responseBodySize));
    }
  });
  await page.goto(`${fresh.url}query?g0.expr=up&g0.tab=graph`);
  await expect(page.locator("canvas").first()).toBeVisible();
  const bytes = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
  report("first view of the query page, compressed", bytes / 1000, "kB", 250);
});

test("Home: requests without those of data, and the largest paint on a slow machine", async ({ page, fresh }) => {
  let requests = 0;
  page.on("request", (request) => {
    if (!/\/api\/|\/-\//.test(request.url())) requests += 1;
  });
  await slowDown(page, 4);
  await page.addInitScript(() => {
    const seen = window as unknown as { paint: number };
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) seen.paint = entry.startTime;
    }).observe({ type: "largest-contentful-paint", buffered: true });
  });
  await page.goto(fresh.url);
  await expect(page.locator("main")).toContainText("Send your data");
  const shown = requests;
  await page.waitForTimeout(1000);
  const paint = await page.evaluate(() => (window as unknown as { paint: number }).paint);
  console.log(`requests until Home has content: ${shown} (goal 6)`);
  report("largest paint of Home, slow", paint, "ms", 1000);
});

for (const [rate, goal] of [[1, 50], [4, 200]] as const) {
  test(`graph of 100 series × 300 points, slowed ${rate} times`, async ({ page, fresh }) => {
    await page.route("**/api/v1/query_range*", (route) => route.fulfill({ contentType: "application/json", body: matrix(100, 300) }));
    await page.goto(`${fresh.url}query?g0.expr=many&g0.tab=graph&g0.range_input=1h`);
    await expect(page.locator("canvas").first()).toBeVisible();
    await page.waitForTimeout(1000);
    await slowDown(page, rate);
    // From the last byte of the answer to the last line drawn.
    const took = await page.evaluate(async () => {
      let answered = 0;
      let drawn = 0;
      const read = Response.prototype.arrayBuffer;
      Response.prototype.arrayBuffer = async function () {
        const bytes = await read.call(this);
        if (this.url.includes("query_range")) answered = performance.now();
        return bytes;
      };
      const stroke = CanvasRenderingContext2D.prototype.stroke;
      CanvasRenderingContext2D.prototype.stroke = function (...args: unknown[]) {
        (stroke as (...all: unknown[]) => void).apply(this, args);
        if (answered > 0) drawn = performance.now();
      };
      [...document.querySelectorAll("button")].find((button) => button.textContent.includes("Run"))?.click();
      await new Promise((resolve) => setTimeout(resolve, 4000));
      return drawn - answered;
    });
    expect(took).toBeGreaterThan(0);
    report(`100 series × 300 points, answer to picture, slowed ${rate} times`, took, "ms", goal);
  });
}

test("answer of 10,000 series × 300 points: no long block, and a picture with a word", async ({ page, fresh }) => {
  test.setTimeout(180_000);
  const body = gzipSync(matrix(10_000, 300), { level: 1 });
  const proxy = await startProxy(fresh, { answers: { "/api/v1/query_range": body } });
  await page.goto(`${proxy.url}query`);
  await page.waitForTimeout(1000);
  const longest = await watchTasks(page);
  const answered = page.waitForResponse((response) => response.url().includes("query_range"));
  await page.evaluate(() => { history.pushState(null, "", "query?g0.expr=many&g0.tab=graph&g0.range_input=1h"); dispatchEvent(new PopStateEvent("popstate")); });
  await (await answered).finished();
  const started = Date.now();
  await expect(page.getByText(/Drawn:/)).toBeVisible({ timeout: 60_000 });
  const took = Date.now() - started;
  await page.waitForTimeout(1000);
  const block = await longest();
  proxy.stop();
  report("10,000 series × 300 points, answer to picture", took, "ms", 3000);
  report("10,000 series × 300 points, longest block", block, "ms", 100);
});
