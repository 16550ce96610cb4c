// Keys of the whole page: "g" and a letter goes to a page. Pages add their own.

import { address } from "../state/address.svelte";
import { settings } from "../state/settings.svelte";

export interface PageKey {
  // As typed: "g t", "/", "[".
  keys: string;
  does: string;
  run: () => unknown;
}

const NEXT_WITHIN_MS = 1500;

const LETTERS: readonly (readonly [string, string, string])[] = [
  ["h", "/", "Home"],
  ["q", "/query", "Query"],
  ["m", "/explore/metrics", "Metrics"],
  ["y", "/explore/cardinality", "Cardinality"],
  ["n", "/explore/usage", "Usage"],
  ["a", "/alerts", "Alerts"],
  ["r", "/rules", "Rules"],
  ["t", "/targets", "Targets"],
  ["d", "/service-discovery", "Discovery"],
  ["l", "/relabel", "Relabelling"],
  ["x", "/discards", "Refused samples"],
  ["u", "/queries", "Queries"],
  ["s", "/tsdb-status", "Storage"],
  ["c", "/config", "Configuration"],
  ["f", "/flags", "Flags"],
  ["i", "/status", "Status"],
];

const own: PageKey[] = LETTERS.map(([letter, path, title]) => ({
  keys: `g ${letter}`,
  does: `Go to ${title}`,
  run: () => {
    address.go(path);
  },
}));

const added = new Set<PageKey>();

export const pageKeys = (): readonly PageKey[] => [...own, ...added];

// Adds keys; returns a function that removes them, as effects require.
export function addKeys(...keys: PageKey[]): () => void {
  for (const key of keys) added.add(key);
  return () => {
    for (const key of keys) added.delete(key);
  };
}

// Listens until the returned function is called.
export function listen(): () => void {
  let pending = "";
  let since = 0;
  const onKey = (event: KeyboardEvent): void => {
    const isOff = settings.keys === "off" || event.ctrlKey || event.metaKey || event.altKey;
    if (isOff || event.defaultPrevented || isTyping(event)) return;
    const typed = event.timeStamp - since < NEXT_WITHIN_MS && pending !== "" ? `${pending} ${event.key}` : event.key;
    const all = pageKeys();
    const found = all.find((key) => key.keys === typed);
    pending = found === undefined && all.some((key) => key.keys.startsWith(`${typed} `)) ? typed : "";
    since = event.timeStamp;
    if (!found) return;
    event.preventDefault();
    found.run();
  };
  document.addEventListener("keydown", onKey);
  return () => {
    document.removeEventListener("keydown", onKey);
  };
}

// Whether the key goes into a field, also into one in a shadow root.
function isTyping(event: KeyboardEvent): boolean {
  const target = event.composedPath()[0];
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName) || target.closest("dialog") !== null;
}
