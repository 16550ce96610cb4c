// Times on the axis of a graph, in the zone of the page.

import { formatClock, formatDay } from "../format/time";

const DAY = 86_400;
const formats = new Map<string, Intl.DateTimeFormat>();

// Distance of a zone from UTC at a time, both in seconds.
export function zoneOffset(seconds: number, zone: string): number {
  if (zone === "browser") return -new Date(seconds * 1000).getTimezoneOffset() * 60;
  if (zone === "UTC") return 0;
  let format = formats.get(zone);
  if (format === undefined) {
    const numeric = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" } as const;
    format = new Intl.DateTimeFormat("en-US", { timeZone: zone, hourCycle: "h23", ...numeric });
    formats.set(zone, format);
  }
  const found: Record<string, number> = {};
  for (const { type, value } of format.formatToParts(seconds * 1000)) found[type] = Number(value);
  const { year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = found;
  return Date.UTC(year, month - 1, day, hour, minute, second) / 1000 - Math.floor(seconds);
}

// Labels of times; the day is below the first label and at each change.
export function timeLabels(times: readonly number[], zone: string): string[] {
  const first = times[0] ?? 0;
  const distance = (times[1] ?? first + 60) - first;
  let shownDay = "";
  return times.map((time) => {
    const day = formatDay(time * 1000, zone);
    const isNewDay = day !== shownDay;
    shownDay = day;
    if (distance >= DAY) return day.slice(5);
    const clock = formatClock(time * 1000, zone, distance < 60);
    const fraction = distance < 1 ? `.${String(Math.round((time % 1) * 1000)).padStart(3, "0")}` : "";
    return clock + fraction + (isNewDay ? `\n${day}` : "");
  });
}
