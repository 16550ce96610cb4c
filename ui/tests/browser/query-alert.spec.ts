// An alerting rule from a query: its YAML, its alerts in the shown range, and its storage on the server.

import type { Page } from "@playwright/test";
import { answer } from "./fixtures/answer";
import { type Firn } from "./fixtures/firn";
import { expect, test } from "./fixtures/test";

const link = (firn: Firn, expr: string): string => `${firn.url}query?g0.expr=${encodeURIComponent(expr)}&range=20m&g0.step_input=15s`;
const dialog = (page: Page) => page.getByRole("dialog", { name: "Alert rule" });

async function open(page: Page): Promise<void> {
  await expect(page.locator(".u-over")).toBeVisible();
  await page.getByRole("button", { name: "More for query A" }).click();
  await page.getByRole("button", { name: "Open as alert rule" }).click();
  await expect(dialog(page)).toBeVisible();
}

test("the YAML follows the fields, and the alerts of the shown range are counted", async ({ checked, shop }) => {
  await checked.goto(link(shop, 'demo_requests_total{handler="/h1"}'));
  await open(checked);
  await expect(dialog(checked).getByRole("textbox", { name: "Name", exact: true })).toHaveValue("DemoRequestsTotal");
  const threshold = dialog(checked).getByRole("textbox", { name: "Threshold" });
  await threshold.fill("much");
  await expect(threshold).toHaveAttribute("aria-invalid", "true");
  await expect(dialog(checked)).toContainText("Expected: a number like 0.5 or 1e9");
  await threshold.fill("1000");
  await expect(dialog(checked).locator("pre")).toHaveText(
    "groups:\n- name: 'DemoRequestsTotal'\n  rules:\n  - alert: 'DemoRequestsTotal'\n    expr: 'demo_requests_total{handler=\"/h1\"} > 1000'\n    for: 5m\n    labels:\n      severity: 'warning'\n",
  );
  await expect(dialog(checked)).toContainText(/In the shown 20 min, every 1 s: 1 firing of 1 alert, (20 min|19 min \d+ s) in all/);
  await threshold.fill("1e9");
  await expect(dialog(checked)).toContainText("every 1 s: no alert.");
  // The server has no folder for rules.
  await expect(dialog(checked).getByRole("button", { name: "Store on the server" })).toHaveCount(0);
  await checked.keyboard.press("Escape");
  await expect(dialog(checked)).toHaveCount(0);
  await expect(checked.getByRole("button", { name: "More for query A" })).toBeFocused();
});

test.describe("with a rule folder", () => {
  // The browser logs each answer that is an error, also the 404 of a group that does not exist yet.
  test.use({ allowed: /Failed to load resource.*(400|404)/ });

  test("the rule is stored on the server, and never in place of another one", async ({ checked, serve }) => {
    const firn = await serve({ files: { "firn.yml": "firn: {rules: {folder: DIR/rules.d}}\nglobal: {evaluation_interval: 1s}\n" } });
    const now = Date.now();
    await firn.write(`load 7 ${String(now - 60_000)}\nload 7 ${String(now)}\n`);
    await firn.waitForSeries("load");
    await checked.goto(link(firn, "load > 5"));
    await open(checked);
    await expect(dialog(checked)).toContainText("which is a condition");
    await dialog(checked).getByRole("textbox", { name: "Name", exact: true }).fill("High load");
    await dialog(checked).getByRole("textbox", { name: "For", exact: true }).fill("");
    const store = dialog(checked).getByRole("button", { name: "Store on the server" });
    await store.click();
    await expect(dialog(checked)).toContainText("Stored.");
    await expect(store).toBeDisabled();
    await firn.waitForSeries('ALERTS{alertname="High load",alertstate="firing"}');
    await dialog(checked).getByRole("combobox", { name: "Severity" }).fill("critical");
    await store.click();
    await expect(dialog(checked).getByRole("alert")).toContainText("the namespace alerts has a group High load already");
    await dialog(checked).getByRole("textbox", { name: "Name", exact: true }).fill("Higher load");
    await dialog(checked).getByRole("textbox", { name: "Summary" }).fill("{{ broken");
    await store.click();
    await expect(dialog(checked).getByRole("alert")).toContainText("bad data");
    await dialog(checked).getByRole("textbox", { name: "Summary" }).fill("");
    await store.click();
    await dialog(checked).getByRole("link", { name: "Rules" }).click();
    await expect(checked.getByRole("table", { name: "Rules" })).toContainText("Higher load");
  });
});

test("a credential without the scope copies only", async ({ checked, serve }) => {
  const firn = await serve({ files: { "firn.yml": "firn: {rules: {folder: DIR/rules.d}}\n" } });
  await firn.write(`load 7 ${String(Date.now())}\n`);
  await firn.waitForSeries("load");
  await answer(checked, "status/access", { name: "reader", scopes: ["read"], match: [], tenants: [] });
  await checked.goto(link(firn, "load"));
  await open(checked);
  await expect(dialog(checked).getByRole("button", { name: "Copy YAML" })).toBeVisible();
  await expect(dialog(checked).getByRole("button", { name: "Store on the server" })).toHaveCount(0);
});
