// The sources contain no markup that the content policy refuses: it would fail only when it is rendered.

import { readFileSync, readdirSync } from "node:fs";
import { expect, test } from "vitest";

const ROOT = new URL("../../src/", import.meta.url);

function sources(): [string, string][] {
  const names = readdirSync(ROOT, { recursive: true }).map(String);
  const files = names.filter((name) => /\.(svelte|ts|css)$/.test(name));
  return files.map((name) => [name, readFileSync(new URL(name, ROOT), "utf8")]);
}

const REFUSED: [string, RegExp][] = [
  // Svelte sets `style:name={value}` and `style="a: {b}"` by script, but copies this into markup.
  ["a style attribute without an expression", /<[^>]*\sstyle="[^"{]*"/],
  ["markup from a text", /\{@html|\.innerHTML|insertAdjacentHTML|outerHTML|document\.write/],
  ["code from a text", /\beval\(|new Function\(/],
  ["a data: or javascript: address", /["'(]data:[a-z]|javascript:/],
];

test.each(REFUSED)("no source has %s", (_name, pattern) => {
  const found = sources().filter(([, text]) => pattern.test(text));
  expect(found.map(([name]) => name)).toEqual([]);
});
