// Answers that a whole page shows: refreshed at the chosen interval, except while a refresh would
// move rows under the reader.

import type { Failure, Outcome } from "../api/client";
import { refreshOf } from "../frame/routes";
import { address } from "../state/address.svelte";
import { useResource, type Resource } from "../state/resource.svelte";
import { time } from "../state/time.svelte";

type Data<O> = O extends { ok: true; data: infer T } ? T : never;

export interface PageOptions<T> {
  // True while a row is open.
  isHeld?: () => boolean;
  // Whether the data will soon be complete: the page then requests it again after SOON_SECONDS.
  isSoon?: (data: T) => boolean;
}

const SOON_SECONDS = 3;

// A resource of the component that is being created.
export function usePageResource<T>(
  ask: (signal: AbortSignal) => Promise<Outcome<T>>,
  { isHeld = () => false, isSoon = () => false }: PageOptions<T> = {},
): Resource<T> {
  const hasSelection = () => getSelection()?.isCollapsed === false;
  const resource: Resource<T> = useResource(ask, {
    every: () => {
      const pause = refreshOf(address.path, time.refresh);
      return pause > 0 && resource.data !== undefined && isSoon(resource.data) ? Math.min(pause, SOON_SECONDS) : pause;
    },
    isHeld: () => hasSelection() || isHeld(),
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

// A request for an optional part of the page: the part is missing if the server refuses the request or
// has no such path. Other failures concern the whole page.
export async function optional<T>(request: Promise<Outcome<T>>): Promise<Outcome<T | undefined>> {
  const outcome = await request;
  return outcome.ok || !isRefusal(outcome.failure) ? outcome : succeed(undefined);
}

// The outcome of a request that is not made, because the server lacks the endpoint in its mode.
export const absent = (): Promise<Outcome<undefined>> => Promise.resolve(succeed(undefined));

function isRefusal(failure: Failure): boolean {
  if (failure.kind === "foreign") return failure.status >= 400 && failure.status < 500;
  return failure.kind === "forbidden" || failure.kind === "refused";
}

// The outcome of requests whose answers were put together.
export function succeed<T>(data: T): Outcome<T> {
  return { ok: true, data, warnings: [], infos: [], milliseconds: 0, document: {}, headers: new Headers() };
}
