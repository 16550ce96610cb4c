// The address of this server: the folder of the favicon, which index.html names relative to itself.
// It is read once, because later changes of the address change the base of relative links.

const icon = typeof document === "undefined" ? null : document.querySelector<HTMLLinkElement>("link[rel=icon]");

// "http://host/prefix/", with a slash at the end.
export const root = new URL(".", icon?.href ?? "http://localhost/").href;

// Browsers request the icon again when the address changes, which would be the base of a relative one.
if (icon) icon.href = `${root}favicon.svg`;

// The path below the root, with a leading slash: "/targets".
export function pathOf(href: string): string {
  const base = new URL(root).pathname;
  const path = new URL(href, root).pathname;
  return path.startsWith(base) ? `/${path.slice(base.length)}` : "/";
}
