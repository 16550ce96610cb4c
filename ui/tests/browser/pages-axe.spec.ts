// axe with the rules of WCAG 2.2 AA on the pages beside the query page: light, dark, and 400 px wide.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { AxeResults } from "axe-core";
import { expect, test } from "./fixtures/test";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

const PATHS = [
  "", "alerts", "rules", "rules?view=groups&sort=-duration", "alertmanager-discovery", "targets", "service-discovery",
  "tsdb-status", "config?search=job", "flags", "status", "queries?view=top", "queries?view=history", "queries",
  "explore/metrics?search=demo_requests", "explore/cardinality?match=demo_requests_total&by=handler", "explore/cardinality?compare=1h",
  "explore/usage?used=all", "relabel?pool=shop", "discards",
];

const VIEWS = [
  { name: "light", colorScheme: "light", width: 1280 },
  { name: "dark", colorScheme: "dark", width: 1280 },
  { name: "400 px wide", colorScheme: "light", width: 400 },
] as const;

for (const { name, colorScheme, width } of VIEWS) {
  test(`axe finds nothing on any page, ${name}`, async ({ checked, shop }) => {
    test.setTimeout(180_000);
    await checked.emulateMedia({ colorScheme });
    await checked.setViewportSize({ width, height: 800 });
    for (const path of PATHS) {
      await checked.goto(shop.url + path);
      await expect(checked.locator("main .card, main .notice").first()).toBeVisible();
      // Rows open as well.
      const details = checked.locator('main button[aria-expanded="false"]');
      if ((await details.count()) > 0) await details.first().click();
      await checked.evaluate(AXE);
      const { violations } = await checked.evaluate(
        (tags) => (window as unknown as { axe: { run: (options: object) => Promise<AxeResults> } }).axe.run({ runOnly: tags }),
        TAGS,
      );
      const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 200)).slice(0, 3).join(" | ")}`);
      expect(found, `/${path}`).toEqual([]);
    }
  });
}
