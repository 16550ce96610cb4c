// Failed requests, grouped by the reaction of the page.

export type Failure =
  // The request itself is wrong, or its evaluation failed: Prometheus's error type and text.
  | { kind: "refused"; status: number; errorType: string; message: string }
  // Credentials are missing or wrong.
  | { kind: "sign-in"; message: string }
  // The server has tenants, and the request names none.
  | { kind: "tenant"; message: string }
  // The credential lacks a scope, or may see only some series.
  | { kind: "forbidden"; message: string }
  // Full or busy; trying again later may help.
  | { kind: "busy"; status: number; message: string; retryAfter: number }
  // The server replays its log.
  | { kind: "starting"; isStopping: boolean }
  // A proxy answered in place of Firn, or the answer has an unknown form.
  | { kind: "foreign"; status: number; text: string }
  // No answer at all.
  | { kind: "network"; message: string }
  // The page cancelled the request.
  | { kind: "cancelled" };

const NO_TENANT = "no org id";
const RETRY_AFTER_SECONDS = 5;
const FOREIGN_TEXT_MAX = 4000;

// The failure in a response that is not a success. `text` is its body.
export function failureOf(status: number, headers: Headers, text: string): Failure {
  const stopping = headers.get("x-prometheus-stopping");
  if (status === 503 && stopping !== null) return { kind: "starting", isStopping: stopping === "true" };
  const document = errorDocument(text);
  const isPlain = (headers.get("content-type") ?? "").startsWith("text/plain");
  const message = document?.error ?? (isPlain ? text.trim() : "");
  if (status === 401 && message === NO_TENANT) return { kind: "tenant", message };
  if (status === 401) return { kind: "sign-in", message };
  if (message === "") return { kind: "foreign", status, text: text.slice(0, FOREIGN_TEXT_MAX) };
  if (status === 403) return { kind: "forbidden", message };
  const isBusy = status === 429 || (status === 503 && document?.errorType !== "canceled");
  if (isBusy) return { kind: "busy", status, message, retryAfter: secondsOf(headers.get("retry-after")) };
  // Only the API answers in JSON; other texts come from proxies, or from a path that Firn lacks.
  if (!document) return { kind: "foreign", status, text: text.slice(0, FOREIGN_TEXT_MAX) };
  return { kind: "refused", status, errorType: document.errorType, message };
}

// The failure of an endpoint that answers as Mimir does: its errors are plain text.
export function plainFailure(failure: Failure): Failure {
  const isText = failure.kind === "foreign" && failure.status >= 400 && !failure.text.trimStart().startsWith("<");
  if (!isText) return failure;
  return { kind: "refused", status: failure.status, errorType: "bad_data", message: failure.text.trim() };
}

function errorDocument(text: string): { errorType: string; error: string } | undefined {
  if (!text.startsWith("{")) return undefined;
  try {
    const { error, errorType } = JSON.parse(text) as Record<string, unknown>;
    if (typeof error !== "string") return undefined;
    return { error, errorType: typeof errorType === "string" ? errorType : "unknown" };
  } catch {
    return undefined;
  }
}

function secondsOf(header: string | null): number {
  const seconds = Number(header);
  return header !== null && Number.isFinite(seconds) && seconds > 0 ? seconds : RETRY_AFTER_SECONDS;
}
