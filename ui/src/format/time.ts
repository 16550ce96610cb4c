// Times in the zone of the page. All take milliseconds.

import { spell } from "./duration";

const formats = new Map<string, Intl.DateTimeFormat>();

interface Parts {
  day: string;
  clock: string;
  seconds: string;
  fraction: string;
}

// `zone` is "browser" or a name of the time zone database.
function parts(ms: number, zone: string): Parts {
  let format = formats.get(zone);
  if (!format) {
    format = new Intl.DateTimeFormat("en-CA", {
      timeZone: zone === "browser" ? undefined : zone,
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      hourCycle: "h23",
    });
    formats.set(zone, format);
  }
  const found: Record<string, string> = {};
  for (const { type, value } of format.formatToParts(ms)) found[type] = value;
  return {
    day: `${found.year}-${found.month}-${found.day}`,
    clock: `${found.hour}:${found.minute}`,
    seconds: found.second ?? "",
    fraction: String(((ms % 1000) + 1000) % 1000).padStart(3, "0"),
  };
}

// "2026-11-20 19:04:05".
export function formatTime(ms: number, zone = "browser"): string {
  const { day, clock, seconds } = parts(ms, zone);
  return `${day} ${clock}:${seconds}`;
}

// "2026-11-20 19:04:05.123".
export function formatExact(ms: number, zone = "browser"): string {
  const { day, clock, seconds, fraction } = parts(ms, zone);
  return `${day} ${clock}:${seconds}.${fraction}`;
}

export const formatDay = (ms: number, zone = "browser"): string => parts(ms, zone).day;

// "19:04", with seconds on request.
export function formatClock(ms: number, zone = "browser", withSeconds = false): string {
  const { clock, seconds } = parts(ms, zone);
  return withSeconds ? `${clock}:${seconds}` : clock;
}

// "18 s ago", "in 5 min".
export function formatAgo(ms: number, now: number): string {
  const seconds = Math.round((now - ms) / 1000);
  if (seconds === 0) return "now";
  return seconds > 0 ? `${spell(seconds)} ago` : `in ${spell(-seconds)}`;
}

// "2026-11-20 19:04:05" in UTC, as Prometheus writes ends into its addresses.
export const formatUtc = (ms: number): string => new Date(ms).toISOString().slice(0, 19).replace("T", " ");

// Milliseconds of such a text, of RFC 3339, or of seconds since the epoch; undefined for others.
export function parseUtc(text: string): number | undefined {
  const trimmed = text.trim();
  if (/^\d+(\.\d+)?$/.test(trimmed)) return Number(trimmed) * 1000;
  const match = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?(Z|[+-]\d\d:\d\d)?$/.exec(trimmed);
  if (!match) return undefined;
  const ms = Date.parse(`${match[1]}T${match[2] ?? "00:00"}${match[3] ?? "Z"}`);
  return Number.isNaN(ms) ? undefined : ms;
}

// Milliseconds of RFC 3339 as the API writes it; undefined for Go's zero time, which means never.
export function parseTime(text: string | undefined): number | undefined {
  if (!text || text.startsWith("0001-")) return undefined;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : ms;
}

// Milliseconds of a time typed in the zone of the page, or in any form of parseUtc that has a zone.
export function parseIn(text: string, zone: string): number | undefined {
  const asUtc = parseUtc(text);
  if (asUtc === undefined || /(Z|[+-]\d\d:\d\d)$/.test(text.trim()) || /^\d+(\.\d+)?$/.test(text.trim())) return asUtc;
  // The offset at the result may differ from that at the first guess, at a change of the clocks.
  const guess = asUtc - offsetAt(asUtc, zone);
  return asUtc - offsetAt(guess, zone);
}

// Milliseconds by which the zone is ahead of UTC.
function offsetAt(ms: number, zone: string): number {
  const whole = Math.floor(ms / 1000) * 1000;
  return (parseUtc(formatTime(whole, zone)) ?? whole) - whole;
}
