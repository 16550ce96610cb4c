// Settings of this browser.

import { isText, oneOf, Stored } from "./stored";

export type Theme = "system" | "light" | "dark";
export const THEMES: readonly Theme[] = ["system", "light", "dark"];

const theme = new Stored<Theme>("firn.theme", 1, oneOf(...THEMES), "system");
const zone = new Stored<string>("firn.zone", 1, (raw) => (isZone(raw) ? raw : undefined), "browser");
const keys = new Stored<"on" | "off">("firn.keys", 1, oneOf("on", "off"), "on");
const trace = new Stored<string>("firn.trace", 1, isText, "");

class Settings {
  theme = $state<Theme>("system");
  // "browser", "UTC" or a name of the time zone database.
  zone = $state("browser");
  // Whether keys of one letter work.
  keys = $state<"on" | "off">("on");
  // Address of a trace, with names of labels of its exemplar in braces; empty for no links.
  trace = $state("");

  constructor() {
    this.theme = theme.read();
    this.zone = zone.read();
    this.keys = keys.read();
    this.trace = trace.read();
  }

  setTheme(value: Theme): void {
    this.theme = value;
    theme.write(value);
  }

  setZone(value: string): void {
    this.zone = value;
    zone.write(value);
  }

  setKeys(value: "on" | "off"): void {
    this.keys = value;
    keys.write(value);
  }

  setTrace(value: string): void {
    this.trace = value;
    trace.write(value);
  }
}

export function isZone(name: unknown): name is string {
  if (typeof name !== "string") return false;
  if (name === "browser") return true;
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false;
  }
}

export const settings = new Settings();
