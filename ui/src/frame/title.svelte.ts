// The title of the document: what the page shows, and the name that the operator gave to the server.

// index.html carries the name as its title.
const NAME = typeof document === "undefined" ? "Firn" : document.title;

let own = $state<string>();

// Sets what the page shows, for example its expression; undefined for the title of the page.
export function setTitle(text: string | undefined): void {
  own = text;
}

export function pageTitle(title: string | undefined): string {
  const first = own ?? (title === "Home" ? undefined : title);
  return first === undefined ? NAME : `${first} – ${NAME}`;
}

export const serverName = NAME;
