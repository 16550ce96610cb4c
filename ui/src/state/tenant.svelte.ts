// The tenant of all requests, with `firn.multitenancy`: that of the address, or the last one of this tab.
//
// Another tenant is a new start of the page, so that no part of it mixes data of two.

import { address } from "./address.svelte";
import { isText, listOf, Stored } from "./stored";

export const TENANT_HEADER = "X-Scope-OrgID";
const PARAM = "tenant";
const NAME_MAX = 150;
const RECENT_MAX = 8;
const NAME = /^[A-Za-z0-9!\-_.*'()]+$/;
export const TENANT_EXPECTED = "a name like team-a, or several as a|b: letters, digits and !-_.*'()";

const inTab = new Stored<string>("firn.tenant", 1, isText, "", () => sessionStorage);
const recent = new Stored<string[]>("firn.tenants", 1, listOf(isText), []);

// Whether a text names one tenant, or several for reading.
export function isTenant(text: string): boolean {
  return text.split("|").every((name) => NAME.test(name) && name.length <= NAME_MAX && name !== "." && name !== "..");
}

class Tenant {
  // As in the address or in this tab, also if it is no valid name; empty without one.
  name = $state("");
  // Whether the page needs a tenant before it can show anything.
  isAsking = $state(false);

  constructor() {
    if (typeof window === "undefined") return;
    this.name = address.params.get(PARAM) ?? inTab.read();
    if (isTenant(this.name)) inTab.write(this.name);
    // A step back may lead to another tenant.
    window.addEventListener("popstate", () => {
      if ((address.params.get(PARAM) ?? this.name) !== this.name) location.reload();
    });
  }

  headers(): Record<string, string> {
    return isTenant(this.name) ? { [TENANT_HEADER]: this.name } : {};
  }

  // Called once the server is known to have tenants: `allowed` are those of the credential, none for all.
  settle(allowed: readonly string[]): void {
    // The server itself takes the only tenant of a credential.
    if (this.name === "" && allowed[0] !== undefined && allowed.length === 1) this.#keep(allowed[0]);
    this.isAsking = !isTenant(this.name);
    if (!this.isAsking) address.set(PARAM, this.name, { replace: true });
  }

  ask(): void {
    this.isAsking = true;
  }

  // Shows the page as another tenant sees it.
  choose(name: string): void {
    const isFirst = !isTenant(this.name);
    this.#keep(name);
    recent.write([name, ...recent.read().filter((one) => one !== name)].slice(0, RECENT_MAX));
    address.set(PARAM, name, { replace: isFirst });
    location.reload();
  }

  // The tenants last chosen in this browser.
  get recent(): string[] {
    return recent.read().filter(isTenant);
  }

  #keep(name: string): void {
    this.name = name;
    inTab.write(name);
  }
}

export const tenant = new Tenant();
