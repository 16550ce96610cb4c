// The address: the path of the page and its parameters. It holds all state that links contain.

import { pathOf, root } from "../api/root";

// Parameters of the whole page: links and steps keep them.
const KEPT = ["tenant"];

class Address {
  // Below the root: "/targets".
  path = $state("/");
  // Parameters; replaced as a whole by each change.
  params = $state.raw(new URLSearchParams());

  // The last parameters of each path, so that leaving a page keeps its filters and queries.
  readonly #left = new Map<string, string>();

  constructor() {
    if (typeof window === "undefined") return;
    this.#read();
    window.addEventListener("popstate", () => {
      this.#read();
    });
  }

  // Goes to a page. Without parameters it opens as it was left.
  go(path: string, params?: URLSearchParams | Record<string, string>): void {
    const search = params === undefined ? this.#left.get(path) : new URLSearchParams(params).toString();
    this.#write("pushState", path, search ?? "");
  }

  // Changes parameters of the present page: as a step that Back undoes, or in place.
  change(edit: (params: URLSearchParams) => void, { replace = false } = {}): void {
    const params = new URLSearchParams(this.params);
    edit(params);
    const search = params.toString();
    if (search === this.params.toString()) return;
    this.#write(replace ? "replaceState" : "pushState", this.path, search);
  }

  // Sets one parameter; an empty or missing value removes it.
  set(name: string, value: string | undefined, options: { replace?: boolean } = {}): void {
    this.change((params) => {
      if (value === undefined || value === "") params.delete(name);
      else params.set(name, value);
    }, options);
  }

  // The link to a page, as it was left if no parameters are given.
  href(path: string, params?: URLSearchParams | Record<string, string>): string {
    const search = params === undefined ? this.#remembered(path) : new URLSearchParams(params).toString();
    return this.#link(path, search);
  }

  #link(path: string, search: string): string {
    const params = new URLSearchParams(search);
    for (const name of KEPT) {
      const value = this.params.get(name);
      if (value !== null && !params.has(name)) params.set(name, value);
    }
    return root + path.slice(1) + (params.size === 0 ? "" : `?${params.toString()}`);
  }

  #remembered(path: string): string {
    // Reading the state makes links follow later changes.
    if (path === this.path) return this.params.toString();
    return this.#left.get(path) ?? "";
  }

  #write(method: "pushState" | "replaceState", path: string, search: string): void {
    window.history[method](null, "", this.#link(path, search));
    this.#read();
  }

  #read(): void {
    this.path = pathOf(location.href);
    this.params = new URLSearchParams(location.search);
    this.#left.set(this.path, this.params.toString());
  }
}

export const address = new Address();

// Whether the page, rather than the browser, handles a click on a link.
export function isPlainClick(event: MouseEvent): boolean {
  return event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
}
