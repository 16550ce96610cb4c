// The theme: an attribute of the root element, which tokens.css reads.

import { settings } from "../state/settings.svelte";

const dark = typeof matchMedia === "undefined" ? undefined : matchMedia("(prefers-color-scheme: dark)");
let prefersDark = $state(dark?.matches ?? false);
dark?.addEventListener("change", (event) => {
  prefersDark = event.matches;
});

// The theme in force. Canvases read it in effects, which draw again after a change.
export function theme(): "light" | "dark" {
  if (settings.theme === "system") return prefersDark ? "dark" : "light";
  return settings.theme;
}

// Follows the setting; called while a component is created.
export function applyTheme(): void {
  document.documentElement.dataset.theme = theme();
  $effect.pre(() => {
    document.documentElement.dataset.theme = theme();
  });
}
