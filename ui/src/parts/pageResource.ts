// Answers that a whole page shows: refreshed as often as the reader wants, unless that would move what
// somebody reads.

import { onDestroy } from "svelte";
import type { Failure, Outcome } from "../api/client";
import { refreshOf } from "../frame/routes";
import { address } from "../state/address.svelte";
import { Resource } from "../state/resource.svelte";
import { time } from "../state/time.svelte";

type Data<O> = O extends { ok: true; data: infer T } ? T : never;

export interface PageOptions<T> {
  // True while a row is open.
  isHeld?: () => boolean;
  // Whether the data is about to be complete: it is asked for again soon.
  isSoon?: (data: T) => boolean;
}

const SOON_SECONDS = 3;

// A resource of the component that is being created.
export function usePageResource<T>(
  ask: (signal: AbortSignal) => Promise<Outcome<T>>,
  { isHeld = () => false, isSoon = () => false }: PageOptions<T> = {},
): Resource<T> {
  const hasSelection = () => getSelection()?.isCollapsed === false;
  const resource: Resource<T> = new Resource(ask, {
    every: () => {
      const pause = refreshOf(address.path, time.refresh);
      return pause > 0 && resource.data !== undefined && isSoon(resource.data) ? Math.min(pause, SOON_SECONDS) : pause;
    },
    isHeld: () => hasSelection() || isHeld(),
  });
  void resource.load();
  onDestroy(() => {
    resource.stop();
  });
  return resource;
}

// Requests several endpoints at once. Fails with the first failure; see `optional`.
export async function all<R extends Record<string, Promise<Outcome<unknown>>>>(
  requests: R,
): Promise<Outcome<{ [K in keyof R]: Data<Awaited<R[K]>> }>> {
  const names = Object.keys(requests);
  const outcomes = await Promise.all(Object.values(requests));
  const data: Record<string, unknown> = {};
  for (const [i, outcome] of outcomes.entries()) {
    if (!outcome.ok) return outcome;
    data[names[i] ?? ""] = outcome.data;
  }
  return succeed(data as { [K in keyof R]: Data<Awaited<R[K]>> });
}

// A request without whose data the page can do: where the server refuses it, or does not know its path,
// a part of the page is missing. Other failures concern the whole page.
export async function optional<T>(request: Promise<Outcome<T>>): Promise<Outcome<T | undefined>> {
  const outcome = await request;
  return outcome.ok || !isRefusal(outcome.failure) ? outcome : succeed(undefined);
}

// The outcome of a request that is not made, because the mode of the server has no answer.
export const absent = (): Promise<Outcome<undefined>> => Promise.resolve(succeed(undefined));

function isRefusal(failure: Failure): boolean {
  if (failure.kind === "foreign") return failure.status >= 400 && failure.status < 500;
  return failure.kind === "forbidden" || failure.kind === "refused";
}

function succeed<T>(data: T): Outcome<T> {
  return { ok: true, data, warnings: [], infos: [], milliseconds: 0, document: {}, headers: new Headers() };
}
