// Every page beside the query page while its requests fail: it shows the failure, and is never blank.

import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures/test";

// The browser itself logs each failed request.
test.use({ allowed: /Failed to load resource/ });

const PATHS = [
  "", "alerts", "rules", "alertmanager-discovery", "targets", "service-discovery", "tsdb-status", "cluster", "config",
  "flags", "status", "queries", "queries?view=top", "queries?view=history",
  "explore/metrics", "explore/cardinality", "explore/cardinality?compare=1h", "explore/usage", "relabel", "discards",
  "relabel?of=own&configs=[]&labels=a%3D%221%22", "rules/test?rule=record:%20a",
];

interface Failing {
  status: number;
  contentType?: string;
  headers?: Record<string, string>;
  body: string;
}

const json = (error: string) => JSON.stringify({ status: "error", errorType: "unavailable", error });

const FAILURES: [string, Failing, RegExp][] = [
  ["a proxy's HTML", { status: 502, contentType: "text/html", body: "<html><h1>Bad Gateway</h1></html>" }, /No answer from Firn.*502/],
  ["a missing scope", { status: 403, body: json('token "t" does not have the scope "read"') }, /Not allowed.*scope "read"/],
  ["a full server", { status: 503, headers: { "retry-after": "9" }, body: json("too many requests wait") }, /Busy.*too many requests wait.*Tries again/],
];

async function fail(page: Page, failing: Failing): Promise<void> {
  await page.route("**/api/v1/**", (route) =>
    (/status\/access|notifications/.test(route.request().url()) ? route.continue() : route.fulfill({ contentType: "application/json", ...failing })));
}

for (const [name, failing, text] of FAILURES) {
  test(`each page shows ${name} in words`, async ({ checked, shop }) => {
    test.setTimeout(120_000);
    await fail(checked, failing);
    for (const path of PATHS) {
      await checked.goto(shop.url + path);
      await expect(checked.locator("main"), `/${path}`).toContainText(text);
      expect(await checked.locator("main h1").count(), `/${path}`).toBe(0);
    }
  });
}

test("the last content stays below a failure, with its age", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}targets?refresh=1s`);
  await expect(checked.locator("main")).toContainText("127.0.0.1:1/metrics");
  await fail(checked, { status: 502, contentType: "text/html", body: "<p>gone</p>" });
  await expect(checked.locator("main")).toContainText("No answer from Firn");
  await expect(checked.locator("main")).toContainText(/As of .*(ago|now)/);
  await expect(checked.locator("main")).toContainText("127.0.0.1:1/metrics");
});

test("pages work without storage in the browser", async ({ checked, shop }) => {
  await checked.addInitScript(() => {
    for (const name of ["localStorage", "sessionStorage"]) {
      Object.defineProperty(window, name, {
        get: () => {
          throw new DOMException("denied", "SecurityError");
        },
      });
    }
  });
  for (const path of ["", "targets", "status"]) {
    await checked.goto(shop.url + path);
    await expect(checked.locator("main .card").first()).toBeVisible();
  }
});
