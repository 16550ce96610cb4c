// Queries of this browser: those that ran, newest first, and those that were saved under a name.

import { isText, listOf, oneOf, Stored } from "../state/stored";

const HISTORY_MAX = 500;

const kept = new Stored<string[]>("firn.history", 1, listOf(isText), []);
const mode = new Stored<"on" | "off">("firn.history.mode", 1, oneOf("on", "off"), "on");

export interface SavedQuery {
  name: string;
  expr: string;
}

function savedQuery(raw: unknown): SavedQuery | undefined {
  if (typeof raw !== "object" || raw === null) return undefined;
  const { name, expr } = raw as Record<string, unknown>;
  return typeof name === "string" && typeof expr === "string" ? { name, expr } : undefined;
}

const saved = new Stored<SavedQuery[]>("firn.saved", 1, listOf(savedQuery), []);

// Without storage the lists live as long as the page.
let history = kept.read();
let queries = saved.read();

export const readHistory = (): readonly string[] => history;
export const isHistoryOn = () => mode.read() === "on";

export function remember(expr: string): void {
  const text = expr.trim();
  if (text === "" || !isHistoryOn()) return;
  // Other tabs write too: their queries are kept.
  const known = kept.read();
  const list = known.length > 0 ? known : history;
  history = [text, ...list.filter((old) => old !== text)].slice(0, HISTORY_MAX);
  kept.write(history);
}

export function clearHistory(): void {
  history = [];
  kept.write(history);
}

export function setHistory(isOn: boolean): void {
  mode.write(isOn ? "on" : "off");
  if (!isOn) clearHistory();
}

export const readSaved = (): readonly SavedQuery[] => queries;

function keep(list: SavedQuery[]): void {
  queries = list;
  saved.write(list);
}

// Saves a query; one of the same name is replaced.
export function save(query: SavedQuery): void {
  keep([...queries.filter(({ name }) => name !== query.name), query].sort((a, b) => a.name.localeCompare(b.name)));
}

export const forget = (name: string) => keep(queries.filter((query) => query.name !== name));

// The saved queries as a file, and the queries of such a file. Undefined if it is none.
export const exportSaved = () => JSON.stringify({ firn: "saved queries", queries }, null, 2);

export function importSaved(text: string): number | undefined {
  try {
    const { queries: list } = JSON.parse(text) as { queries?: unknown };
    const found = listOf(savedQuery)(list);
    if (found === undefined) return undefined;
    for (const query of found) save(query);
    return found.length;
  } catch {
    return undefined;
  }
}
