// The present time, for ages and countdowns: one timer for the whole page, while something reads it.

import { createSubscriber } from "svelte/reactivity";

const subscribe = createSubscriber((update) => {
  const timer = setInterval(update, 1000);
  return () => {
    clearInterval(timer);
  };
});

// Milliseconds; what reads it in a component is computed again each second.
export function now(): number {
  subscribe();
  return Date.now();
}
