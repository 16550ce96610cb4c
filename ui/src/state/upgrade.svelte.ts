// Notices that the server was upgraded while the page is open: its build differs, or a file of the
// page is gone.

import { get } from "../api/client";

const CHECK_MS = 300_000;

interface Build {
  version?: string;
  firn_version?: string;
  revision?: string;
  buildDate?: string;
}

class Upgrade {
  isNoticed = $state(false);
  #build: string | undefined;

  // Compares the server's build with the first one seen.
  async check(): Promise<void> {
    const outcome = await get<Build>("status/buildinfo");
    if (!outcome.ok) return;
    const build = JSON.stringify(outcome.data);
    this.#build ??= build;
    if (build !== this.#build) this.isNoticed = true;
  }

  noteMissing(error: unknown): void {
    console.warn("a file of the page is missing", error);
    this.isNoticed = true;
  }

  // Checks from time to time until the returned function is called.
  watch(): () => void {
    void this.check();
    const timer = setInterval(() => void this.check(), CHECK_MS);
    return () => {
      clearInterval(timer);
    };
  }
}

export const upgrade = new Upgrade();
