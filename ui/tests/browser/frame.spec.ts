// The frame of all pages: menu, paths, address, theme, states of requests.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROUTES } from "../../src/frame/routes";
import { violations } from "./fixtures/axe";
import { startProxy } from "./fixtures/firn";
import { expect, test } from "./fixtures/test";

const TITLES = Object.fromEntries(ROUTES.map((route) => [route.path, route.title]));

test("each path of Prometheus's page opens the page of its name, also with a slash and by reload", async ({ checked, shop }) => {
  const paths = Object.entries(TITLES).filter(([path]) => path !== "/cluster");
  for (const [path, title] of [...paths, ["/graph", "Query"], ["/agent", "Status"], ["/targets?search=shop", "Targets"]]) {
    await checked.goto(shop.url + (path ?? "").slice(1));
    await expect(checked.getByRole("heading", { level: 1 })).toHaveText(title ?? "");
    await expect(checked).toHaveTitle(/Firn$/);
  }
});

test("paths that are no page stay 404", async ({ request, shop }) => {
  for (const path of ["nothing", "targets/x", "assets/none.js", "explore"]) {
    expect((await request.get(shop.url + path)).status(), path).toBe(404);
  }
});

test("all pages are reached from a phone's menu, and no page scrolls sideways", async ({ checked, shop }) => {
  await checked.setViewportSize({ width: 400, height: 800 });
  await checked.goto(shop.url);
  for (const { path, title, within } of ROUTES) {
    // Pages without an entry of their own are reached from others.
    if (path === "/cluster" || within !== undefined) continue;
    await checked.getByRole("button", { name: "Menu" }).click();
    await checked.getByRole("navigation").getByRole("link", { name: title, exact: false }).first().click();
    await expect(checked.getByRole("heading", { level: 1 })).toHaveText(title);
    await expect(checked.locator("nav.open")).toHaveCount(0);
    const width = await checked.evaluate(() => document.documentElement.scrollWidth);
    expect(width, title).toBeLessThanOrEqual(400);
  }
});

test("the menu counts firing, failing and down entries, and marks the page", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}alerts`);
  const menu = checked.getByRole("navigation");
  await expect(menu.getByRole("link", { name: /Alerts 1 firing/ })).toHaveAttribute("aria-current", "page");
  await expect(menu.getByRole("link", { name: /Targets 1 down/ })).toBeVisible();
  await expect(menu.getByRole("link", { name: /Rules 1 failing/ })).toBeVisible();
});

test("queries survive a walk through the pages", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}query?g0.expr=demo_temperature&g0.tab=graph&g0.range_input=30m`);
  await checked.getByRole("navigation").getByRole("link", { name: "Targets" }).click();
  await expect(checked.getByRole("heading", { level: 1 })).toHaveText("Targets");
  await checked.getByRole("navigation").getByRole("link", { name: "Query", exact: true }).click();
  await expect.poll(() => new URL(checked.url()).searchParams.get("g0.expr")).toBe("demo_temperature");
  await expect(checked.getByRole("button", { name: /Time range: Last 30 min/ })).toBeVisible();
});

test("the theme follows the system, and the choice in the settings is kept", async ({ checked, fresh }) => {
  await checked.emulateMedia({ colorScheme: "dark" });
  await checked.goto(`${fresh.url}flags`);
  const theme = checked.locator("html");
  await expect(theme).toHaveAttribute("data-theme", "dark");
  await checked.getByRole("button", { name: "Settings" }).click();
  await checked.getByRole("button", { name: "Light" }).click();
  await expect(theme).toHaveAttribute("data-theme", "light");
  await checked.reload();
  await expect(theme).toHaveAttribute("data-theme", "light");
});

test("a range that is none is kept, marked and explained, and a right one goes into the address", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}query?g0.expr=up&g0.range_input=1h`);
  await checked.getByRole("button", { name: /Time range:/ }).click();
  const range = checked.getByLabel("Range", { exact: true });
  await range.fill("abc");
  await checked.getByRole("button", { name: "Show" }).click();
  await expect(range).toHaveValue("abc");
  await expect(range).toHaveAttribute("aria-invalid", "true");
  await expect(checked.getByText("Expected: a duration like 90s or 1h30m")).toBeVisible();
  await range.fill("2h");
  await checked.getByRole("button", { name: "Show" }).click();
  await expect.poll(() => new URL(checked.url()).searchParams.get("g0.range_input")).toBe("2h");
  await checked.goBack();
  await expect.poll(() => new URL(checked.url()).searchParams.get("g0.range_input")).toBe("1h");
});

test("keys of one letter go to pages, and can be switched off", async ({ checked, fresh }) => {
  await checked.goto(`${fresh.url}flags`);
  await expect(checked.getByRole("heading", { level: 1 })).toHaveText("Flags");
  await checked.keyboard.press("g");
  await checked.keyboard.press("t");
  await expect(checked.getByRole("heading", { level: 1 })).toHaveText("Targets");
  await checked.getByRole("button", { name: "Settings" }).click();
  await checked.getByLabel("Keys of one letter").uncheck();
  await checked.keyboard.press("Escape");
  await checked.keyboard.press("g");
  await checked.keyboard.press("f");
  await expect(checked.getByRole("heading", { level: 1 })).toHaveText("Targets");
});

test.describe("with a route prefix", () => {
  test("pages, links and requests stay below it", async ({ checked, serve }) => {
    const firn = await serve({ flags: ["--web.external-url=http://localhost/a/firn"] });
    await checked.goto(`${firn.url}a/firn/flags`);
    await expect(checked.getByRole("heading", { level: 1 })).toHaveText("Flags");
    await checked.getByRole("navigation").getByRole("link", { name: "Status" }).click();
    await expect(checked).toHaveURL(`${firn.url}a/firn/status`);
    await checked.goto(firn.url);
    await expect(checked).toHaveURL(`${firn.url}a/firn/`);
    // A path of two segments, opened by its address and left by a link.
    await checked.goto(`${firn.url}a/firn/explore/cardinality`);
    await expect(checked.locator("main")).toContainText("Series by metric");
    await checked.getByRole("navigation").getByRole("link", { name: "Flags" }).click();
    await expect(checked).toHaveURL(`${firn.url}a/firn/flags`);
    await expect(checked.locator("main")).toContainText("--web.external-url");
  });
});

test("behind a proxy that takes a path prefix away, pages, links and requests keep it", async ({ checked, shop }) => {
  const proxy = await startProxy(shop, { prefix: "/deep/firn" });
  const outside: string[] = [];
  checked.on("request", (request) => {
    if (!request.url().startsWith(proxy.url)) outside.push(request.url());
  });
  // A link of Prometheus, then a path of two segments.
  await checked.goto(`${proxy.url}graph?g0.expr=demo_temperature&g0.tab=0`);
  await expect(checked).toHaveURL(new RegExp(`^${proxy.url}query\\?`));
  await expect(checked.locator(".u-over")).toBeVisible();
  await checked.getByRole("navigation").getByRole("link", { name: "Cardinality" }).click();
  await expect(checked).toHaveURL(new RegExp(`^${proxy.url}explore/cardinality`));
  await checked.reload();
  await expect(checked.locator("main")).toContainText("Series by metric");
  await checked.getByRole("link", { name: "Metrics of this selection" }).click();
  await expect(checked).toHaveURL(new RegExp(`^${proxy.url}explore/metrics`));
  await expect(checked.locator("main")).toContainText("demo_temperature");
  await checked.goto(`${proxy.url}alerts`);
  await checked.locator('main a[href*="query?"]').first().click();
  await expect(checked).toHaveURL(new RegExp(`^${proxy.url}query\\?`));
  await expect(checked.locator(".u-over")).toBeVisible();
  await checked.goBack();
  await expect(checked.getByRole("heading", { level: 1 })).toHaveText("Alerts");
  expect(outside).toEqual([]);
  proxy.stop();
});

test.describe("failures", () => {
  // The browser itself logs each failed request.
  test.use({ allowed: /Failed to load resource/ });

  const cases: [string, { status: number; contentType?: string; headers?: Record<string, string>; body: string }, RegExp][] = [
    ["a proxy's HTML", { status: 502, contentType: "text/html", body: "<html><body><h1>Bad Gateway</h1></body></html>" }, /No answer from Firn.*502 from something in between/],
    ["an answer that is no JSON", { status: 200, contentType: "text/html", body: "<p>hello</p>" }, /No answer from Firn/],
    ["a missing scope", { status: 403, body: '{"status":"error","errorType":"bad_data","error":"token \\"t\\" does not have the scope \\"read\\""}' }, /Not allowed.*does not have the scope/],
    ["a limit of requests", { status: 429, contentType: "text/plain", body: "Too Many Requests\n" }, /Too many requests.*Tries again/],
    ["a full server", { status: 503, headers: { "retry-after": "7" }, body: '{"status":"error","errorType":"unavailable","error":"too many queries"}' }, /Busy.*too many queries.*Tries again in [5-7] s/],
    ["a query that is refused", { status: 422, body: '{"status":"error","errorType":"execution","error":"too much"}' }, /execution.*too much/],
  ];

  for (const [name, answer, text] of cases) {
    test(`${name} is shown in words`, async ({ checked, fresh }) => {
      await checked.route("**/api/v1/status/settings*", (route) => route.fulfill({ contentType: "application/json", ...answer }));
      await checked.goto(`${fresh.url}flags`);
      await expect(checked.locator("main")).toContainText(text);
    });
  }

  test("a cut connection shows a bar, keeps the content with its age, and ends by itself", async ({ checked, serve }) => {
    const firn = await serve();
    await checked.goto(`${firn.url}targets?refresh=2s`);
    await expect(checked.locator("main")).toContainText("/metrics");
    await firn.stop("SIGKILL");
    await expect(checked.getByText("No connection to Firn since")).toBeVisible();
    await expect(checked.locator("main")).toContainText("As of");
    await expect(checked.locator("main")).toContainText("/metrics");
    await serve({ folder: firn.folder, port: firn.port });
    await expect(checked.getByText("No connection to Firn since")).toHaveCount(0);
  });

  test("a server that starts shows its replay, and the page goes on by itself", async ({ checked, fresh }) => {
    let isStarting = true;
    await checked.route("**/api/v1/**", (route) => {
      const path = new URL(route.request().url()).pathname;
      if (!isStarting) return route.continue();
      if (path.endsWith("/walreplay")) {
        return route.fulfill({ contentType: "application/json", body: '{"status":"success","data":{"min":0,"max":10,"current":4}}' });
      }
      return route.fulfill({ status: 503, headers: { "x-prometheus-stopping": "false" }, contentType: "text/plain", body: "Service Unavailable" });
    });
    await checked.goto(`${fresh.url}flags`);
    await expect(checked.locator("main")).toContainText("replays its log: 40 %");
    isStarting = false;
    await expect(checked.locator("main")).toContainText("--web.listen-address");
  });

  test("a server of another build is noticed", async ({ checked, fresh }) => {
    let version = "1";
    await checked.route("**/api/v1/status/buildinfo", (route) =>
      route.fulfill({ contentType: "application/json", body: `{"status":"success","data":{"version":"${version}"}}` }),
    );
    let isCut = false;
    await checked.route("**/api/v1/targets*", (route) => (isCut ? route.abort() : route.continue()));
    await checked.goto(`${fresh.url}targets?refresh=2s`);
    await expect(checked.locator("main")).toContainText("/metrics");
    version = "2";
    isCut = true;
    await expect(checked.getByText("Firn was upgraded.")).toBeVisible();
  });
});

test.describe("notifications", () => {
  // The browser logs the requests to a server that stopped.
  test.use({ allowed: /Failed to load resource/ });

  test("the bell follows the server, reads its notifications out, and opens from Home and Status", async ({ checked, serve }) => {
    const firn = await serve({ files: { "firn.yml": "global: {scrape_interval: 1s}\n" }, flags: ["--web.enable-lifecycle"] });
    const reload = (config: string) => {
      writeFileSync(join(firn.folder, "firn.yml"), config);
      return fetch(`${firn.url}-/reload`, { method: "POST" });
    };
    await checked.goto(firn.url);
    const banner = checked.getByRole("banner");
    await banner.getByRole("button", { name: "No notifications" }).click();
    await expect(banner).toContainText("The server has no notifications.");
    await checked.keyboard.press("Escape");
    expect((await reload("broken: [")).ok).toBe(false);
    await expect(checked.getByRole("status").filter({ hasText: "Notification: Configuration reload has failed." })).toHaveCount(1);
    const button = checked.locator("main").getByRole("button", { name: "1 notification" });
    await button.click();
    await expect(banner.getByRole("listitem")).toContainText(/Configuration reload has failed\..* (ago|now)/);
    expect(await violations(checked)).toEqual([]);
    await checked.keyboard.press("Escape");
    await checked.goto(`${firn.url}status`);
    await button.click();
    await expect(banner.getByRole("listitem")).toHaveCount(1);
    expect((await reload("global: {scrape_interval: 2s}\n")).ok).toBe(true);
    await expect(banner).toContainText("The server has no notifications.");
    await expect(button).toHaveCount(0);
    await firn.stop();
    await expect(checked.getByText("No connection to Firn since")).toBeVisible();
  });
});

test.describe("with tokens", () => {
  test.use({ allowed: /status of 40[13]/ });

  test("the page opens a dialog for a token, keeps it in the tab, and shows its scopes", async ({ checked, serve }) => {
    const firn = await serve({
      files: {
        "firn.yml": `
firn:
  access:
    tokens:
    - {name: reader, token: token-of-the-reader, scopes: [read]}
    - {name: part, token: token-of-one-part, scopes: [read], match: '{team="a"}'}
`,
      },
    });
    await checked.goto(`${firn.url}flags`);
    const token = checked.getByLabel("Token", { exact: true });
    await token.fill("wrong-token-wrong");
    await checked.getByRole("dialog").getByRole("button", { name: "Sign in" }).click();
    await expect(checked.getByText("The server does not accept this token.").first()).toBeVisible();
    await token.fill("token-of-the-reader");
    await checked.getByRole("dialog").getByRole("button", { name: "Sign in" }).click();
    await expect(checked.locator("main")).toContainText("--web.listen-address");
    await checked.reload();
    await expect(checked.locator("main")).toContainText("--web.listen-address");
    expect(checked.url()).not.toContain("token-of");

    await checked.getByRole("button", { name: "Settings" }).click();
    await checked.getByRole("button", { name: "Sign out" }).click();
    await token.fill("token-of-one-part");
    await checked.getByRole("dialog").getByRole("button", { name: "Sign in" }).click();
    const menu = checked.getByRole("navigation");
    await expect(menu.getByRole("link", { name: "Query", exact: true })).toBeVisible();
    await expect(menu.getByRole("link", { name: "Targets" })).toHaveCount(0);
    await expect(checked.locator("main")).toContainText("may read only some series");
  });
});

test.describe("with tenants", () => {
  test.use({ allowed: /status of 40[13]/ });

  const TOKENS = ["operator, token: token-of-the-operator", "one, token: token-of-one-tenant, tenants: [a]", "two, token: token-of-two-tenants, tenants: [a, b]"];
  const CONFIG = `
firn:
  multitenancy: true
  access:
    tokens:
${TOKENS.map((token) => `    - {name: ${token}, scopes: [read, write]}\n`).join("")}`;

  test("the page needs a tenant, keeps it in the address, and shows the data of no other", async ({ checked, serve }) => {
    const firn = await serve({ files: { "firn.yml": CONFIG } });
    for (const tenant of ["a", "b"]) {
      const headers = { Authorization: "Bearer token-of-the-operator", "X-Scope-OrgID": tenant };
      const written = await fetch(`${firn.url}api/v1/import/prometheus`, { method: "POST", headers, body: `money{owner="${tenant}"} 1\n` });
      expect(written.ok).toBe(true);
    }
    const signIn = async (token: string, path: string) => {
      await checked.goto(`${firn.url}-/healthy`);
      await checked.evaluate((text) => {
        sessionStorage.clear();
        sessionStorage.setItem("firn.token", text);
      }, token);
      await checked.goto(firn.url + path);
    };
    const table = "query?g0.expr=money&g0.tab=table";
    const main = checked.locator("main");
    const menu = checked.getByRole("navigation", { name: "Pages" });

    await signIn("token-of-the-operator", table);
    const name = checked.getByRole("textbox", { name: "Tenant" });
    await name.fill("team a");
    await name.press("Enter");
    await expect(main).toContainText("Expected: a name like team-a, or several as a|b");
    await expect(name).toHaveValue("team a");
    await name.fill("a");
    await name.press("Enter");
    await expect(main).toContainText(/owner.*a/);
    await expect(main).not.toContainText('"b"');
    await expect(checked).toHaveURL(/[?&]tenant=a(&|$)/);
    await expect(checked).toHaveURL(/g0\.expr=money/);
    // Links to other pages carry it, and a step back returns to the tenant before.
    await menu.getByRole("link", { name: "Metrics" }).click();
    await expect(checked).toHaveURL(/explore\/metrics\?tenant=a$/);
    await menu.getByRole("link", { name: "Query", exact: true }).click();
    await expect(checked.locator(".stats")).toContainText("1 series");
    await checked.getByRole("button", { name: "Tenant: a" }).click();
    await name.fill("a|b");
    await name.press("Enter");
    await expect(checked.getByRole("button", { name: "Tenant: a|b" })).toBeVisible();
    await expect(checked.locator(".stats")).toContainText("2 series");
    await expect(main).toContainText("__tenant_id__");
    await checked.getByRole("button", { name: "Tenant: a|b" }).click();
    await expect(checked.getByRole("group", { name: "Recent tenants" }).getByRole("button")).toHaveText(["a|b", "a"]);
    await checked.goBack();
    await expect(checked.getByRole("button", { name: "Tenant: a", exact: true })).toBeVisible();
    await expect(checked.locator(".stats")).toContainText("1 series");
    expect(await violations(checked)).toEqual([]);

    await signIn("token-of-two-tenants", table);
    await main.getByRole("combobox", { name: "Tenant" }).selectOption("b");
    await main.getByRole("button", { name: "Show" }).click();
    await expect(main).toContainText(/owner.*b/);
    const choice = checked.getByRole("banner").getByRole("combobox", { name: "Tenant" });
    await expect(choice.getByRole("option")).toHaveText(["a", "b", "a|b"]);
    await choice.selectOption("a");
    await expect(choice).toHaveValue("a");
    await expect(main).toContainText(/owner.*a/);

    await signIn("token-of-one-tenant", table);
    await expect(main).toContainText(/owner.*a/);
    await expect(choice).toHaveValue("a");
    await expect(menu.getByRole("link", { name: "Targets" })).toBeVisible();
    await expect(menu.getByRole("link", { name: "Flags" })).toHaveCount(0);
    await menu.getByRole("link", { name: "Usage" }).click();
    await expect(main).toContainText("No query and no rule has selected");
    await checked.goto(`${firn.url}${table}&tenant=b`);
    await expect(main).toContainText(/has no access to the tenant "b"/);
    await choice.selectOption("a");
    await expect(main).toContainText(/owner.*a/);
  });
});

test("without storage the page works", async ({ checked, fresh }) => {
  await checked.addInitScript(() => {
    for (const name of ["localStorage", "sessionStorage"]) {
      Object.defineProperty(window, name, { get: () => { throw new Error("no storage"); } });
    }
  });
  await checked.goto(`${fresh.url}flags`);
  await expect(checked.locator("main")).toContainText("--web.listen-address");
  await checked.getByRole("button", { name: "Settings" }).click();
  await checked.getByRole("button", { name: "Dark" }).click();
  await expect(checked.locator("html")).toHaveAttribute("data-theme", "dark");
});

test("a broken value in the storage is dropped", async ({ checked, fresh }) => {
  await checked.addInitScript(() => {
    localStorage.setItem("firn.theme", "{broken");
    localStorage.setItem("firn.zone", '{"version":1,"value":"No/Such"}');
  });
  await checked.goto(`${fresh.url}flags`);
  await expect(checked.locator("main")).toContainText("--web.listen-address");
});

test("Ctrl K finds pages, metrics, targets, rules and alerts, and opens them", async ({ checked, shop }) => {
  await checked.goto(`${shop.url}flags`);
  await expect(checked.locator("main")).toContainText("--web.listen-address");
  const cases: [string, RegExp, RegExp][] = [
    ["disco", /Discovery page/, /service-discovery$/],
    ["demo_temp", /demo_temperature metric/, /query\?g0\.expr=demo_temperature/],
    ["Empty", /Empty alert/, /alerts\?search=Empty/],
    ["shop:requests", /shop:requests:rate5m rule/, /rules\?search=/],
    ["127.0.0.1:1/", /127\.0\.0\.1:1\/metrics down target/, /targets\?search=127/],
  ];
  for (const [word, name, url] of cases) {
    await checked.keyboard.press("Control+k");
    await checked.getByRole("combobox", { name: "Find anything" }).fill(word);
    await expect(checked.getByRole("option", { name }).first()).toHaveAttribute("aria-selected", "true");
    await checked.keyboard.press("Enter");
    await expect(checked).toHaveURL(url);
    await expect(checked.getByRole("dialog")).toHaveCount(0);
  }
  await checked.keyboard.press("Control+k");
  await checked.getByRole("combobox", { name: "Find anything" }).fill("no such thing at all");
  await expect(checked.getByText("Nothing has this name.")).toBeVisible();
  await checked.keyboard.press("Escape");
  await expect(checked.getByRole("dialog")).toHaveCount(0);
});
