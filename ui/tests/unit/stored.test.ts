import { beforeEach, expect, test } from "vitest";
import { isText, listOf, oneOf, Stored } from "../../src/state/stored";

const items = new Map<string, string>();
const storage = { getItem: (key: string) => items.get(key) ?? null, setItem: (key: string, value: string) => items.set(key, value) };
const place = (): Storage => storage as unknown as Storage;

beforeEach(() => {
  items.clear();
});

test.each([
  ["nothing", undefined],
  ["no JSON", "{broken"],
  ["a value of another program", '"dark"'],
  ["another version", '{"version":2,"value":"dark"}'],
  ["a foreign value", '{"version":1,"value":"pink"}'],
  ["null", "null"],
])("%s is dropped", (_name, text) => {
  if (text !== undefined) items.set("k", text);
  expect(new Stored("k", 1, oneOf("light", "dark"), "light", place).read()).toBe("light");
});

test("a value is kept, and broken elements of lists are left out", () => {
  const list = new Stored<string[]>("k", 1, listOf(isText), [], place);
  list.write(["a", "b"]);
  expect(list.read()).toEqual(["a", "b"]);
  items.set("k", '{"version":1,"value":["a",5,null,"b"]}');
  expect(list.read()).toEqual(["a", "b"]);
});

test("without storage nothing fails", () => {
  const none = new Stored<string>("k", 1, isText, "default", () => {
    throw new Error("no storage");
  });
  none.write("x");
  expect(none.read()).toBe("default");
});
