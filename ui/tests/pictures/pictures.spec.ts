// The pictures of the documents: `npm run pictures` writes them to docs/images.

import { fileURLToPath } from "node:url";
import { expect, test } from "../browser/fixtures/test";
import { fillPictures } from "./data";

const FOLDER = fileURLToPath(new URL("../../../docs/images/", import.meta.url));

const RATE = "sum by (handler) (rate(shop_requests_total[2m]))";

const PICTURES: [string, string, Record<string, string>, "light" | "dark", number][] = [
  ["page", "query", { "g0.expr": RATE, "g0.tab": "graph", range: "1h" }, "light", 1280],
  ["page-heat-map", "query", { "g0.expr": "rate(shop_latency_seconds_bucket[1m])", "g0.tab": "heatmap", range: "1h" }, "dark", 1280],
  ["page-phone", "query", { "g0.expr": RATE, "g0.tab": "graph", range: "1h" }, "light", 400],
  ["page-home", "", {}, "light", 1280],
  ["page-alerts", "alerts", {}, "light", 1280],
  ["page-targets", "targets", {}, "dark", 1280],
];

test.beforeAll(async ({ shop }) => {
  await fillPictures(shop);
});

for (const [name, path, params, colorScheme, width] of PICTURES) {
  test(name, async ({ checked, shop }) => {
    await checked.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await checked.setViewportSize({ width, height: 720 });
    await checked.goto(`${shop.url}${path}?${new URLSearchParams(params).toString()}`);
    await expect(checked.locator("main")).not.toBeEmpty();
    await expect(checked.locator("[aria-busy=true]")).toHaveCount(0);
    await checked.waitForTimeout(2500);
    await checked.screenshot({ path: `${FOLDER}${name}.png` });
  });
}
