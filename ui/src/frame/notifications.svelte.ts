// The notifications of the server: streamed while the page is visible, and requested from time to time otherwise.

import { get } from "../api/client";
import { follow } from "../api/live";
import { Resource } from "../state/resource.svelte";

export interface Notification {
  text: string;
  date: string;
  active: boolean;
}

// The popover of the top bar, which buttons of pages open, too.
export const NOTIFICATIONS_ID = "notifications";

const EVERY_SECONDS = 30;
const PAUSES_MS = [1000, 5000, 30_000];

class Notifications {
  #isLive = false;

  readonly list = new Resource<Notification[]>((signal) => get("notifications", {}, { signal }), {
    every: () => (this.#isLive ? 0 : EVERY_SECONDS),
  });

  readonly active = $derived((this.list.data ?? []).filter((one) => one.active));

  // Follows the server until the returned function is called.
  watch(): () => void {
    const page = new AbortController();
    void this.#follow(page.signal);
    return () => {
      page.abort();
      this.list.stop();
    };
  }

  // An event means that the list changed. A browser has few connections to a server, so hidden pages have none of
  // these streams.
  async #follow(page: AbortSignal): Promise<void> {
    for (let failures = 0; ; failures += 1) {
      await untilVisible();
      if (page.aborted) return;
      const stream = new AbortController();
      const end = (): void => {
        if (document.hidden || page.aborted) stream.abort();
      };
      document.addEventListener("visibilitychange", end);
      page.addEventListener("abort", end);
      const load = (): void => void this.list.load();
      const mayRetry = await follow("notifications/live", {
        signal: stream.signal,
        onopen: () => {
          failures = 0;
          this.#isLive = true;
          load();
        },
        onevents: load,
      });
      document.removeEventListener("visibilitychange", end);
      page.removeEventListener("abort", end);
      if (page.aborted) return;
      this.#isLive = false;
      load();
      if (!mayRetry) return;
      const pause = PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)];
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}

async function untilVisible(): Promise<void> {
  while (document.hidden) {
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true });
    });
  }
}

export const notifications = new Notifications();
