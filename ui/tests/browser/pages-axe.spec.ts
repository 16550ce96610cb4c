// axe with the rules of WCAG 2.2 AA on the pages beside the query page: light, dark, and 400 px wide. The dark
// colours change the contrast alone, and the width changes everything but the colours.

import type { RunOptions } from "axe-core";
import { RULES, violations } from "./fixtures/axe";
import { expect, test } from "./fixtures/test";

// The browser logs the answer to the rule with a mistake.
test.use({ allowed: /Failed to load resource.*400/ });

const RULE = encodeURIComponent("alert: Hot\nexpr: demo_temperature > 20\nannotations: {summary: warm}\n");
const MISTAKE = encodeURIComponent("alert: Hot\nexpr: demo_temperature >\n");
const RELABEL = encodeURIComponent("metric_relabel_configs:\n- {source_labels: [job], target_label: team}\n- {source_labels: [zone], regex: a, action: drop}\n");

const PATHS = [
  "", "alerts", "rules", "rules?view=groups&sort=-duration", "alertmanager-discovery", "targets", "service-discovery",
  "tsdb-status", "config?search=job", "flags", "status", "queries?view=top", "queries?view=history", "queries",
  "explore/metrics?search=demo_requests", "explore/cardinality?match=demo_requests_total&by=handler", "explore/cardinality?compare=1h",
  "explore/usage?used=all", "relabel?pool=shop", `relabel?of=own&configs=${RELABEL}&match=up`, "discards",
  `rules/test?rule=${RULE}&threshold=0.5`, `rules/test?rule=${MISTAKE}`,
];

const CONTRAST = "color-contrast";

interface View {
  name: string;
  colorScheme: "light" | "dark";
  width: number;
  options: RunOptions;
}

const VIEWS: View[] = [
  { name: "light", colorScheme: "light", width: 1280, options: { runOnly: RULES } },
  { name: "dark", colorScheme: "dark", width: 1280, options: { runOnly: { type: "rule", values: [CONTRAST] } } },
  {
    name: "400 px wide",
    colorScheme: "light",
    width: 400,
    options: { runOnly: RULES, rules: { [CONTRAST]: { enabled: false } } },
  },
];

for (const { name, colorScheme, width, options } of VIEWS) {
  test(`axe finds nothing on any page, ${name}`, async ({ checked, shop }) => {
    test.setTimeout(300_000);
    await checked.emulateMedia({ colorScheme });
    await checked.setViewportSize({ width, height: 800 });
    for (const path of PATHS) {
      await checked.goto(shop.url + path);
      await expect(checked.locator("main .card, main .notice").first()).toBeVisible();
      // Rows open as well.
      const details = checked.locator('main button[aria-expanded="false"]');
      if ((await details.count()) > 0) await details.first().click();
      expect(await violations(checked, options), `/${path}`).toEqual([]);
    }
  });
}
