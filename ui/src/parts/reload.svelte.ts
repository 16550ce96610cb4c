// Requests that depend on the address.

import { untrack } from "svelte";
import type { Resource } from "../state/resource.svelte";

// Loads a resource of the component that is being created again when `value` changes, which its request
// depends on. Until then the last content stays.
export function reloadOn<T>(resource: Resource<T>, value: () => unknown): void {
  const textOf = () => JSON.stringify(value());
  let known = untrack(textOf);
  $effect(() => {
    const text = textOf();
    if (text === known) return;
    known = text;
    untrack(() => void resource.load());
  });
}
