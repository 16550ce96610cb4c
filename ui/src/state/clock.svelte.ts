// The present time, for ages and countdowns: one timer for the whole page, which runs while a component reads the time.

import { createSubscriber } from "svelte/reactivity";

const subscribe = createSubscriber((update) => {
  const timer = setInterval(update, 1000);
  return () => {
    clearInterval(timer);
  };
});

// Milliseconds. Components that read it are updated each second.
export function now(): number {
  subscribe();
  return Date.now();
}
