// Orders of lists. In the address an order is the name of a column, with "-" before it for descending.

export interface Order {
  column: string;
  isDescending: boolean;
}

export function parseOrder(text: string): Order | undefined {
  if (text === "" || text === "-") return undefined;
  const isDescending = text.startsWith("-");
  return { column: isDescending ? text.slice(1) : text, isDescending };
}

// The order after a click on the head of a column: its first direction, then the other one, then none.
export function nextOrder(text: string, column: string, isDescendingFirst: boolean): string {
  const first = isDescendingFirst ? `-${column}` : column;
  const second = isDescendingFirst ? column : `-${column}`;
  if (text === first) return second;
  return text === second ? "" : first;
}

export type SortKey = string | number | undefined;

const collator = new Intl.Collator("en", { numeric: true });

function compare(a: string | number, b: string | number): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(String(a), String(b));
}

// Returns the items in an order. Equal items keep their places; items without a key are last in both
// directions, and NaN counts as no key.
export function sorted<T>(items: readonly T[], key: (item: T) => SortKey, isDescending: boolean): T[] {
  const keyed = items.map((item) => ({ item, key: key(item) }));
  const isMissing = (value: SortKey) => value === undefined || Number.isNaN(value);
  keyed.sort((a, b) => {
    const [missingA, missingB] = [isMissing(a.key), isMissing(b.key)];
    if (missingA || missingB) return Number(missingA) - Number(missingB);
    const order = compare(a.key as string | number, b.key as string | number);
    return isDescending ? -order : order;
  });
  return keyed.map(({ item }) => item);
}

// Returns the items in an order of the address, by the key of its column; undefined without such an order.
export function sortedBy<T>(items: readonly T[], order: string, keys: Record<string, (item: T) => SortKey>): T[] | undefined {
  const wanted = parseOrder(order);
  const key = keys[wanted?.column ?? ""];
  return wanted && key && sorted(items, key, wanted.isDescending);
}

// Lists of the items with the same key, in the order of the keys.
export function grouped<T>(items: readonly T[], key: (item: T) => string): [string, T[]][] {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const name = key(item);
    const group = groups.get(name);
    if (group) group.push(item);
    else groups.set(name, [item]);
  }
  return [...groups].sort(([a], [b]) => collator.compare(a, b));
}
