// Colours of series. The eight colours are tokens of the theme (`--series-1` to `--series-8`); from the ninth
// series on they repeat dashed, then dotted. A series keeps its colour as long as its panel
// lives: refreshes, sorts and filters do not change it.

export const COLOURS = 8;

// Lengths of strokes and gaps in CSS pixels; empty for a solid line.
const DASHES: readonly (readonly number[])[] = [[], [7, 4], [2, 3]];

export interface LineStyle {
  // 1 to 8: number of the token.
  colour: number;
  dash: readonly number[];
}

export function lineStyle(index: number): LineStyle {
  const round = Math.floor(index / COLOURS) % DASHES.length;
  return { colour: (index % COLOURS) + 1, dash: DASHES[round] ?? [] };
}

// Remembers which place in the order of colours each series has.
export class ColourBook {
  private readonly places = new Map<string, number>();

  // Gives places to the series of an answer, beside others of the same graph; those that are known keep theirs.
  assign(keys: readonly string[], others: readonly string[] = []): number[] {
    const all = [...keys, ...others];
    const present = new Set(all);
    // Places of series that left are free again once the book is full of them.
    if (this.places.size > 4096) {
      for (const key of this.places.keys()) if (!present.has(key)) this.places.delete(key);
    }
    const used = new Set(all.flatMap((key) => this.places.get(key) ?? []));
    let next = 0;
    return keys.map((key) => {
      const known = this.places.get(key);
      if (known !== undefined) return known;
      while (used.has(next)) next += 1;
      used.add(next);
      this.places.set(key, next);
      return next;
    });
  }
}

let theme: string | undefined;
const tokens = new Map<string, string>();

// Value of a colour token of the page; canvases need the value itself. Values are kept until the theme
// changes, because a graph of many lines reads them often.
export function token(name: string): string {
  const root = document.documentElement;
  if (root.dataset.theme !== theme) {
    theme = root.dataset.theme;
    tokens.clear();
  }
  let value = tokens.get(name);
  if (value === undefined) {
    value = getComputedStyle(root).getPropertyValue(`--${name}`).trim();
    tokens.set(name, value);
  }
  return value;
}
