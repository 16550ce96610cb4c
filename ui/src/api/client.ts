// Requests to the HTTP API. They never throw: an outcome is the data or a failure by kind.

import { failureOf, type Failure } from "./failure";
import { parse } from "./parse";
import { root } from "./root";

export type { Failure } from "./failure";

export interface Success<T> {
  ok: true;
  data: T;
  warnings: string[];
  infos: string[];
  // From the request to the parsed answer.
  milliseconds: number;
  // The whole document, for members beside `data`.
  document: Record<string, unknown>;
  // Headers of the response.
  headers: Headers;
}

export type Outcome<T> = Success<T> | { ok: false; failure: Failure };

type Value = string | number | boolean | undefined | null;
// Undefined, null and empty values are left out; lists repeat the name.
export type Params = Record<string, Value | readonly Value[]>;

export interface RequestOptions {
  signal?: AbortSignal;
  // Headers besides those of the page; an undefined one is left out.
  headers?: Record<string, string | undefined>;
  // Whether `data` is the text of the answer, which is no document of the API.
  isText?: boolean;
}

// Hooks of the frame for each request: the credential to send, and a call with the outcome.
export interface Observer {
  headers: () => Record<string, string>;
  done: (outcome: Outcome<unknown>) => void;
}

let observer: Observer = { headers: () => ({}), done: () => undefined };

export function observe(by: Observer): void {
  observer = by;
}

// Headers of each request: credential and tenant.
export const pageHeaders = (): Record<string, string> => observer.headers();

// GET api/v1/PATH.
export function get<T>(path: string, params: Params = {}, options: RequestOptions = {}): Promise<Outcome<T>> {
  const form = formOf(params).toString();
  return request<T>(`api/v1/${path}${form === "" ? "" : `?${form}`}`, { method: "GET" }, options);
}

// POST api/v1/PATH with a form: for expressions, which may exceed the length limit of addresses,
// and for calls that change state.
export function post<T>(path: string, params: Params = {}, options: RequestOptions = {}): Promise<Outcome<T>> {
  return request<T>(`api/v1/${path}`, { method: "POST", body: formOf(params) }, options);
}

// DELETE api/v1/PATH.
export function remove<T>(path: string, options: RequestOptions = {}): Promise<Outcome<T>> {
  return request<T>(`api/v1/${path}`, { method: "DELETE" }, options);
}

export function formOf(params: Params): URLSearchParams {
  const form = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    const values: readonly Value[] = Array.isArray(value) ? value : [value as Value];
    for (const one of values) {
      if (one !== undefined && one !== null && one !== "") form.append(name, String(one));
    }
  }
  return form;
}

// Requests a path below the root and reads a document of the API.
export async function request<T>(path: string, init: RequestInit, options: RequestOptions = {}): Promise<Outcome<T>> {
  const outcome = await answerOf<T>(path, init, options);
  observer.done(outcome);
  return outcome;
}

async function answerOf<T>(path: string, init: RequestInit, options: RequestOptions): Promise<Outcome<T>> {
  const started = performance.now();
  const fail = (failure: Failure): Outcome<T> => ({ ok: false, failure });
  try {
    const all = Object.entries({ ...pageHeaders(), ...options.headers });
    const headers = all.filter((header): header is [string, string] => header[1] !== undefined);
    const response = await fetch(root + path, { ...init, headers, signal: options.signal ?? null });
    if (!response.ok) return fail(failureOf(response.status, response.headers, await response.text()));
    if (response.status === 204) return success(undefined as T, {}, response.headers, started);
    if (options.isText) return success((await response.text()) as T, {}, response.headers, started);
    const type = response.headers.get("content-type") ?? "";
    if (!type.includes("json")) return fail({ kind: "foreign", status: response.status, text: await response.text() });
    const document = (await parse(await response.arrayBuffer())) as Record<string, unknown>;
    return success(document.data as T, document, response.headers, started);
  } catch (error) {
    if (options.signal?.aborted) return fail({ kind: "cancelled" });
    if (error instanceof SyntaxError) return fail({ kind: "foreign", status: 200, text: String(error) });
    return fail({ kind: "network", message: error instanceof Error ? error.message : String(error) });
  }
}

function success<T>(data: T, document: Record<string, unknown>, headers: Headers, started: number): Outcome<T> {
  const texts = (list: unknown): string[] => (Array.isArray(list) ? list.map(String) : []);
  return {
    ok: true,
    data,
    warnings: texts(document.warnings),
    infos: texts(document.infos),
    milliseconds: performance.now() - started,
    document,
    headers,
  };
}
