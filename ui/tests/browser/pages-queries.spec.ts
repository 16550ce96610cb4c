// The page of queries: running, expensive and past ones.

import { answer, main } from "./fixtures/answer";
import { expect, test } from "./fixtures/test";

test.describe("queries", () => {
  const running = {
    id: 7, query: "sum(rate(slow[30d]))", handler: "query_range", tenant: "anonymous", client: "10.0.0.9",
    ageSeconds: 12.3, samples: 1_234_567, bytes: 3_000_000, phase: "evaluate",
  };

  test("a running query shows what it costs, and is stopped after a question", async ({ checked, shop }) => {
    await answer(checked, "status/active_queries", { queries: [running] });
    const stopped: string[] = [];
    await checked.route("**/api/v1/status/active_queries/*", async (route) => {
      stopped.push(`${route.request().method()} ${new URL(route.request().url()).pathname}`);
      await route.fulfill({ json: { status: "success", data: { queries: [running] } } });
    });
    await checked.goto(`${shop.url}queries`);
    await expect(main(checked)).toContainText("1,234,567");
    await expect(main(checked)).toContainText("evaluates");
    await checked.getByRole("button", { name: "Stop" }).click();
    const dialog = checked.getByRole("dialog", { name: "Stop this query?" });
    await expect(dialog).toContainText("10.0.0.9, gets an error");
    await dialog.getByRole("button", { name: "Stop the query" }).click();
    await expect(dialog).toBeHidden();
    expect(stopped).toEqual(["DELETE /api/v1/status/active_queries/7"]);
  });

  test("requests without an expression are words, not empty links", async ({ checked, shop }) => {
    await answer(checked, "status/active_queries", { queries: [{ ...running, query: "", handler: "labels" }, running] });
    const nothing = { query: "", count: 3, avgDurationSeconds: 0.1, sumDurationSeconds: 0.3 };
    await answer(checked, "status/top_queries", { topByCount: [nothing], topByAvgDuration: [nothing], topBySumDuration: [nothing] });
    const ended = { query: "", tenant: "anonymous", client: "10.0.0.9", startedAt: "2026-11-20T10:00:00Z", durationSeconds: 1 };
    await answer(checked, "status/query_history", { queries: [ended] });
    for (const [view, words] of [["running", "Request for label names"], ["top", "Request without an expression"], ["history", "Request without an expression"]]) {
      await checked.goto(`${shop.url}queries?view=${view ?? ""}`);
      await expect(main(checked)).toContainText(words ?? "");
      await expect(main(checked).locator("td a", { hasNotText: /\S/ })).toHaveCount(0);
    }
    await checked.goto(`${shop.url}queries`);
    await checked.getByRole("button", { name: "Stop" }).first().click();
    await expect(checked.getByRole("dialog")).toContainText("Request for label names");
  });

  test("expensive and past queries lead to the query page", async ({ checked, shop }) => {
    await shop.query("count(demo_temperature)");
    await checked.goto(`${shop.url}queries?view=history&search=count(demo`);
    await expect(main(checked).getByRole("link", { name: "count(demo_temperature)" }).first()).toHaveAttribute("href", /g0\.expr=count/);
    await checked.getByRole("searchbox", { name: "Search" }).fill("");
    await checked.getByRole("button", { name: "Most expensive" }).click();
    await expect(checked.getByRole("table", { name: "Most expensive queries" })).toContainText("vector(91.5) > 90");
  });
});
