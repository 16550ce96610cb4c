// The title of the document: the content of the page, and the name of the server from its operator.

// index.html carries the name as its title.
const NAME = typeof document === "undefined" ? "Firn" : document.title;

let own = $state<string>();

// Sets the first part of the title, for example its expression; undefined for the title of the page.
export function setTitle(text: string | undefined): void {
  own = text;
}

export function pageTitle(title: string | undefined): string {
  const first = own ?? (title === "Home" ? undefined : title);
  return first === undefined ? NAME : `${first} – ${NAME}`;
}

export const serverName = NAME;
