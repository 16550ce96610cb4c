// The pages beside the query page: their content with a real server, and with answers in every shape.

import type { Page } from "@playwright/test";
import { answer, main } from "./fixtures/answer";
import { expect, test } from "./fixtures/test";

test.describe("home", () => {
  test("a fresh server draws its own figures and shows how to send data", async ({ checked, fresh }) => {
    await checked.goto(fresh.url);
    await expect(main(checked)).toContainText("1 of 1 target up");
    await expect(main(checked).locator("figure path").nth(5)).toHaveAttribute("d", /^M\d/, { timeout: 40_000 });
    await expect(main(checked)).toContainText("Firn has only its own metrics yet");
    await checked.getByRole("button", { name: "Prometheus remote_write" }).click();
    await expect(main(checked).locator("pre")).toContainText(`url: ${fresh.url}api/v1/write`);
    await fresh.write('my_first_metric{job="curl"} 42\n');
    await expect(main(checked)).toContainText("1 series of yours have arrived");
  });

  test("faults link to the pages that show them", async ({ checked, shop }) => {
    await checked.goto(shop.url);
    const health = checked.getByRole("list", { name: "Health" });
    await expect(health).toContainText("1 of 2 targets up");
    await expect(health).toContainText("1 rule failing");
    await expect(checked.getByRole("table", { name: "Jobs" })).toContainText("1 of 2 up");
    await health.getByRole("link", { name: /targets up/ }).click();
    await expect(main(checked).locator("tbody tr").filter({ hasText: "127.0.0.1:1" })).toBeVisible();
    await expect(checked).toHaveURL(/targets\?health=down/);
  });

  test("a query opens on the query page", async ({ checked, shop }) => {
    await checked.goto(shop.url);
    await checked.getByRole("textbox", { name: "PromQL expression" }).click();
    await checked.keyboard.type("demo_temperature ");
    await checked.keyboard.press("Control+Enter");
    await expect.poll(() => new URL(checked.url()).searchParams.get("g0.expr")?.trim()).toBe("demo_temperature");
  });
});

test.describe("targets", () => {
  test("a target that is down shows its error, in words and in full", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}targets`);
    const row = main(checked).locator("tbody").filter({ hasText: "127.0.0.1:1/metrics" });
    await expect(row).toContainText("Nothing listens at this address");
    await expect(row).toContainText("Connection refused");
    await expect(row).toContainText("down");
    await row.getByRole("button", { name: /Details/ }).click();
    await expect(row).toContainText("__address__");
    await expect(row.getByRole("link", { name: "Its metrics" })).toHaveAttribute("href", /g0\.expr=/);
  });

  test("filters and orders are in the address, and wrong ones are explained", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}targets`);
    const filter = checked.getByRole("searchbox", { name: "Filter" });
    await filter.fill("zone=b");
    await expect(main(checked)).toContainText("1 of 2");
    await checked.getByRole("button", { name: "Duration" }).click();
    await expect(checked.getByRole("columnheader", { name: "Duration" })).toHaveAttribute("aria-sort", "descending");
    await expect(checked).toHaveURL(/search=zone%3Db/);
    await expect(checked).toHaveURL(/sort=-load/);
    await filter.fill("zone=~b(");
    await expect(filter).toHaveAttribute("aria-invalid", "true");
    await expect(main(checked)).toContainText("b( is not a regular expression");
    // The last good filter stays in force.
    await expect(main(checked).locator("tbody tr")).toHaveCount(1);
    await filter.fill("elsewhere");
    await expect(main(checked)).toContainText("No target matches; 2 targets are hidden");
  });

  test("links of Prometheus keep their filters", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}targets?search=zone%3Da&pool=shop`);
    await expect(main(checked).getByRole("combobox", { name: "Job" })).toHaveValue("shop");
    await expect(main(checked)).toContainText("1 of 1 up");
    await checked.goto(`${shop.url}targets?scrapePool=shop&healthFilter=unhealthy`);
    await expect(main(checked).locator("tbody").filter({ hasText: "down" })).toHaveCount(1);
  });

  test("while the answer is away the page shows its frame, grey rows, and for how long it waits", async ({ checked, shop }) => {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    await checked.route("**/api/v1/targets*", async (route) => {
      await held;
      await route.continue();
    });
    await checked.goto(`${shop.url}targets`);
    await expect(checked.getByRole("heading", { level: 1 })).toHaveText("Targets");
    await expect(main(checked).locator("[aria-busy=true]")).toBeVisible();
    await expect(main(checked)).toContainText(/Waiting for the targets for \d+ s/);
    release();
    await expect(main(checked)).toContainText("127.0.0.1:1");
  });

  test("the list refreshes by itself", async ({ checked, shop }) => {
    let asked = 0;
    await checked.route("**/api/v1/targets?state=active", async (route) => {
      asked += 1;
      await route.continue();
    });
    await checked.goto(`${shop.url}targets?refresh=1s`);
    await expect.poll(() => asked).toBeGreaterThan(3);
  });

  test("ten thousand targets are listed, searched and sorted, and few rows are drawn", async ({ checked, shop }) => {
    const activeTargets = Array.from({ length: 10_000 }, (_, i) => ({
      discoveredLabels: { __address__: `host-${i}:9100` },
      labels: { instance: `host-${i}:9100`, job: `job-${i % 7}` },
      scrapePool: `job-${i % 7}`,
      scrapeUrl: `http://host-${i}:9100/metrics`,
      globalUrl: `http://host-${i}:9100/metrics`,
      lastError: "",
      lastScrape: new Date().toISOString(),
      lastScrapeDuration: i / 10_000,
      health: "up",
      scrapeInterval: "15s",
      scrapeTimeout: "10s",
    }));
    await answer(checked, "targets", { activeTargets, droppedTargets: [] });
    await checked.goto(`${shop.url}targets?sort=-load`);
    const rows = main(checked).locator("tbody[data-id]");
    await expect(rows.first()).toContainText("host-9999:9100");
    expect(await rows.count()).toBeLessThan(100);
    await checked.evaluate(() => {
      scrollTo(0, document.documentElement.scrollHeight);
    });
    await expect(rows.last()).toContainText("host-0:9100");
    expect(await rows.count()).toBeLessThan(150);
    await checked.getByRole("searchbox", { name: "Filter" }).fill("host-4242");
    await expect(main(checked)).toContainText("1 of 10000");
    await expect(rows).toHaveCount(1);
  });

  test("without targets the page shows how to add one", async ({ checked, shop }) => {
    await answer(checked, "targets", { activeTargets: [], droppedTargets: [] });
    await checked.goto(`${shop.url}targets`);
    await expect(main(checked).getByRole("heading", { name: "No targets" })).toBeVisible();
    await expect(main(checked).locator("pre")).toContainText("scrape_configs:");
  });
});

test.describe("alerts", () => {
  test("firing alerts come first, with age, value, expanded texts and runbook", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}alerts`);
    const rules = main(checked).locator("tbody[data-id]");
    await expect(rules.nth(0)).toContainText("Empty");
    await expect(rules.nth(0)).toContainText("the shop is 91.5 % empty");
    await expect(rules.nth(0)).toContainText("value 91.5");
    await expect(rules.nth(0)).toContainText(/ago/);
    const runbook = rules.nth(0).getByRole("link", { name: "runbook" });
    await expect(runbook).toHaveAttribute("href", "https://runbooks.example/empty");
    await expect(runbook).toHaveAttribute("rel", "noreferrer noopener");
    await expect(rules.nth(1)).toContainText("Slow");
    await expect(rules.nth(1)).toContainText(/fires in \d+ min/);
    await expect(rules.nth(2)).toContainText("Calm");
    await expect(main(checked)).not.toContainText("e+0");
    await expect(rules.nth(0).getByRole("img", { name: /firing for/ })).toBeVisible();
  });

  test("state and severity filter, and the moment opens in the query page", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}alerts?state=firing`);
    const rules = main(checked).locator("tbody[data-id]");
    await expect(rules).toHaveCount(1);
    await checked.getByRole("combobox", { name: "Severity" }).selectOption("warning");
    await expect(main(checked)).toContainText("No rule matches");
    await checked.goto(`${shop.url}alerts`);
    await checked.getByRole("link", { name: "Graph then" }).first().click();
    await expect.poll(() => new URL(checked.url()).searchParams.get("g0.expr")).toBe("vector(91.5) > 90");
    expect(new URL(checked.url()).searchParams.get("g0.end_input")).toMatch(/^\d{4}-\d\d-\d\d /);
  });

  test("labels and annotations with markup stay text, and only web addresses are links", async ({ checked, shop }) => {
    const markup = '<img src=x onerror="window.hacked = true">';
    const alert = {
      labels: { alertname: "A", path: markup, right: "\u202eabc" },
      annotations: { summary: markup, runbook_url: "javascript:window.hacked = true" },
      state: "firing",
      activeAt: new Date().toISOString(),
      value: "0e+00",
    };
    const rule = {
      type: "alerting", name: "A", query: "up", state: "firing", duration: 0, labels: {}, annotations: alert.annotations,
      alerts: [alert], health: "ok", evaluationTime: 0, lastEvaluation: new Date().toISOString(),
    };
    const group = { name: markup, file: markup, interval: 1, evaluationTime: 0, lastEvaluation: rule.lastEvaluation, rules: [rule] };
    await answer(checked, "rules", { groups: [group] });
    await checked.goto(`${shop.url}alerts`);
    await expect(main(checked)).toContainText(markup);
    await expect(main(checked)).toContainText("value 0");
    expect(await main(checked).locator("img").count()).toBe(0);
    expect(await main(checked).locator('a[href^="javascript"]').count()).toBe(0);
    expect(await checked.evaluate(() => "hacked" in window)).toBe(false);
  });
});

test.describe("rules", () => {
  test("groups keep up or not, a failing rule shows its error, and orders find the slowest", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}rules`);
    await expect(main(checked)).toContainText("shop:requests:rate5m");
    await expect(main(checked).locator("tbody").filter({ hasText: "shop:broken" })).toContainText("multiple matches");
    await checked.getByRole("button", { name: /^Failing/ }).click();
    await expect(main(checked).locator("tbody[data-id]")).toHaveCount(2);
    await checked.getByRole("button", { name: "Groups", exact: false }).click();
    await checked.getByRole("button", { name: "Rules of broken" }).click();
    await expect(checked).toHaveURL(/open=/);
    await expect(main(checked)).toContainText("shop:broken");
  });

  test("the past of a group is evaluated after a dialog that names the range", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}rules?search=group%3Dshop`);
    await checked.getByRole("button", { name: "Evaluate the past" }).click();
    const dialog = checked.getByRole("dialog", { name: "Evaluate the past of shop" });
    const from = dialog.getByLabel("From (UTC)");
    await from.fill("yesterday");
    await expect(from).toHaveAttribute("aria-invalid", "true");
    const start = new Date(Date.now() - 60_000).toISOString().slice(0, 19).replace("T", " ");
    await from.fill(start);
    await dialog.getByRole("button", { name: "Evaluate" }).click();
    await expect(dialog).toBeHidden();
    await expect(main(checked).getByRole("heading", { name: "Evaluations of the past" })).toBeVisible();
  });
});

test("discovery marks what relabelling changed, and names the rule that dropped a target", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}service-discovery`);
  await expect(main(checked)).toContainText("1 found, 0 kept, 1 dropped");
  const row = main(checked).locator("tbody").filter({ hasText: "127.0.0.1:2" });
  await row.getByRole("button", { name: /Rules for/ }).click();
  await expect(row).toContainText("action: drop, source_labels: [__address__], regex: .*:2");
  await expect(row).toContainText("drops the target");
  const kept = main(checked).locator("tbody").filter({ hasText: "127.0.0.1:1" }).first();
  await expect(kept.locator(".added")).toContainText("instance=");
});

test("an Alertmanager that cannot be reached is marked", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}alertmanager-discovery?refresh=1s`);
  await expect(main(checked)).toContainText("http://127.0.0.1:3/api/v2/alerts");
  await expect(main(checked)).toContainText("fails");
});

test("storage shows ages and sizes, not of milliseconds and field names", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}tsdb-status`);
  await expect(main(checked)).toContainText(/Newest sample\s*\d+ s ago/);
  await expect(main(checked)).toContainText("Metrics with the most series");
  await expect(main(checked)).toContainText(/Firn deletes samples older than 15 d/);
  await expect(main(checked)).not.toContainText(/minTime|numSeries|\d{13}/);
  await expect(main(checked).getByTitle("numSeries")).toHaveText("Series");
});

test("blocks are a time line and a table, and damage is marked", async ({ checked, shop }) => {
  const block = (ulid: string, hour: number, firn: Record<string, unknown> = {}) => ({
    ulid, minTime: hour * 7_200_000, maxTime: (hour + 1) * 7_200_000, version: 1,
    stats: { numSamples: 1000, numSeries: 10, numChunks: 10 }, compaction: { level: 1 },
    firn: { bytes: 2048, late: false, bad: false, firstTime: 0, lastTime: 0, ...firn },
  });
  const running = { running: true, series: 200, seriesDone: 50, writtenBytes: 4096, lastDurationSeconds: 0 };
  const blocks = [block("A", 1), block("B", 2, { bad: true }), block("C", 2, { late: true })];
  await answer(checked, "status/tsdb/blocks", { blocks, firn: { cut: { ...running, running: false }, compaction: running } });
  await checked.goto(`${shop.url}tsdb-status`);
  await expect(checked.getByRole("img", { name: "Time line of 3 blocks" })).toBeVisible();
  await expect(checked.getByRole("table", { name: "Blocks" })).toContainText("quarantined");
  await expect(main(checked)).toContainText("50 of 200 series, 4 KiB written");
});

test("the configuration is searched, folded and reloaded", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}config`);
  await expect(main(checked)).toContainText("job_name: shop");
  await checked.getByRole("searchbox", { name: "Search" }).fill("JOB_NAME");
  await expect(main(checked)).toContainText("2 lines");
  await expect(main(checked).locator(".line.found")).toHaveCount(2);
  await checked.getByRole("searchbox", { name: "Search" }).fill("");
  await main(checked).locator('.line[data-line="1"]').getByRole("button").click();
  await expect(main(checked).locator('.line[data-line="2"]')).toHaveCount(0);
  await checked.getByRole("button", { name: "Reload the file" }).click();
  await expect(main(checked)).toContainText("The file was loaded");
});

test("flags have defaults and descriptions, changed ones first, and are found by their words", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}flags`);
  const rows = main(checked).locator("tbody");
  const lifecycle = rows.filter({ hasText: "--web.enable-lifecycle" });
  await expect(lifecycle).toContainText(/changed.*true.*false/);
  await expect(main(checked)).toContainText(/\d of \d+ changed\./);
  const texts = await rows.allInnerTexts();
  const marks = texts.map((text) => text.includes("changed") && /^--\S+ changed/.test(text));
  expect(marks.lastIndexOf(true)).toBeLessThan(marks.indexOf(false));
  await checked.getByRole("searchbox", { name: "Filter" }).fill("retention.time");
  await expect(rows).toHaveCount(1);
  await expect(main(checked)).toContainText("--storage.tsdb.retention.time");
  await expect(rows.locator("td").last()).toContainText(/[a-z]{4}/);
  await checked.getByRole("searchbox", { name: "Filter" }).fill("changed=true web.enable-lifecycle");
  await expect(rows).toHaveCount(1);
});

test.describe("a server without settings", () => {
  // The browser logs the 404.
  test.use({ allowed: /Failed to load resource.*404/ });

  test("flags have their values", async ({ checked, shop }) => {
    await checked.route("**/api/v1/status/settings*", (route) => route.fulfill({ status: 404, contentType: "text/plain", body: "404 page not found" }));
    await checked.goto(`${shop.url}flags`);
    await expect(main(checked).getByRole("table").locator("thead th")).toHaveText(["Flag", "Value"]);
    await expect(main(checked).locator("tbody").filter({ hasText: "--web.enable-lifecycle" })).toContainText("true");
  });
});

test("status shows version, uptime and memory in words, and folds Go's names", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}status`);
  await expect(main(checked)).toContainText(/Compatible with\s*Prometheus 3/);
  await expect(main(checked)).toContainText(/Running for\s*\d+/);
  await expect(main(checked)).toContainText(/MiB of .* GiB/);
  await expect(main(checked).getByText("GOMAXPROCS")).toBeHidden();
  await main(checked).getByText("As Prometheus calls it").click();
  await expect(main(checked).getByText("GOMAXPROCS")).toBeVisible();
});

test.describe("cluster", () => {
  const status = (state: string, fault?: string) => ({
    enabled: true, cluster: "0f1e", node: "a", version: "0.1.0", draining: false, time: 10_000_000,
    nodes: [
      { name: "a", address: "10.0.0.1:9190", version: "0.1.0", state: "alive", partitionsLed: 1 },
      { name: "b", address: "10.0.0.2:9190", version: "0.1.0", state: "silent", seenSecondsAgo: 190.2, partitionsLed: 0 },
    ],
    partitions: [
      { partition: 0, leader: "a", epoch: 3, state: "leading", position: 42, series: 1500, cutTime: 1_000_000, lastCommitTime: 9_990_000, logBytes: 2048 },
      { partition: 1, epoch: 2, state, position: 9, ...(fault === undefined ? {} : { fault }) },
    ],
  });
  const cells = (page: Page, table: string) =>
    page.getByRole("table", { name: table }).locator("tbody tr").evaluateAll((rows) =>
      rows.map((row) => [...row.querySelectorAll("td")].map((cell) => (cell.textContent ?? "").trim())));

  test("nodes and partitions are shown in all states, and follow the server", async ({ checked, shop }) => {
    let data: unknown = status("replaying");
    await checked.route("**/api/v1/status/cluster", (route) => route.fulfill({ json: { status: "success", data } }));
    await checked.goto(`${shop.url}cluster?refresh=1s`);
    await expect(main(checked)).toContainText("1 of 2 answer");
    const led = ["0", "a", "leading", "3", "42", "1,500", "2 KiB", "2 h 30 min ago", "10 s ago"];
    expect(await cells(checked, "Partitions")).toEqual([led, ["1", "none", "replaying", "2", "9", "–", "–", "–", "–"]]);
    expect((await cells(checked, "Nodes")).map((row) => [row[0], row[3]])).toEqual([["a", "this node"], ["b", "3 min 10 s ago"]]);
    data = status("unowned", "<b>the bucket is away</b>");
    await expect(checked.getByRole("table", { name: "Partitions" })).toContainText("<b>the bucket is away</b>");
    data = { enabled: false };
    await expect(main(checked)).toContainText("This server is not a node of a cluster: firn.cluster is not set.");
  });

  test("it fits 400 pixels", async ({ checked, shop }) => {
    await checked.setViewportSize({ width: 400, height: 800 });
    await answer(checked, "status/cluster", status("taking_over"));
    await checked.goto(`${shop.url}cluster`);
    await expect(main(checked)).toContainText("taking over");
    const rights = await main(checked).locator("td").evaluateAll((all) => all.map((cell) => cell.getBoundingClientRect().right));
    expect(rights.length).toBe(30);
    expect(Math.max(...rights)).toBeLessThanOrEqual(400);
  });
});

test.describe("administration", () => {
  test("series are counted before they are deleted, and the selector is typed again", async ({ checked, serve }) => {
    const firn = await serve({ flags: ["--web.enable-admin-api"] });
    await firn.write('old_metric{job="gone"} 1\nold_metric{job="kept"} 1\n');
    await firn.waitForSeries("old_metric");
    await checked.goto(`${firn.url}tsdb-status`);
    await checked.getByRole("button", { name: "Delete series" }).click();
    const selector = 'old_metric{job="gone"}';
    await checked.getByLabel("Selector").fill(selector);
    await checked.getByRole("button", { name: "Count them" }).click();
    const dialog = checked.getByRole("dialog", { name: "Delete 1 sample?" });
    await expect(dialog).toContainText("1 sample of 1 series would be gone");
    const remove = dialog.getByRole("button", { name: "Delete", exact: true });
    await expect(remove).toBeDisabled();
    await dialog.getByRole("textbox").fill(selector);
    await remove.click();
    await expect(dialog).toBeHidden();
    await expect.poll(async () => (await firn.query("old_metric")).length).toBe(1);
  });

  test("a snapshot names its folder", async ({ checked, serve }) => {
    const firn = await serve({ flags: ["--web.enable-admin-api"] });
    await checked.goto(`${firn.url}tsdb-status`);
    await checked.getByRole("button", { name: "Take a snapshot" }).click();
    await checked.getByRole("button", { name: "Take it" }).click();
    await expect(checked.getByRole("dialog", { name: "The snapshot is ready" })).toContainText(/snapshots\/\d{8}T/);
  });

  test("forbidden actions are not offered", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}tsdb-status`);
    await expect(checked.getByText("Metrics with the most series")).toBeVisible();
    await expect(checked.getByRole("button", { name: "Delete series" })).toHaveCount(0);
  });
});

test("an agent shows its targets and its state, and requests no endpoint that it lacks", async ({ checked, serve }) => {
  const config = "scrape_configs: [{job_name: self, scrape_interval: 1s, static_configs: [{targets: ['127.0.0.1:1']}]}]\n";
  const firn = await serve({
    files: { "firn.yml": `${config}remote_write: [{url: 'http://127.0.0.1:1/'}]\n` },
    flags: ["--agent"],
  });
  await checked.goto(firn.url);
  await expect(checked.getByRole("list", { name: "Health" })).toContainText("0 of 1 target up");
  await expect(main(checked).getByText("Firn's own figures")).toHaveCount(0);
  await checked.goto(`${firn.url}targets?refresh=1s`);
  await expect(main(checked)).toContainText("Nothing listens at this address");
  await checked.goto(`${firn.url}agent`);
  await expect(main(checked)).toContainText(/Running for/);
});
