// The time range, zone and refresh interval of the page. They live in the address: `range`, `end`,
// `zone` and `refresh`, beside Prometheus's parameters of each panel, which are read if `range` is
// missing and kept equal.

import { formatDuration, parseDuration } from "../format/duration";
import { formatUtc, parseUtc } from "../format/time";
import { address } from "./address.svelte";
import { isZone, settings } from "./settings.svelte";

export const RANGE_DEFAULT = 3600;

class TimeState {
  // The text of the range in the address, also if it is no duration.
  get rangeText(): string {
    return address.params.get("range") ?? panelParam("range_input") ?? formatDuration(RANGE_DEFAULT);
  }

  // Seconds; the default if the text is no duration.
  get range(): number {
    return parseDuration(this.rangeText) || RANGE_DEFAULT;
  }

  // Milliseconds; undefined means now.
  get end(): number | undefined {
    const text = address.params.get("end") ?? panelParam("end_input");
    return text === undefined ? undefined : parseUtc(text);
  }

  get zone(): string {
    const zone = address.params.get("zone");
    return isZone(zone) ? zone : settings.zone;
  }

  // Seconds between refreshes; undefined if the reader did not choose, 0 for never.
  get refresh(): number | undefined {
    const text = address.params.get("refresh");
    return text === null ? undefined : (parseDuration(text) ?? 0);
  }

  // Shows another range: a step that Back undoes.
  show(range: number | string, end: number | undefined): void {
    const text = typeof range === "string" ? range : formatDuration(range);
    const until = end === undefined ? undefined : formatUtc(end);
    address.change((params) => {
      params.set("range", text);
      if (until === undefined) params.delete("end");
      else params.set("end", until);
      for (const name of [...params.keys()]) {
        const panel = /^(g\d+)\.expr$/.exec(name)?.[1];
        // A panel with a range of its own keeps it.
        if (panel === undefined || params.has(`${panel}.own_range`)) continue;
        params.set(`${panel}.range_input`, text);
        if (until === undefined) params.delete(`${panel}.end_input`);
        else params.set(`${panel}.end_input`, until);
      }
    });
  }

  setZone(zone: string): void {
    settings.setZone(zone);
    address.set("zone", zone, { replace: true });
  }

  setRefresh(seconds: number): void {
    address.set("refresh", formatDuration(seconds), { replace: true });
  }
}

// A parameter of the first panel.
function panelParam(name: string): string | undefined {
  for (const [key, value] of address.params) {
    if (/^g\d+\./.test(key) && key.endsWith(`.${name}`)) return value;
  }
  return undefined;
}

export const time = new TimeState();
