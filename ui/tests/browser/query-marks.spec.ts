// Marks beside the samples of an answer: firing alerts and exemplars in a graph, staleness markers of raw samples.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "@playwright/test";
import { answer } from "./fixtures/answer";
import { expect, test } from "./fixtures/test";

// The colour of the canvas at the upper edge of the graph, near the newest sample.
const edgeColour = (page: Page): Promise<number[]> =>
  page.locator(".plot").first().evaluate((plot) => {
    const over = plot.querySelector(".u-over")?.getBoundingClientRect();
    const canvas = plot.querySelector("canvas");
    if (over === undefined || canvas === null) return [];
    const box = canvas.getBoundingClientRect();
    const ratio = canvas.width / box.width;
    const [x, y] = [over.right - 2 - box.left, over.top + 1 - box.top];
    return [...(canvas.getContext("2d")?.getImageData(x * ratio, y * ratio, 1, 1).data ?? [])].slice(0, 3);
  });

test("the times at which alerts fired are bands, and a list", async ({ checked, shop }) => {
  // A band has a width once the alert fired for some steps.
  await shop.waitForSeries('count_over_time(ALERTS{alertname="Empty",alertstate="firing"}[5m]) > 5');
  await checked.goto(`${shop.url}query?g0.expr=demo_temperature&range=5m`);
  await expect(checked.locator(".u-over")).toBeVisible();
  await checked.getByRole("button", { name: "Options: axis, step and time" }).click();
  await checked.getByRole("checkbox", { name: "Times of firing alerts" }).check();
  await checked.keyboard.press("Escape");
  await expect(checked).toHaveURL(/g0\.alerts=1/);
  await checked.getByText(/^Alerts fired \d+ times?$/).click();
  await expect(checked.getByRole("listitem").filter({ hasText: "Empty" }).first()).toContainText(/\d\d:\d\d:\d\d to 2/);
  await expect.poll(() => edgeColour(checked)).toEqual([179, 38, 30]);
});

test("exemplars have their labels, and a link to the trace by the address in the settings", async ({ checked, shop }) => {
  const seconds = Date.now() / 1000 - 100;
  const exemplar = (trace: string) => ({ labels: { trace_id: trace, name: "<b>x</b>" }, value: "20.5", timestamp: seconds });
  await answer(checked, "query_exemplars", [{ seriesLabels: { room: "a" }, exemplars: [exemplar("abc/1"), exemplar("def")] }]);
  // As Prometheus writes it.
  await checked.goto(`${shop.url}query?g0.expr=demo_temperature&range=5m&g0.show_exemplars=1`);
  await checked.getByText("2 exemplars").click();
  const first = checked.getByRole("listitem").filter({ hasText: "abc/1" });
  await expect(first).toContainText('name="<b>x</b>"');
  await expect(first.getByRole("link")).toHaveCount(0);
  await checked.getByRole("button", { name: "Settings" }).click();
  const template = checked.getByRole("textbox", { name: "Address of a trace, for exemplars" });
  await template.fill("https://traces.example/{trace_id}");
  await template.press("Enter");
  await checked.keyboard.press("Escape");
  await expect(first.getByRole("link", { name: "Trace" })).toHaveAttribute("href", "https://traces.example/abc%2F1");
});

test("a staleness marker behind the newest raw sample is named", async ({ checked, serve }) => {
  const rules = 'groups: [{name: g, interval: 1s, rules: [{record: ended, expr: "vector(1)"}, {record: goes_on, expr: "vector(1)"}]}]\n';
  const firn = await serve({ files: { "firn.yml": "rule_files: [rules.yml]\n", "rules.yml": rules }, flags: ["--web.enable-lifecycle"] });
  await firn.waitForSeries("ended + on() goes_on");
  writeFileSync(join(firn.folder, "rules.yml"), rules.replace("record: ended", "record: other"));
  await fetch(`${firn.url}-/reload`, { method: "POST" });
  await expect.poll(() => firn.query("ended")).toEqual([]);
  await checked.goto(`${firn.url}query?g0.expr=ended&g0.tab=raw`);
  await expect(checked.getByText("A staleness marker follows the newest sample: the series ended.")).toBeVisible();
  await checked.goto(`${firn.url}query?g0.expr=goes_on&g0.tab=raw`);
  await expect(checked.getByRole("table", { name: "Samples" })).toContainText("1 s");
  await expect(checked.getByText("A staleness marker")).toHaveCount(0);
});
