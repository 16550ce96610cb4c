// The page that evaluates a rule over the past.

import type { Page } from "@playwright/test";
import { answer, main } from "./fixtures/answer";
import { violations } from "./fixtures/axe";
import type { Firn } from "./fixtures/firn";
import { expect, test } from "./fixtures/test";

const MINUTE = 60_000;
const FLAPS = "alert: High\nexpr: load > 5\nfor: 2m\nlabels: {severity: page}\nannotations:\n  summary: '{{ $labels.host }} has {{ $value }}'\n";

const link = (firn: Firn, params: Record<string, string>): string => `${firn.url}rules/test?${new URLSearchParams(params).toString()}`;
const outcome = (page: Page) => page.locator("main p.outcome");

// An hour of a gauge, one sample a minute: 7 in minutes 10 to 19, 9 in minutes 30 to 34 and 1 otherwise.
async function fillLoad(firn: Firn): Promise<number> {
  const begin = Math.floor(Date.now() / MINUTE) * MINUTE - 60 * MINUTE;
  const valueAt = (minute: number) => (minute >= 10 && minute < 20 ? 7 : minute >= 30 && minute < 35 ? 9 : 1);
  const lines = Array.from({ length: 60 }, (_, i) => `load{host="a"} ${String(valueAt(i))} ${String(begin + i * MINUTE)}`);
  await firn.write(`${lines.join("\n")}\n`);
  await firn.waitForSeries("load[2h]");
  return begin;
}

const endOf = (begin: number): string => new Date(begin + 59 * MINUTE).toISOString().slice(0, 19).replace("T", " ");

test("a rule of the Rules page is tested over a week in three steps", async ({ checked, shop }) => {
  await checked.goto(shop.url);
  await checked.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Rules" }).click();
  await checked.getByRole("link", { name: "Test Empty over the past" }).click();
  await checked.getByRole("button", { name: "7 d" }).click();
  await expect(outcome(checked)).toContainText(/In the 7 d:\s+1 firing of 1 alert, 7 d in all\./);
  await expect(checked.getByRole("heading", { level: 1 })).toHaveText("Rule test");
  await expect(checked.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Rules" })).toHaveAttribute("aria-current", "page");
  // The group has an interval of one second, which is too fine for a week.
  await expect(main(checked)).toContainText("Evaluated every 1 min in place of 1 s");
  await expect(main(checked).getByRole("table", { name: "Alerts of the range" })).toContainText("the shop is 91.5 % empty");
});

test.describe("of an hour", () => {
  test("firings have their number, length and periods, and other values are compared", async ({ checked, serve }) => {
    const firn = await serve();
    const end = endOf(await fillLoad(firn));
    await checked.goto(link(firn, { rule: FLAPS, range: "59m", end, interval: "1m" }));
    await expect(outcome(checked)).toContainText("2 firings of 1 alert, 11 min in all, the longest 8 min.");
    await expect(outcome(checked)).toContainText("60 evaluations, every 1 min.");
    await expect(checked.getByRole("group", { name: /Graph of 1 series over 59 min, with 2 firings/ })).toBeVisible();
    const row = main(checked).getByRole("table", { name: "Alerts of the range" }).locator("tbody");
    await expect(row).toContainText(/host="a".*severity="page".*a has 9/s);
    await row.getByRole("button", { name: "Periods of 2 of 2 periods fired" }).click();
    await expect(row.getByRole("listitem")).toHaveCount(2);
    await expect(row.getByRole("listitem").first()).toContainText(/pending from .*, fired .* for 8 min, ended .* value 7/);

    const threshold = checked.getByRole("textbox", { name: "Threshold" });
    await expect(threshold).toHaveValue("5");
    await threshold.fill("8");
    await threshold.press("Enter");
    await expect(outcome(checked)).toContainText("That is 1 firing fewer than the rule as written, which has 2.");
    const wait = checked.getByRole("textbox", { name: "For" });
    await wait.fill("10m");
    await wait.press("Enter");
    await expect(outcome(checked)).toContainText("no firing; 1 alert pending. That is 2 firings fewer");
    await expect(checked).toHaveURL(/threshold=8&for=10m/);
    await checked.reload();
    await expect(outcome(checked)).toContainText("That is 2 firings fewer");
    await wait.fill("soon");
    await wait.press("Enter");
    await expect(wait).toHaveAttribute("aria-invalid", "true");
    await expect(main(checked)).toContainText("Expected: a duration like 90s or 1h30m");
    await wait.fill("2m");
    await wait.press("Enter");
    await checked.getByRole("button", { name: "Write into the rule" }).click();
    await expect(checked.getByRole("textbox", { name: "Rule in YAML" })).toHaveValue(FLAPS.replace("> 5", "> 8"));
    await expect(checked).not.toHaveURL(/threshold/);
    await checked.goBack();
    await expect(threshold).toHaveValue("8");
    // The slider reaches all values of the expression.
    const slider = checked.getByRole("slider", { name: "Threshold, as a slider" });
    await expect(slider).toHaveAttribute("max", "9");
    await slider.focus();
    await checked.keyboard.press("Home");
    await expect(threshold).toHaveValue("1");
  });

  test("a recording rule has its samples, and none is stored", async ({ checked, serve }) => {
    const firn = await serve();
    const end = endOf(await fillLoad(firn));
    await checked.goto(link(firn, { rule: "record: all:load\nexpr: sum(load)\nlabels: {team: x}\n", range: "30m", end, interval: "1m" }));
    await expect(outcome(checked)).toContainText("31 samples of 1 series.");
    await expect(main(checked).getByRole("table", { name: "Recorded series" })).toContainText(/all:load.*team="x".*31.*1/s);
    await expect(checked.getByRole("textbox", { name: "Threshold" })).toHaveCount(0);
    expect(await firn.query("all:load")).toEqual([]);
  });
});

test.describe("with a mistake", () => {
  // The browser logs each answer that is an error.
  test.use({ allowed: /Failed to load resource.*400/ });

  test("the line of the mistake is marked, and leads to its place", async ({ checked, shop }) => {
    await checked.goto(`${shop.url}rules/test`);
    await expect(main(checked)).toContainText("Paste a rule, or choose a loaded one.");
    const box = checked.getByRole("textbox", { name: "Rule in YAML" });
    await box.fill("alert: A\nexpr: up ==\nfor: 5m\n");
    await expect(box).toHaveAttribute("aria-invalid", "true");
    await expect(main(checked)).toContainText("could not parse expression");
    await expect(main(checked).locator(".numbers .bad")).toHaveText("2");
    await checked.getByRole("button", { name: "Line 2" }).click();
    await expect(box).toBeFocused();
    expect(await box.evaluate((field: HTMLTextAreaElement) => field.selectionStart)).toBe("alert: A\nexpr: ".length);
    await box.fill("alert: A\nexpr: up == 0\nfro: 5m\n");
    await expect(main(checked)).toContainText("field fro not found");
    await expect(main(checked).locator(".numbers .bad")).toHaveText("3");
    await box.fill("alert: A\nexpr: up == 0\n");
    await expect(outcome(checked)).toContainText("firing");
    await expect(box).toHaveAttribute("aria-invalid", "false");
  });
});

test("a loaded rule is chosen, and found by Ctrl K as a page", async ({ checked, shop }) => {
  await checked.goto(shop.url);
  await checked.keyboard.press("Control+k");
  await checked.getByRole("combobox", { name: "Find anything" }).fill("rule test");
  await checked.keyboard.press("Enter");
  await checked.getByRole("combobox", { name: "Loaded rule" }).selectOption("Slow");
  await expect(checked.getByRole("textbox", { name: "Rule in YAML" })).toHaveValue(/^alert: 'Slow'\nexpr: 'vector\(1\)'\nfor: 1h\nlabels:\n {2}'severity': 'warning'\n$/);
  await expect(outcome(checked)).toContainText(/1 firing of 1 alert/);
  await expect(checked.getByRole("textbox", { name: /Evaluated every/ })).toHaveValue("1s");
});

test("the dialog of a query leads here with its rule and range", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}query?g0.expr=demo_temperature&range=30m`);
  await expect(checked.locator(".u-over")).toBeVisible();
  await checked.getByRole("button", { name: "More for query A" }).click();
  await checked.getByRole("button", { name: "Open as alert rule" }).click();
  const dialog = checked.getByRole("dialog", { name: "Alert rule" });
  await dialog.getByRole("textbox", { name: "Threshold" }).fill("20");
  await dialog.getByRole("link", { name: "Test it over the past" }).click();
  await expect(checked.getByRole("textbox", { name: "Rule in YAML" })).toHaveValue(/expr: 'demo_temperature > 20'\n {2}for: 5m/);
  await expect(outcome(checked)).toContainText("In the 30 min:");
});

test.describe("with a rule folder", () => {
  // The browser logs each answer that is an error, also the 404 of a group that does not exist yet.
  test.use({ allowed: /Failed to load resource.*(400|404)/ });

  interface Loaded { groups: { name: string; file: string; rules: { name: string; query: string; health: string }[] }[] }

  const loaded = async (firn: Firn): Promise<string[]> => {
    const { data } = (await (await fetch(`${firn.url}api/v1/rules`)).json()) as { data: Loaded };
    return data.groups.flatMap(({ name, file, rules }) => rules.map((rule) => `${file} ${name} ${rule.name} ${rule.query} ${rule.health}`));
  };

  test("a group is written, mended at its line, evaluated, renamed and deleted", async ({ checked, serve }) => {
    const firn = await serve({ files: { "firn.yml": "firn: {rules: {folder: DIR/rules.d}}\nglobal: {evaluation_interval: 1s}\n" } });
    await checked.goto(`${firn.url}rules?refresh=1s`);
    await checked.getByRole("button", { name: "New group" }).click();
    const dialog = checked.getByRole("dialog", { name: /ule group/ });
    await expect(dialog.getByRole("status")).toHaveText("1 rule, no mistake found.");
    const namespace = dialog.getByRole("textbox", { name: "Namespace of the rule folder" });
    await namespace.fill("team/a");
    const yaml = dialog.getByRole("textbox", { name: "Rule group in YAML" });
    const save = dialog.getByRole("button", { name: "Save" });
    const bad = dialog.locator(".numbers .bad");
    // A mistake of an expression, one of the YAML, one of a key of the group, then none.
    await yaml.fill("# mine\nname: first\nrules:\n- record: a\n  expr: vector(1)\n\n- alert: B\n  expr: vector( >\n");
    await expect(bad).toHaveText("8");
    await expect(dialog).toContainText("could not parse expression");
    await save.click();
    await expect(dialog).toBeVisible();
    await dialog.getByRole("button", { name: "Line 8" }).click();
    await expect(yaml).toBeFocused();
    await yaml.fill("name: first\nrules: [\n");
    await expect(bad).toHaveText("3");
    await yaml.fill("# mine\nname: first\n\nruels: 5\nrules:\n- record: a\n  expr: vector(1)\n");
    await expect(dialog.getByRole("status")).toHaveText("1 rule, no mistake found.");
    await save.click();
    await expect(bad).toHaveText("4");
    await expect(dialog).toContainText("field ruels not found");
    await yaml.fill("name: first\nrules:\n- record: a\n  expr: vector(1)\n- alert: B\n  expr: vector(2) > 1\n");
    await expect(dialog.getByRole("status")).toHaveText("2 rules, no mistake found.");
    expect(await violations(checked)).toEqual([]);
    await checked.setViewportSize({ width: 400, height: 800 });
    expect(await dialog.evaluate((box) => box.scrollWidth - box.clientWidth)).toBe(0);
    await checked.setViewportSize({ width: 1280, height: 800 });
    await save.click();
    await expect(dialog).toHaveCount(0);
    await expect(checked.getByRole("button", { name: "New group" })).toBeFocused();
    await expect(main(checked).getByRole("table", { name: "Rules" })).toContainText("vector(2) > 1");
    await expect.poll(() => loaded(firn)).toEqual(["team/a first a vector(1) ok", "team/a first B vector(2) > 1 ok"]);
    await firn.waitForSeries("a == 1");

    await checked.getByRole("button", { name: "Edit first" }).click();
    await expect(yaml).toHaveValue("name: first\nrules:\n- record: a\n  expr: vector(1)\n- alert: B\n  expr: vector(2) > 1\n");
    await yaml.fill("name: second\nrules:\n- record: a\n  expr: vector(7)\n");
    await save.click();
    await expect(dialog).toHaveCount(0);
    await expect.poll(() => loaded(firn)).toEqual(["team/a second a vector(7) ok"]);

    // A change by others is never overwritten.
    await checked.getByRole("button", { name: "Edit second" }).click();
    await expect(yaml).toHaveValue(/^name: second/);
    await fetch(`${firn.url}config/v1/rules/team%2Fa`, { method: "POST", body: "name: second\nrules:\n- record: a\n  expr: vector(8)\n" });
    await yaml.fill("name: second\nrules:\n- record: a\n  expr: vector(9)\n");
    await save.click();
    await expect(dialog.getByRole("alert")).toContainText("the group second has changed on the server");
    await dialog.getByRole("button", { name: "Delete" }).click();
    const confirm = checked.getByRole("dialog", { name: "Delete the rule group second?" });
    await expect(confirm.getByRole("button", { name: "Delete the group" })).toBeDisabled();
    await confirm.getByRole("textbox").fill("second");
    await confirm.getByRole("button", { name: "Delete the group" }).click();
    await expect(checked.getByRole("dialog")).toHaveCount(0);
    await expect.poll(() => loaded(firn)).toEqual([]);

    // From the rule test, with the rule as it is there.
    await checked.goto(link(firn, { rule: "alert: Late\nexpr: vector(3) > 2\n", interval: "2s" }));
    await checked.getByRole("button", { name: "Save to a group" }).click();
    await expect(yaml).toHaveValue("name: 'Late'\ninterval: 2s\nrules:\n- alert: Late\n  expr: vector(3) > 2\n");
    await save.click();
    await main(checked).getByRole("link", { name: "Late" }).click();
    await expect(main(checked).getByRole("table", { name: "Rules" })).toContainText("vector(3) > 2");

    // Without the scope there is nothing to edit with.
    await answer(checked, "status/access", { name: "reader", scopes: ["read"], match: [], tenants: [] });
    await checked.reload();
    await expect(main(checked).getByRole("table", { name: "Rules" })).toContainText("vector(3) > 2");
    await expect(checked.getByRole("button", { name: /^(Edit|New group)/ })).toHaveCount(0);
  });
});
