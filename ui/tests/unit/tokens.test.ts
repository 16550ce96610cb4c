// Contrasts and distances of the colours, computed from tokens.css.

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";

const CSS = readFileSync(new URL("../../src/look/tokens.css", import.meta.url), "utf8");

function tokens(selector: string): Record<string, string> {
  const block = CSS.split(`${selector} {`)[1]?.split("}")[0] ?? "";
  return Object.fromEntries([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name, value]) => [name, value]));
}

const THEMES = { light: tokens(":root"), dark: tokens(':root[data-theme="dark"]') };

type Rgb = [number, number, number];

// Linear components of "#rrggbb".
function linear(colour: string): Rgb {
  const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  return parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)) as Rgb;
}

function contrast(one: string, other: string): number {
  const light = (colour: string): number => {
    const [r, g, b] = linear(colour);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const ratio = light(one) / light(other);
  return Math.max(ratio, 1 / ratio);
}

// What eyes without red or green cones see: the matrices of Machado, Oliveira and Fernandes 2009 for a
// whole deficiency, on linear components.
const MATRICES: Record<string, [Rgb, Rgb, Rgb]> = {
  all: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
};

function seen(matrix: [Rgb, Rgb, Rgb], [r, g, b]: Rgb): Rgb {
  return matrix.map((row) => Math.min(1, Math.max(0, row[0] * r + row[1] * g + row[2] * b))) as Rgb;
}

function lab([r, g, b]: Rgb): Rgb {
  const x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047;
  const y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  const z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883;
  const [fx, fy, fz] = [x, y, z].map((t) => (t > 216 / 24389 ? Math.cbrt(t) : (24389 / 27 * t + 16) / 116)) as Rgb;
  return [116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)];
}

const distance = (one: Rgb, other: Rgb): number => Math.hypot(...one.map((c, i) => c - (other[i] ?? 0)));

describe.each(Object.entries(THEMES))("%s", (theme, colours) => {
  const of = (name: string): string => colours[name] ?? (theme === "dark" ? THEMES.light[name] : undefined) ?? "";

  test.each([
    ["text", "card"], ["text", "bg"], ["text", "sunken"], ["muted", "card"], ["muted", "bg"], ["muted", "sunken"],
    ["accent", "card"], ["accent", "accent-soft"], ["on-accent", "accent"], ["good", "good-soft"], ["warn", "warn-soft"],
    ["bad", "bad-soft"], ["good", "card"], ["warn", "card"], ["bad", "card"], ["keyword", "card"],
  ])("text %s on %s has a contrast of 4.5", (text, ground) => {
    expect(contrast(of(text), of(ground))).toBeGreaterThanOrEqual(4.5);
  });

  test.each(["control", ...Array.from({ length: 8 }, (_, i) => `series-${i + 1}`)])("%s on the card has a contrast of 3", (name) => {
    expect(contrast(of(name), of("card"))).toBeGreaterThanOrEqual(3);
  });

  test.each(Object.entries(MATRICES))("series colours differ for eyes with %s", (_name, matrix) => {
    const least = theme === "light" ? 20 : 27;
    const labs = Array.from({ length: 8 }, (_, i) => lab(seen(matrix, linear(of(`series-${i + 1}`)))));
    for (const [i, one] of labs.entries()) {
      for (const [j, other] of labs.entries()) {
        if (j > i) expect(distance(one, other), `series-${i + 1} and series-${j + 1}`).toBeGreaterThanOrEqual(least);
      }
    }
  });
});
