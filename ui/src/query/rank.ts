// How well a name fits a typed word.

// Rank of a name that contains the parts of the word at separate places.
const SCATTERED = 4;

// Smaller is better; undefined does not fit. The word may begin the name, begin a part of it, lie
// within it, or its parts may follow one another in it ("req tot" and "request_total").
export function rank(name: string, word: string): number | undefined {
  const [hay, needle] = [name.toLowerCase(), word.toLowerCase()];
  const length = hay.length / 1000;
  if (hay.startsWith(needle)) return length;
  const at = hay.indexOf(needle);
  if (at >= 0) return (/[_:./-]/.test(hay[at - 1] ?? "") ? 1 : 2) + length;
  let from = 0;
  for (const part of needle.split(/[_: ]/)) {
    const found = hay.indexOf(part, from);
    if (found < 0) return undefined;
    from = found + part.length;
  }
  return SCATTERED + length;
}

// Whether a text contains each of the words of a search, also with other signs between their parts.
export function fitsWords(text: string, words: string): boolean {
  return words.trim().split(/\s+/).every((word) => (rank(text, word) ?? SCATTERED) < SCATTERED);
}

// The best `count` of `items`, best first.
export function best<T>(items: readonly T[], name: (item: T) => string, word: string, count: number): T[] {
  const ranked: { item: T; place: number }[] = [];
  for (const item of items) {
    const place = rank(name(item), word);
    if (place !== undefined) ranked.push({ item, place });
  }
  return ranked
    .sort((a, b) => a.place - b.place)
    .slice(0, count)
    .map(({ item }) => item);
}

// Number of letters to add, drop or replace between two words; gives up above `most`.
export function distance(a: string, b: string, most = 8): number {
  if (Math.abs(a.length - b.length) > most) return most + 1;
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    if (Math.min(...next) > most) return most + 1;
    row = next;
  }
  return row[b.length] ?? most + 1;
}

// The names nearest to a word, nearest first; those that share nothing with it are left out.
export function nearest(names: readonly string[], word: string, count = 3): string[] {
  const most = Math.max(2, Math.floor(word.length / 2));
  return names
    .map((name) => {
      const isPart = name.includes(word) || word.includes(name);
      return { name, far: isPart ? Math.abs(name.length - word.length) / 100 : distance(name, word, most) };
    })
    .filter(({ far, name }) => far <= most && name !== word)
    .sort((a, b) => a.far - b.far || (a.name < b.name ? -1 : 1))
    .slice(0, count)
    .map(({ name }) => name);
}
