// The pages of the table are the paths at which the server answers with index.html.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { refreshOf, ROUTES, routeOf } from "../../src/frame/routes";

const SERVER = new URL("../../../crates/core/server/src/routes/table/pages.rs", import.meta.url);

test("the server answers the same paths", () => {
  const rows = [...readFileSync(SERVER, "utf8").matchAll(/page_at\(\s*"([^"]+)"/g)].map(([, path]) => path);
  const pages = ROUTES.flatMap((route) => [route.path, ...(route.aliases ?? [])]);
  expect(rows.length).toBeGreaterThan(10);
  expect([...rows].sort()).toEqual([...pages].sort());
});

test("paths lead to pages", () => {
  expect(routeOf("/graph")?.title).toBe("Query");
  expect(routeOf("/targets/")?.title).toBe("Targets");
  expect(routeOf("/")?.title).toBe("Home");
  expect(routeOf("/none")).toBeUndefined();
  expect([refreshOf("/targets", undefined), refreshOf("/query", undefined), refreshOf("/targets", 0)]).toEqual([15, 0, 0]);
});
