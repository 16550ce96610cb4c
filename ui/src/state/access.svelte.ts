// The identity of the reader: the token of this tab, and the scopes of its credential.

import { get, observe, type Outcome } from "../api/client";
import { connection } from "./connection.svelte";
import { tenant, TENANT_HEADER } from "./tenant.svelte";

const TOKEN_KEY = "firn.token";

export interface AccessInfo {
  // Empty if the server requires no credentials.
  name: string;
  scopes: string[];
  match: string[];
  // Tenants that the credential may use; empty for all.
  tenants: string[];
  // Whether each request needs a tenant.
  multitenancy?: boolean;
}

class Access {
  info = $state.raw<AccessInfo>();
  isAsking = $state(false);
  hasToken = $state(false);
  #token = "";

  constructor() {
    this.#token = readToken();
    this.hasToken = this.#token !== "";
  }

  // Loads the scopes of the credential.
  async load(): Promise<Outcome<AccessInfo>> {
    // The tenant may be one that the credential cannot use.
    const outcome = await get<AccessInfo>("status/access", {}, { headers: { [TENANT_HEADER]: undefined } });
    this.info = outcome.ok ? outcome.data : undefined;
    if (this.info?.multitenancy) tenant.settle(this.info.tenants);
    return outcome;
  }

  headers(): Record<string, string> {
    const headers = tenant.headers();
    if (this.#token !== "") headers.Authorization = `Bearer ${this.#token}`;
    return headers;
  }

  // Opens the dialog for a token.
  ask(): void {
    this.isAsking = true;
  }

  // Keeps the token if the server accepts it.
  async signIn(token: string): Promise<Outcome<AccessInfo>> {
    const before = this.#token;
    this.#token = token.trim();
    const outcome = await this.load();
    if (outcome.ok) {
      writeToken(this.#token);
      this.hasToken = true;
      this.isAsking = false;
    } else {
      this.#token = before;
    }
    return outcome;
  }

  signOut(): void {
    this.#token = "";
    writeToken("");
    location.reload();
  }

  // Whether calls of this scope are allowed; true until the scopes are loaded.
  may(scope: string): boolean {
    const scopes = this.info?.scopes;
    return !scopes || scopes.includes(scope);
  }

  // Whether only some series may be read.
  get isRestricted(): boolean {
    return (this.info?.match.length ?? 0) > 0;
  }

  // Whether the credential may read and change the parts that all tenants share, such as the configuration.
  get isForAll(): boolean {
    return !this.info?.multitenancy || this.info.tenants.length === 0;
  }

  // Whether requests have the tenant of the operator's own rules and jobs.
  get isOperator(): boolean {
    return this.isForAll && (!this.info?.multitenancy || tenant.name === "anonymous");
  }

  // Whether the credential may edit the rule folder, if the server has one.
  get mayEditRules(): boolean {
    return this.may("rules") && this.isOperator;
  }

  // "you are grafana with read"; empty if the server requires no credentials.
  get sentence(): string {
    if (!this.info || this.info.name === "") return "";
    return `you are ${this.info.name} with ${this.info.scopes.join(", ") || "no scope"}`;
  }
}

// Without storage the token lives as long as the page.
function readToken(): string {
  try {
    return sessionStorage.getItem(TOKEN_KEY) ?? "";
  } catch {
    return "";
  }
}

function writeToken(token: string): void {
  try {
    if (token === "") sessionStorage.removeItem(TOKEN_KEY);
    else sessionStorage.setItem(TOKEN_KEY, token);
  } catch {
    // No storage.
  }
}

export const access = new Access();

observe({
  headers: () => access.headers(),
  done: (outcome) => {
    connection.note(outcome);
    if (outcome.ok) return;
    if (outcome.failure.kind === "sign-in") access.ask();
    if (outcome.failure.kind === "tenant") tenant.ask();
  },
});
