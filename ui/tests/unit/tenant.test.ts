import { afterEach, expect, test } from "vitest";
import { failureOf } from "../../src/api/failure";
import { WAYS } from "../../src/pages/sending";
import { curl, firnQuery } from "../../src/query/export";
import { isTenant, tenant } from "../../src/state/tenant.svelte";

afterEach(() => {
  tenant.name = "";
});

test.each([
  ["a", true],
  ["team-a_1.x*'()!", true],
  ["a|b|c", true],
  ["x".repeat(150), true],
  ["x".repeat(151), false],
  ["", false],
  ["a|", false],
  ["a||b", false],
  ["a b", false],
  ["a/b", false],
  ["..", false],
  ["a|.", false],
  ["é", false],
])("%j as a tenant: %s", (text, expected) => {
  expect(isTenant(text)).toBe(expected);
});

test("a valid tenant alone is sent as a header", () => {
  expect(tenant.headers()).toEqual({});
  tenant.name = "a|b";
  expect(tenant.headers()).toEqual({ "X-Scope-OrgID": "a|b" });
  tenant.name = "a b";
  expect(tenant.headers()).toEqual({});
});

test.each([
  [{}, '{"status":"error","errorType":"bad_data","error":"no org id"}', "tenant"],
  [{ "content-type": "text/plain" }, "no org id\n", "tenant"],
  [{ "content-type": "text/plain" }, "Unauthorized\n", "sign-in"],
])("a 401 with %j and %j is a request for %s", (headers, text, kind) => {
  expect(failureOf(401, new Headers(headers as Record<string, string>), text).kind).toBe(kind);
});

test("texts for other tools have the tenant", () => {
  const question = { expr: "up", kind: "instant", start: 0, end: 60, step: 15 } as Parameters<typeof curl>[0];
  expect(curl(question)).not.toContain("-H");
  tenant.name = "it's|b";
  expect(curl(question)).toContain("curl -s -H 'X-Scope-OrgID: it'\\''s|b' http");
  expect(firnQuery(question)).toContain("--header 'X-Scope-OrgID=it'\\''s|b' http");
  const texts = WAYS.map(({ code }) => code("http://h/", "a"));
  expect(texts.every((text) => /__tenant_id__: "a"|X-Scope-OrgID(: |=)"?a/.test(text))).toBe(true);
  expect(WAYS.some(({ code }) => /Scope|tenant/.test(code("http://h/", "")))).toBe(false);
});
