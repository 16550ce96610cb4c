// An answer of the server that a page shows: loading, refreshed, failed, tried again.
//
// A failure keeps the last good data: the page shows both.

import { onDestroy } from "svelte";
import type { Failure, Outcome } from "../api/client";

export interface ResourceOptions {
  // Seconds between refreshes; 0 for none. Called before each pause.
  every?: () => number;
  // While true, refreshes wait: a row is open or selected.
  isHeld?: () => boolean;
}

const PAUSES_SECONDS = [1, 2, 4, 8, 15, 30];

export class Resource<T> {
  data = $state.raw<T>();
  failure = $state.raw<Failure>();
  warnings = $state.raw<string[]>([]);
  infos = $state.raw<string[]>([]);
  isLoading = $state(false);
  // Start of the request under way, and time of the last good answer, in milliseconds.
  requestedAt = $state<number>();
  loadedAt = $state<number>();
  // Time of the next attempt after a failure.
  retryAt = $state<number>();

  readonly #ask: (signal: AbortSignal) => Promise<Outcome<T>>;
  readonly #options: ResourceOptions;
  #request: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failures = 0;
  #isStopped = false;

  constructor(ask: (signal: AbortSignal) => Promise<Outcome<T>>, options: ResourceOptions = {}) {
    this.#ask = ask;
    this.#options = options;
  }

  // Sends a request now, and cancels a request under way.
  async load(): Promise<void> {
    this.#request?.abort();
    clearTimeout(this.#timer);
    const request = new AbortController();
    this.#request = request;
    this.#isStopped = false;
    this.isLoading = true;
    this.requestedAt = Date.now();
    const outcome = await this.#ask(request.signal);
    if (this.#request !== request) return;
    this.#request = undefined;
    this.isLoading = false;
    this.retryAt = undefined;
    if (outcome.ok) this.#succeed(outcome.data, outcome.warnings, outcome.infos);
    else this.#fail(outcome.failure);
  }

  // Removes data and failure, before a request for other data.
  clear(): void {
    this.data = undefined;
    this.failure = undefined;
    this.loadedAt = undefined;
  }

  stop(): void {
    this.#isStopped = true;
    this.#request?.abort();
    this.#request = undefined;
    this.isLoading = false;
    clearTimeout(this.#timer);
  }

  #succeed(data: T, warnings: string[], infos: string[]): void {
    this.data = data;
    this.warnings = warnings;
    this.infos = infos;
    this.failure = undefined;
    this.loadedAt = Date.now();
    this.#failures = 0;
    this.#refreshIn(this.#options.every?.() ?? 0);
  }

  #fail(failure: Failure): void {
    if (failure.kind === "cancelled") return;
    this.failure = failure;
    const seconds = pauseOf(failure, this.#failures);
    this.#failures += 1;
    if (seconds === undefined) return;
    this.retryAt = Date.now() + seconds * 1000;
    this.#wait(seconds, () => void this.load());
  }

  #refreshIn(seconds: number): void {
    if (seconds <= 0) return;
    this.#wait(seconds, () => {
      const isPaused = document.hidden || this.#options.isHeld?.();
      if (isPaused) this.#refreshIn(1);
      else void this.load();
    });
  }

  #wait(seconds: number, then: () => void): void {
    if (this.#isStopped) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(then, seconds * 1000);
  }
}

// Seconds until the page tries again by itself; undefined for failures that a retry cannot mend.
export function pauseOf(failure: Failure, failures: number): number | undefined {
  const growing = PAUSES_SECONDS[Math.min(failures, PAUSES_SECONDS.length - 1)];
  switch (failure.kind) {
    case "starting":
      return 1;
    case "busy":
      return Math.max(failure.retryAfter, growing ?? 0);
    case "network":
      return growing;
    case "foreign":
      return failure.status >= 500 ? growing : undefined;
    default:
      return undefined;
  }
}

// A resource of the component that is being created: loaded at once, stopped with it.
export function useResource<T>(
  ask: (signal: AbortSignal) => Promise<Outcome<T>>,
  options: ResourceOptions = {},
): Resource<T> {
  const resource = new Resource(ask, options);
  void resource.load();
  onDestroy(() => {
    resource.stop();
  });
  return resource;
}
