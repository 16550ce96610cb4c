// The pages that explore and operate: metrics, cardinality, usage, relabelling and rejected samples.

import { answer, main } from "./fixtures/answer";
import { expect, test } from "./fixtures/test";

test.describe("metrics", () => {
  test("a metric opens with its labels, and a chosen value narrows the page", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}explore/metrics?search=demo_requests`);
    const row = main(checked).locator("tbody").filter({ hasText: "demo_requests_total" });
    await expect(row).toContainText("counter");
    await expect(row.locator("td[data-head=Series]")).toHaveText("10");
    await row.getByRole("button", { name: "Labels of demo_requests_total" }).click();
    await expect(row.getByRole("region", { name: "Values of handler" })).toContainText("10 values");
    await expect(row.getByRole("link", { name: "Graph" })).toHaveAttribute("href", /g0\.expr=rate%28demo_requests_total%5B5m%5D%29/);
    await expect(row).toContainText(/Newest sample: .* ago/);
    await row.getByRole("button", { name: "/h3", exact: true }).click();
    await expect(checked).toHaveURL(/match=%7Bhandler%3D%22%2Fh3%22%7D/);
    await expect(row.locator("td[data-head=Series]")).toHaveText("1");
    await checked.getByRole("button", { name: 'Remove handler="/h3"' }).click();
    await expect(row.locator("td[data-head=Series]")).toHaveText("10");
  });

  test("types, jobs, and words of the help text are filters in the address", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}explore/metrics`);
    await main(checked).getByRole("combobox", { name: "Job" }).selectOption("shop");
    await expect(main(checked)).toContainText("process_resident_memory_bytes");
    await expect(main(checked)).not.toContainText("demo_temperature");
    await checked.getByRole("button", { name: /^Counter/ }).click();
    await expect(main(checked)).not.toContainText("process_resident_memory_bytes");
    await checked.getByRole("searchbox", { name: "Filter" }).fill("by handler");
    await expect(main(checked).getByRole("table").locator("tbody")).toHaveCount(1);
    await expect(checked).toHaveURL(/type=counter/);
    await expect(main(checked)).toContainText("Requests by handler.");
  });

  test("a selector without series stays, with the next step", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}explore/metrics?match=%7B__name__%3D~%22demo.*%22%7D`);
    await expect(main(checked)).toContainText("demo_temperature");
    const box = checked.getByRole("textbox", { name: "Selector" });
    await box.fill('{nothing="here"}');
    await box.press("Enter");
    await expect(main(checked)).toContainText("No series of the shown range has these labels");
  });

  test("19,000 metrics are filtered, and few rows are drawn", async ({ checked, shop }) => {
    await answer(checked, "label/__name__/values", Array.from({ length: 19_000 }, (_, i) => `metric_${String(i)}`));
    await checked.goto(`${shop.url}explore/metrics`);
    await expect(main(checked)).toContainText("metric_0");
    expect(await main(checked).locator("tbody tr").count()).toBeLessThan(150);
    await checked.getByRole("searchbox", { name: "Filter" }).fill("metric_18999");
    await expect(main(checked)).toContainText("1 of 19000");
  });
});

test.describe("cardinality", () => {
  test("clicks drill down from a metric to a label, and the rule that drops it can be copied", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}explore/cardinality`);
    await main(checked).getByRole("button", { name: "demo_requests_total", exact: true }).click();
    await expect(checked).toHaveURL(/match=demo_requests_total&by=handler/);
    await expect(main(checked)).toContainText("Series by handler");
    await expect(main(checked)).toContainText("10 series, 10 values of handler");
    await expect(main(checked)).toContainText("saves 9 series");
    await main(checked).getByRole("button", { name: "/h3", exact: true }).click();
    await expect(main(checked)).toContainText("1 series");
    await expect(main(checked).locator("pre")).toContainText("source_labels: [__name__, handler]\n  regex: 'demo_requests_total;/h3'\n  action: drop");
    await checked.goBack();
    await expect(main(checked)).toContainText("10 series, 10 values of handler");
  });

  test("two times are compared: what grew, came and went", async ({ checked, serve }) => {
    const firn = await serve();
    const now = Date.now();
    const series = (count: number, at: number) => Array.from({ length: count }, (_, i) => `grown{id="${String(i)}"} 1 ${String(at)}\n`).join("");
    await firn.write(`${series(2, now - 3_600_000)}gone 1 ${String(now - 3_600_000)}\n${series(7, now)}came 1 ${String(now)}\n`);
    await firn.waitForSeries("came");
    await checked.goto(`${firn.url}explore/cardinality?match=${encodeURIComponent('{__name__=~"grown|gone|came"}')}`);
    await checked.getByRole("button", { name: "1 h before" }).click();
    const rows = main(checked).getByRole("table").locator("tbody");
    await expect(rows.filter({ hasText: "grown" })).toContainText(/2.*7.*\+5.*grew/);
    await expect(rows.filter({ hasText: "gone" })).toContainText("went");
    await expect(rows.filter({ hasText: "came" }).first()).toContainText("came");
    await expect(checked).toHaveURL(/compare=1h/);
    await expect(main(checked)).toContainText("8 series (before: 3)");
    const box = checked.getByRole("textbox", { name: "Compare with: time before, or time" });
    await box.fill("soon");
    await box.press("Enter");
    await expect(box).toHaveAttribute("aria-invalid", "true");
    await expect(main(checked)).toContainText("Expected: a duration like 90s or 1h30m, or an earlier time");
    const time = new Date(now - 3_500_000).toISOString().slice(0, 19).replace("T", " ");
    await box.fill(time);
    await box.press("Enter");
    await expect(rows.filter({ hasText: "gone" })).toContainText("went");
    await expect.poll(() => new URL(checked.url()).searchParams.get("compare")).toBe(time);
  });

  test("an error of the selector is shown in the words of the server", async ({ shop, page }) => {
    await page.goto(`${shop.url}explore/cardinality?match=up%7B`);
    await expect(page.getByRole("textbox", { name: "Selector" })).toHaveAttribute("aria-invalid", "true");
    await expect(main(page)).toContainText(/bad data.*parse error/);
  });
});

test.describe("usage", () => {
  test("unused metrics and the users of others are named", async ({ checked, shop }) => {
    await shop.query("demo_temperature > 7");
    await checked.goto(`${shop.url}explore/usage?search=demo`);
    await expect(main(checked)).toContainText(/No query and no rule has selected \d+ metric/);
    await expect(main(checked)).toContainText("Wait for some days");
    await checked.getByRole("button", { name: /^Used/ }).click();
    const row = main(checked).locator("tbody").filter({ hasText: "demo_temperature" });
    await row.getByRole("button", { name: "Queries of demo_temperature" }).click();
    await expect(row).toContainText("demo_temperature");
    await checked.getByRole("searchbox", { name: "Filter" }).fill("http_requests");
    await expect(main(checked).getByRole("link", { name: "shop:requests:rate5m" })).toBeVisible();
    const saved = checked.waitForEvent("download");
    await checked.getByRole("button", { name: "Export as CSV" }).click();
    expect((await saved).suggestedFilename()).toBe("usage.csv");
  });

  test("the rule drops what is unused", async ({ checked, shop }) => {
    await answer(checked, "status/metric_names_stats", { records: [] });
    await answer(checked, "rules", { groups: [] });
    await checked.goto(`${shop.url}explore/usage?search=demo_latency`);
    await checked.getByText("The rule", { exact: true }).click();
    await expect(main(checked).locator("pre")).toContainText("regex: 'demo_latency_seconds_bucket'");
  });
});

test.describe("relabelling", () => {
  test("a target of a job, then other labels, with what each rule did", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}relabel`);
    await expect(main(checked)).toContainText("Choose a job");
    await checked.getByRole("combobox", { name: "Job" }).selectOption("dropped");
    await expect(main(checked)).toContainText("drops the target");
    await expect(main(checked)).toContainText("The target is dropped by rule 1 of 1.");
    const labels = checked.getByRole("textbox", { name: "Labels before relabelling" });
    await labels.fill('__address__="127.0.0.1:9"\nzone="c"');
    await expect(main(checked)).toContainText("The target is kept.");
    await expect(checked.getByRole("combobox", { name: "Target" })).toHaveValue("");
    await labels.fill("__address__");
    await expect(main(checked)).toContainText('line 1: expected name="value"');
    await expect(labels).toHaveAttribute("aria-invalid", "true");
    await expect(checked).toHaveURL(/pool=dropped&labels=/);
  });

  test("the rules of a job are changed as own rules", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}relabel?pool=dropped`);
    await checked.getByRole("link", { name: "Try changes of relabel_configs" }).click();
    const rules = checked.getByRole("textbox", { name: "Rules in YAML" });
    await expect(rules).toHaveValue(/^relabel_configs:\n *- source_labels: \[__address__\]/);
    await expect(main(checked)).toContainText("The target is dropped by rule 1 of 1.");
    await rules.fill((await rules.inputValue()).replace(".*:2", ".*:3"));
    await expect(main(checked)).toContainText("The target is kept.");
  });

  test("a proposed rule of the page of cardinality is tried on its series", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}explore/cardinality?match=demo_requests_total`);
    await checked.getByRole("link", { name: "Try it in Relabelling" }).click();
    await expect(main(checked)).toContainText("The sample is dropped by rule 1 of 1.");
    const series = checked.getByRole("combobox", { name: "Series" });
    await expect(series.locator("option")).toHaveCount(10);
    await checked.goBack();
    await checked.getByRole("link", { name: "Try it: drop handler in Relabelling" }).click();
    await expect(main(checked)).toContainText('− handler="/h0"');
    await series.selectOption({ index: 3 });
    await expect(main(checked)).toContainText('− handler="/h3"');
    await expect(main(checked)).toContainText("The sample is kept. Labels after relabelling:");
  });

  test.describe("with a mistake", () => {
    // The browser logs each answer that is an error.
    test.use({ allowed: /Failed to load resource.*400/ });

    test("own rules have their mistakes at the line, and are in the address", async ({ checked, shop }) => {
      await checked.goto(`${shop.url}relabel`);
      await checked.getByRole("button", { name: "Own rules" }).click();
      await expect(main(checked)).toContainText("Paste rules above.");
      const rules = checked.getByRole("textbox", { name: "Rules in YAML" });
      await rules.fill("- source_labels: [env]\n  action: dorp\n");
      await checked.getByRole("textbox", { name: "Labels before relabelling" }).fill('env="dev"\njob="a"');
      await expect(main(checked)).toContainText('unknown relabel action "dorp"');
      await expect(main(checked).locator(".numbers .bad")).toHaveText("2");
      await expect(main(checked)).toContainText("The rules have a mistake.");
      await rules.fill("- source_labels: [env]\n  target_label: stage\n");
      await expect(main(checked)).toContainText('+ stage="dev"');
      await checked.reload();
      await expect(main(checked)).toContainText('+ stage="dev"');
      await expect(rules).toHaveValue("- source_labels: [env]\n  target_label: stage\n");
    });
  });

  test("the page of discovery leads to the rule that dropped a target", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}service-discovery?state=dropped`);
    await main(checked).getByRole("button", { name: /Rules for/ }).click();
    await main(checked).getByRole("link", { name: "Why was it dropped?" }).click();
    await expect(main(checked)).toContainText("The target is dropped by rule 1 of 1.");
  });
});

test.describe("refused samples", () => {
  test("a rejected sample has its reason, sender, example and next step", async ({ checked, serve }) => {
    const firn = await serve();
    await fetch(`${firn.url}api/v1/import/prometheus`, { method: "POST", body: `far_away{job="x"} 1 ${String(Date.now() + 10 * 86_400_000)}\n` });
    await checked.goto(`${firn.url}discards`);
    const row = main(checked).locator("tbody").first();
    await expect(row).toContainText("Time too far in the future");
    await expect(row).toContainText("Compare the clock of the sender");
    await row.getByRole("button", { name: /Example of/ }).click();
    await expect(row).toContainText(/far_away.*timestamp/);
    await checked.getByRole("searchbox", { name: "Filter" }).fill("job=y");
    await expect(main(checked)).toContainText("Nothing matches; 1 entry is hidden.");
  });

  test("without any the page says so", async ({ checked, fresh }) => {
    await checked.goto(`${fresh.url}discards`);
    await expect(main(checked)).toContainText("No rejected samples");
  });
});
