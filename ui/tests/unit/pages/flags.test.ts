import { afterEach, describe, expect, test, vi } from "vitest";
import { loadFlags, orderedFlags } from "../../../src/pages/flags";

afterEach(() => {
  vi.unstubAllGlobals();
});

// A server that answers these paths; others are 404.
function serve(answers: Record<string, { status: number; data?: unknown }>): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", (address: string) => {
    const path = new URL(address).pathname.replace("/api/v1/", "");
    asked.push(path);
    const { status, data } = answers[path] ?? { status: 404 };
    const text = data === undefined ? "404 page not found" : JSON.stringify({ status: "success", data });
    const type = data === undefined ? "text/plain" : "application/json";
    return Promise.resolve(new Response(text, { status, headers: { "content-type": type } }));
  });
  return asked;
}

const setting = (name: string, changed: boolean) => ({ name, value: "b", default: "a", changed, help: "text" });
const load = () => loadFlags(new AbortController().signal);

describe("flags", () => {
  test("come with defaults and descriptions, changed ones first", async () => {
    const asked = serve({ "status/settings": { status: 200, data: { settings: [setting("b", false), setting("c", true), setting("a", false)] } } });
    const outcome = await load();
    expect(outcome.ok && orderedFlags(outcome.data).map(({ name }) => name)).toEqual(["c", "a", "b"]);
    expect(asked).toEqual(["status/settings"]);
  });

  test("of a server without settings have values only", async () => {
    const asked = serve({ "status/flags": { status: 200, data: { "web.x": "1" } } });
    const outcome = await load();
    expect(outcome.ok && outcome.data).toEqual([{ name: "web.x", value: "1", changed: false, help: "" }]);
    expect(asked).toEqual(["status/settings", "status/flags"]);
  });

  test("other failures are no reason to ask again", async () => {
    const asked = serve({ "status/settings": { status: 502 } });
    expect((await load()).ok).toBe(false);
    expect(asked).toEqual(["status/settings"]);
  });
});
