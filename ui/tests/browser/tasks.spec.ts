// Common tasks, and the number of their steps: docs/page.md lists both, and these tests hold it to them.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Locator, Page } from "@playwright/test";
import { main } from "./fixtures/answer";
import { startExporter } from "./fixtures/data";
import type { Firn } from "./fixtures/firn";
import { expect, test } from "./fixtures/test";

const DOCUMENT = readFileSync(new URL("../../../docs/page.md", import.meta.url), "utf8");
const ROW = /^\| (.+?) \| (Home|query) \| (\d+) \|/gm;
const DOCUMENTED = new Map([...DOCUMENT.matchAll(ROW)].map(([, task, from, steps]) => [task ?? "", { from, steps: Number(steps) }]));

// The steps of a section, and the names in them.
const section = (title: string): string => DOCUMENT.split(`\n## ${title}\n`)[1]?.split("\n## ")[0] ?? "";
const names = (title: string): string[] => [...section(title).matchAll(/"([^"]+)"/g)].map(([, name]) => name ?? "");

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
// Takes longer than its reader needs to stop it.
const SLOW = ["3600s", "3599s", "3598s", "3597s"].map((range) => `max_over_time(sum_over_time(busy[${range}:1s])[${range}:1s])`).join(" + ");

// Counts clicks and keys.
class Steps {
  count = 0;

  constructor(readonly page: Page) {}

  async click(target: Locator): Promise<void> {
    this.count += 1;
    await target.click();
  }

  async press(key: string): Promise<void> {
    this.count += 1;
    await this.page.keyboard.press(key);
  }

  // Opens a list and chooses.
  async choose(list: Locator, option: string): Promise<void> {
    this.count += 2;
    await list.selectOption(option);
  }

  open(title: string): Promise<void> {
    return this.click(this.page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: title }));
  }
}

interface Walk {
  page: Page;
  steps: Steps;
}

interface Task {
  // Query parameters of the query page; undefined for Home.
  query?: string;
  walk: (walk: Walk) => Promise<void>;
}

const table = (page: Page, name: string | RegExp) => main(page).getByRole("table", { name });
const button = (page: Page, name: string | RegExp) => main(page).getByRole("button", { name });

// On a server with a past: a metric that grew, a target that lost samples, rules in all states.
const TASKS: Record<string, Task> = {
  "Why is this query slow?": {
    query: "g0.expr=sum(rate(wait_seconds_bucket[5m]))",
    walk: async ({ page, steps }) => {
      await steps.press("e");
      await expect(page.locator(".hot")).toHaveCount(1);
      await expect(main(page)).toContainText(/of processor time, [\d,]+ samples?/);
    },
  },
  "Which metric has the most series?": {
    walk: async ({ page, steps }) => {
      await steps.open("Cardinality");
      await expect(main(page).locator("section").filter({ hasText: "Series by metric" }).getByRole("listitem").first()).toContainText("grown");
    },
  },
  "Which label makes them?": {
    walk: async ({ page, steps }) => {
      await steps.open("Cardinality");
      await steps.click(button(page, "grown").first());
      await expect(main(page)).toContainText("Series by id");
      await expect(main(page)).toContainText("70 series, 70 values of id");
    },
  },
  "Which metric grew since yesterday?": {
    walk: async ({ page, steps }) => {
      await steps.open("Cardinality");
      await steps.click(button(page, "1 d before"));
      await expect(table(page, "metric").locator("tbody").first()).toContainText(/grown.*7.*70.*\+63.*grew/);
    },
  },
  "Which target lost samples?": {
    walk: async ({ page, steps }) => {
      await steps.open("Targets");
      await steps.click(button(page, /^Lost samples 1/));
      await expect(main(page)).toContainText(/−9\d % in the range/);
    },
  },
  "Show a histogram as a heat map": {
    query: "g0.expr=rate(wait_seconds_bucket[5m])",
    walk: async ({ page }) => {
      await expect(page.getByRole("button", { name: "Heat map" })).toHaveAttribute("aria-pressed", "true");
      await expect(main(page)).toContainText("few");
    },
  },
  "Compare with yesterday": {
    query: "g0.expr=grown{id='1'}",
    walk: async ({ page, steps }) => {
      await steps.choose(page.getByRole("combobox", { name: "Compare with" }), "1 day before");
      await expect(page.getByRole("columnheader", { name: "before" })).toBeVisible();
    },
  },
  "What fires, since when, and where is the runbook?": {
    walk: async ({ page, steps }) => {
      await steps.open("Alerts");
      const rule = main(page).locator("tbody[data-id]").first();
      await expect(rule).toContainText(/Empty.* ago/s);
      await expect(rule.getByRole("link", { name: "runbook" })).toBeVisible();
    },
  },
  "Would this rule have fired last week?": {
    walk: async ({ page, steps }) => {
      await steps.open("Rules");
      await steps.click(page.getByRole("link", { name: "Test Empty over the past" }));
      await steps.click(button(page, "7 d"));
      await expect(main(page)).toContainText(/In the 7 d:\s+1 firing of 1 alert/);
    },
  },
  "Why was this target dropped?": {
    walk: async ({ page, steps }) => {
      await steps.open("Discovery");
      await steps.click(button(page, "Rules for 127.0.0.1:2"));
      await expect(main(page)).toContainText("drops the target");
    },
  },
  "Share exactly what I see": {
    query: "g0.expr=grown{id=~'.'}&g0.off=grown{id=\"2\"}&g0.sort=-max&zone=Europe/Berlin",
    walk: async ({ page }) => {
      const legend = table(page, "Series of the graph");
      await expect(legend.locator("tr.off")).toHaveCount(1);
      const seen = await legend.innerText();
      const other = await page.context().newPage();
      await other.goto(page.url());
      await expect(table(other, "Series of the graph").locator("tr.off")).toHaveCount(1);
      expect(await table(other, "Series of the graph").innerText()).toBe(seen);
      await expect(other.getByRole("button", { name: "Time zone: Europe/Berlin" })).toBeVisible();
      await other.close();
    },
  },
  "Stop a running query": {
    walk: async ({ page, steps }) => {
      const now = Date.now();
      const busy = Array.from({ length: 3000 }, (_, i) => [50, 45, 0].map((minutes) => `busy{n="${String(i)}"} 1 ${String(now - minutes * MINUTE)}\n`).join(""));
      expect((await fetch(new URL("api/v1/import/prometheus", page.url()), { method: "POST", body: busy.join("") })).ok).toBe(true);
      const end = Math.floor(now / 1000);
      const times = { start: String(end - 3600), end: String(end), step: "12" };
      const address = new URL(`api/v1/query_range?${new URLSearchParams({ query: SLOW, ...times }).toString()}`, page.url());
      const answer = fetch(address).then((response) => response.status);
      await steps.open("Queries");
      await steps.click(table(page, "Running queries").locator("tbody").filter({ hasText: "busy" }).getByRole("button", { name: "Stop" }));
      await steps.click(page.getByRole("dialog").getByRole("button", { name: "Stop the query" }));
      await expect(table(page, "Running queries").filter({ hasText: "busy" })).toHaveCount(0);
      expect(await answer).toBeGreaterThanOrEqual(400);
    },
  },
};

const RULES = `
groups:
- name: shop
  rules:
  - alert: Empty
    expr: vector(91.5) > 90
    annotations: {runbook_url: "https://runbooks.example/empty"}
`;

// Samples of yesterday and of the last hour.
async function writePast(firn: Firn, target: string): Promise<void> {
  const now = Date.now();
  const grown = (count: number, at: number) => Array.from({ length: count }, (_, i) => `grown{id="${String(i)}"} ${String(i)} ${String(at)}`);
  const waits = (step: number) => ["0.1", "1", "+Inf"].map((le, i) => `wait_seconds_bucket{le="${le}"} ${String(step * (i + 1))} ${String(now - (60 - step) * MINUTE)}`);
  await firn.write([
    ...grown(7, now - DAY - 10 * MINUTE), ...grown(7, now - DAY),
    `scrape_samples_post_metric_relabeling{instance="${target}",job="shop"} 60 ${String(now - 62 * MINUTE)}`,
    `scrape_samples_post_metric_relabeling{instance="${target}",job="shop"} 60 ${String(now - 59 * MINUTE)}`,
    ...grown(70, now - 10 * MINUTE), ...grown(70, now),
    ...Array.from({ length: 60 }, (_, step) => waits(step + 1)).flat(),
    "",
  ].join("\n"));
}

const config = (target: string): string => `
global: {scrape_interval: 1s, evaluation_interval: 1s}
scrape_configs:
- job_name: shop
  static_configs: [{targets: ["${target}"]}]
- job_name: dropped
  static_configs: [{targets: ["127.0.0.1:2"]}]
  relabel_configs: [{source_labels: [__address__], regex: ".*:2", action: drop}]
rule_files: [rules.yml]
`;

async function serveWithPast(serve: (options: object) => Promise<Firn>): Promise<{ firn: Firn; stop: () => void }> {
  const exporter = await startExporter();
  const target = new URL(exporter.url).host;
  const firn = await serve({ files: { "firn.yml": "{}\n", "rules.yml": RULES }, flags: ["--web.enable-lifecycle"] });
  // The past comes before the first scrape, because samples are stored in the order of time.
  await writePast(firn, target);
  writeFileSync(join(firn.folder, "firn.yml"), config(target));
  expect((await fetch(`${firn.url}-/reload`, { method: "POST" })).ok).toBe(true);
  await firn.waitForSeries("grown");
  await firn.waitForSeries(`scrape_samples_post_metric_relabeling{instance="${target}"} < 10`);
  await firn.waitForSeries('ALERTS{alertstate="firing"}');
  return { firn, stop: () => { exporter.stop(); } };
}

// The walks of the document that begin at Home of a server with a past.
const WALKS: Record<string, { names: string[]; walk: (page: Page) => Promise<void> }> = {
  "The reason of a slow query": {
    names: ["Query", "Explain", "hottest"],
    walk: async (page) => {
      await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Query", exact: true }).click();
      await expect(page.locator(".cm-content")).toBeFocused();
      await page.keyboard.insertText("sum(rate(wait_seconds_bucket{le=~'.+'}[5m]))");
      await page.keyboard.press("Enter");
      await expect(page.locator(".u-over")).toBeVisible();
      await button(page, "Explain").click();
      const hottest = page.getByRole("group", { name: "Operations of the query" }).locator("button.part[aria-expanded=true]");
      await expect(hottest).toContainText("hottest");
      await expect(main(page)).toContainText(/of processor time, [\d,]+ samples?/);
    },
  },
  "The metric that grew": {
    names: ["Cardinality", "1 d before"],
    walk: async (page) => {
      await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Cardinality" }).click();
      await button(page, "1 d before").click();
      await table(page, "metric").getByRole("button", { name: "grown" }).click();
      await expect(table(page, "id").locator("tbody").first()).toContainText("came");
    },
  },
};

test.describe("tasks", () => {
  // The browser logs the end of a query that was stopped.
  test.use({ allowed: /Failed to load resource/ });

  test("each task takes the documented number of steps, and works by keys on a phone", async ({ checked, serve }) => {
    test.setTimeout(180_000);
    expect(Object.keys(TASKS).sort()).toEqual([...DOCUMENTED.keys()].sort());
    const { firn, stop } = await serveWithPast(serve);
    for (const [name, { query, walk }] of Object.entries(TASKS)) {
      await test.step(name, async () => {
        await checked.goto(query === undefined ? firn.url : `${firn.url}query?${query.replaceAll("+", "%2B")}&range=1h`);
        await expect(query === undefined ? checked.getByRole("list", { name: "Health" }) : checked.locator(".u-over").first()).toBeVisible();
        const steps = new Steps(checked);
        await walk({ page: checked, steps });
        expect({ from: query === undefined ? "Home" : "query", steps: steps.count }, name).toEqual(DOCUMENTED.get(name));
      });
    }

    for (const [title, { names: expected, walk }] of Object.entries(WALKS)) {
      await test.step(title, async () => {
        expect(names(title)).toEqual(expected);
        await checked.goto(firn.url);
        await walk(checked);
      });
    }
    await checked.setViewportSize({ width: 400, height: 800 });
    for (const [letter, name, text] of KEYS) {
      await checked.goto(firn.url);
      await expect(checked.getByRole("list", { name: "Health" })).toBeVisible();
      await checked.keyboard.press("g");
      await checked.keyboard.press(letter);
      await reach(checked, name);
      await expect(main(checked)).toContainText(text);
      expect(await checked.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(400);
    }
    stop();
  });

  // Letter of a page, name of the control there, and the text that answers the task.
  const KEYS: [string, RegExp, RegExp][] = [
    ["y", /^1 d before$/, /grown.*\+63/s],
    ["t", /^Lost samples/, /in the range/],
    ["r", /^Test$/, /firing of 1 alert/],
    ["d", /^Rules for 127\.0\.0\.1:2$/, /drops the target/],
  ];
});

// Moves the focus by Tab to a control of the content, and presses Enter there.
async function reach(page: Page, name: RegExp): Promise<void> {
  const wanted = main(page).locator("button, a").filter({ hasText: name }).or(main(page).getByRole("button", { name })).first();
  await expect(wanted).toBeVisible();
  await page.locator("main").focus();
  const isReached = () => wanted.evaluate((control) => document.activeElement === control);
  for (let i = 0; i < 80 && !(await isReached()); i += 1) await page.keyboard.press("Tab");
  expect(await isReached(), String(name)).toBe(true);
  await page.keyboard.press("Enter");
}

test("the first graph of one's own data on a fresh server takes less than two minutes", async ({ checked, serve }) => {
  expect(names("First graph")).toEqual(["Send your data", "Text by curl", "Query"]);
  const firn = await serve();
  const started = Date.now();
  await checked.goto(firn.url);
  await expect(main(checked).getByText("Send your data")).toBeVisible();
  await button(checked, "Text by curl").click();
  const [, sample, path] = /echo '(.*)' \| curl --data-binary @- (\S+)/.exec(await main(checked).locator("pre").innerText()) ?? [];
  expect((await fetch(path ?? "", { method: "POST", body: `${sample ?? ""}\n` })).ok).toBe(true);
  await expect(main(checked)).toContainText("1 series of yours have arrived");
  await checked.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Query", exact: true }).click();
  await expect(checked.locator(".cm-content")).toBeFocused();
  await checked.keyboard.type("my_first");
  await expect(checked.locator(".cm-tooltip-autocomplete li").first()).toContainText("my_first_metric");
  await checked.keyboard.press("Enter");
  await checked.keyboard.press("Enter");
  await expect(checked.locator(".u-over")).toBeVisible();
  await expect(checked.locator(".stats")).toContainText("1 series");
  expect(Date.now() - started).toBeLessThan(120_000);
});
