// Whether the server answers, as seen by the requests of all parts of the page.

import type { Outcome } from "../api/client";

class Connection {
  // Time of the first of the requests that got no answer; undefined while answers come.
  lostAt = $state<number>();

  note(outcome: Outcome<unknown>): void {
    if (outcome.ok || (outcome.failure.kind !== "network" && outcome.failure.kind !== "cancelled")) {
      this.lostAt = undefined;
    } else if (outcome.failure.kind === "network") {
      this.lostAt ??= Date.now();
    }
  }
}

export const connection = new Connection();
