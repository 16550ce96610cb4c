// Pages in other conditions: colours of the system, and 200 % zoom.

import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures/test";

const PATHS = [
  "", "query?g0.expr=demo_requests_total&range=20m&g0.compare=30m", "query?g0.expr=demo_latency_seconds_bucket&range=20m&g0.compare=30m",
  "query?g0.expr=demo_requests_total&g0.tab=table", "query?g0.expr=sum(demo_temperature)&g0.tab=explain",
  "explore/metrics", "explore/cardinality?compare=1h", "explore/usage?used=all", "alerts", "rules?view=groups", "alertmanager-discovery",
  "targets", "service-discovery", "relabel?pool=shop", "relabel?of=own&configs=[]&labels=a%3D%221%22",
  "rules/test?rule=record%3A%20a%0Aexpr%3A%20demo_temperature", "discards", "queries", "tsdb-status", "config", "flags", "status",
];

async function open(page: Page, address: string): Promise<void> {
  await page.goto(address);
  await expect(page.locator("main .card, main .notice").first()).toBeVisible();
  if (address.includes("query?")) await expect(page.locator(".stats").first()).toContainText("series");
}

for (const colorScheme of ["light", "dark"] as const) {
  test(`with the colours of the system, ${colorScheme}, what is chosen differs from what is not`, async ({ checked, shop }) => {
    test.setTimeout(120_000);
    await checked.emulateMedia({ forcedColors: "active", colorScheme });
    for (const path of PATHS) {
      await open(checked, shop.url + path);
      const same = await checked.evaluate(() => {
        const look = (element: Element) => getComputedStyle(element).backgroundColor;
        const unlike = (chosen: string, other: string) => {
          const plain = document.querySelector(other);
          const all = [...document.querySelectorAll(chosen)];
          return plain === null ? [] : all.filter((element) => look(element) === look(plain)).map(({ outerHTML }) => outerHTML.slice(0, 120));
        };
        return [
          ...unlike('[aria-pressed="true"]:not(.series)', '[aria-pressed="false"]'),
          ...unlike("nav a[aria-current]", "nav a:not([aria-current])"),
        ];
      });
      expect(same, path).toEqual([]);
    }
  });
}

test("with the colours of the system, series keep theirs", async ({ checked, shop }) => {
  await checked.emulateMedia({ forcedColors: "active" });
  await open(checked, `${shop.url}query?g0.expr=demo_requests_total&range=20m`);
  await checked.locator(".u-over").hover();
  const colours = await checked.locator(".tip .swatch").evaluateAll((all) => all.map((one) => getComputedStyle(one).backgroundColor));
  expect(new Set(colours).size).toBe(Math.min(8, colours.length));
  expect(colours.length).toBeGreaterThan(3);
  const strokes = await checked.locator("button.series svg").evaluateAll((all) => all.map((one) => getComputedStyle(one).stroke));
  expect(new Set(strokes).size).toBe(8);
});

test.describe("at 200 % zoom of a window of 1280 by 800", () => {
  test.use({ viewport: { width: 640, height: 400 }, deviceScaleFactor: 2 });

  test("no page scrolls sideways, and each control can be brought into view", async ({ checked, shop }) => {
    test.setTimeout(120_000);
    for (const path of PATHS) {
      await open(checked, shop.url + path);
      expect(await checked.evaluate(() => document.documentElement.scrollWidth), path).toBeLessThanOrEqual(640);
      const cut = await checked.evaluate(() => {
        const controls = [...document.querySelectorAll<HTMLElement>("main button, main a[href], main input, main select")];
        return controls.filter((control) => {
          if (!control.checkVisibility({ visibilityProperty: true })) return false;
          control.scrollIntoView({ block: "center", inline: "center" });
          const { left, right, top, bottom } = control.getBoundingClientRect();
          return right <= 0 || left >= innerWidth || bottom <= 0 || top >= innerHeight;
        }).map(({ outerHTML }) => outerHTML.slice(0, 120));
      });
      expect(cut, path).toEqual([]);
    }
    await checked.getByRole("button", { name: "Menu" }).click();
    await checked.getByRole("navigation").getByRole("link", { name: "Targets" }).click();
    await expect(checked.getByRole("heading", { level: 1 })).toHaveText("Targets");
  });
});
