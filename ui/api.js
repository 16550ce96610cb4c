// The HTTP API. Paths are relative to the page, so that any route prefix works.

export class ApiError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

// Requests an endpoint and resolves with the JSON of a successful response.
export async function ask(path, params = {}, { signal, post = false } = {}) {
  const form = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of [value].flat()) if (one !== undefined && one !== "") form.append(name, one);
  }
  const url = `api/v1/${path}`;
  const response = post
    ? await fetch(url, { method: "POST", body: form, signal })
    : await fetch(`${url}?${form}`, { signal });
  const text = await response.text();
  let document;
  try {
    document = JSON.parse(text);
  } catch {
    throw new ApiError(String(response.status), text.trim() || response.statusText);
  }
  if (document.status !== "success") throw new ApiError(document.errorType, document.error);
  return document;
}

export const query = (expr, time, options) => ask("query", { query: expr, time }, { post: true, ...options });

export const queryRange = (expr, { start, end, step }, options) =>
  ask("query_range", { query: expr, start, end, step }, { post: true, ...options });

const cache = new Map();
const KEPT_MS = 30_000;

// Names and values for completion, kept for half a minute. A failed request means no suggestions.
export function names(path, match) {
  const key = `${path} ${match ?? ""}`;
  const known = cache.get(key);
  if (known && performance.now() - known.since < KEPT_MS) return known.promise;
  const promise = ask(path, { "match[]": match, limit: 20000 }).then((d) => d.data, () => []);
  cache.set(key, { promise, since: performance.now() });
  return promise;
}
