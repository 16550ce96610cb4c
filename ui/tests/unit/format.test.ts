import { describe, expect, test } from "vitest";
import { formatDuration, parseDuration, spell } from "../../src/format/duration";
import { selectorOf } from "../../src/format/labels";
import { counted, formatGrouped, formatNumber } from "../../src/format/number";
import { formatAgo, formatExact, formatTime, formatUtc, parseIn, parseTime, parseUtc } from "../../src/format/time";

describe("durations", () => {
  test.each([
    ["1h30m", 5400],
    ["90", 90],
    ["1.5", 1.5],
    ["500ms", 0.5],
    ["1w", 604800],
    [" 5m ", 300],
    ["1y", 31536000],
    ["abc", undefined],
    ["", undefined],
    ["1h-5m", undefined],
    ["5 m", undefined],
    ["-5m", undefined],
  ])("%j is parsed", (text, seconds) => {
    expect(parseDuration(text)).toBe(seconds);
  });

  test.each([
    [5400, "1h30m"],
    [0, "0s"],
    [0.25, "250ms"],
    [604800, "1w"],
    [700000, "8d2h26m40s"],
    [86400 * 15, "15d"],
  ])("%d s is formatted, and parsed again", (seconds, text) => {
    expect(formatDuration(seconds)).toBe(text);
    expect(parseDuration(text) ?? 0).toBe(seconds);
  });

  test.each([
    [0, "0 s"],
    [0.0000123, "12.3 µs"],
    [0.0354, "35.4 ms"],
    [1.234, "1.23 s"],
    [18.4, "18 s"],
    [59.7, "1 min"],
    [7500, "2 h 5 min"],
    [7200, "2 h"],
    [90061, "1 d 1 h"],
    [-75, "−1 min 15 s"],
    [NaN, "–"],
  ])("%d s is spelt for people", (seconds, text) => {
    expect(spell(seconds)).toBe(text);
  });
});

describe("numbers", () => {
  test.each([
    [0, "", "0"],
    [1728, "", "1.728k"],
    [29341234, "", "29.34M"],
    [999999, "", "1M"],
    [-1500, "", "-1.5k"],
    [0.00012, "", "1.20e-4"],
    [1e30, "", "1.000e+30"],
    [Infinity, "", "+Inf"],
    [-Infinity, "bytes", "-Inf"],
    [NaN, "seconds", "NaN"],
    [2.4 * 1024 * 1024, "bytes", "2.4 MiB"],
    [512, "bytes", "512 B"],
    [0.035, "seconds", "35 ms"],
    [300, "seconds", "5 min"],
    [0.256, "ratio", "25.6 %"],
  ])("%d with unit %j", (value, unit, text) => {
    expect(formatNumber(value, unit)).toBe(text);
  });

  test.each([
    [1728, "1,728"],
    [0.5, "0.5"],
    [0.0000123, "0.0000123"],
    [-1234567.25, "-1,234,567.25"],
    [1e21, "1e+21"],
  ])("%d in groups", (value, text) => {
    expect(formatGrouped(value)).toBe(text);
  });

  test("counts have a plural", () => {
    expect([counted(1, "target"), counted(2000, "target"), counted(2, "series", "series")]).toEqual([
      "1 target",
      "2,000 targets",
      "2 series",
    ]);
  });
});

describe("times", () => {
  const AT = Date.UTC(2026, 10, 20, 19, 4, 5, 123);

  test("they are shown in the zone", () => {
    expect(formatTime(AT, "UTC")).toBe("2026-11-20 19:04:05");
    expect(formatTime(AT, "Asia/Kolkata")).toBe("2026-11-21 00:34:05");
    expect(formatExact(AT, "UTC")).toBe("2026-11-20 19:04:05.123");
    expect(formatUtc(AT)).toBe("2026-11-20 19:04:05");
  });

  test.each([
    ["2026-11-20 19:04:05", Date.UTC(2026, 10, 20, 19, 4, 5)],
    ["2026-11-20T19:04:05.5Z", Date.UTC(2026, 10, 20, 19, 4, 5, 500)],
    ["2026-11-20 19:04", Date.UTC(2026, 10, 20, 19, 4)],
    ["2026-11-20", Date.UTC(2026, 10, 20)],
    ["2026-11-20 19:04:05+01:00", Date.UTC(2026, 10, 20, 18, 4, 5)],
    ["1795776452.158", 1795776452158],
    ["yesterday", undefined],
    ["2026-13-40", undefined],
  ])("%j is parsed", (text, ms) => {
    expect(parseUtc(text)).toBe(ms);
  });

  test("a time typed in a zone is the same time in UTC, also at a change of the clocks", () => {
    for (const zone of ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]) {
      for (const ms of [AT - 123, Date.UTC(2026, 2, 29, 0, 30), Date.UTC(2026, 2, 29, 2, 30), Date.UTC(2026, 9, 25, 3)]) {
        expect(parseIn(formatTime(ms, zone), zone), `${zone} ${ms}`).toBe(ms);
      }
    }
    expect(parseIn("soon", "UTC")).toBeUndefined();
  });

  test("ages and Go's zero time", () => {
    expect(formatAgo(1000, 19_000)).toBe("18 s ago");
    expect(formatAgo(301_000, 1000)).toBe("in 5 min");
    expect(formatAgo(1000, 1200)).toBe("now");
    expect(parseTime("0001-01-01T00:00:00Z")).toBeUndefined();
    expect(parseTime("1970-01-01T00:00:01Z")).toBe(1000);
  });
});

test.each([
  [{ __name__: "up", job: "shop" }, 'up{job="shop"}'],
  [{ __name__: "up" }, "up"],
  [{}, "{}"],
  [{ __name__: "my.metric", job: 'a"b' }, '{"my.metric", job="a\\"b"}'],
  [{ "label.name": "x" }, '{"label.name"="x"}'],
])("the selector of %j", (labels, text) => {
  expect(selectorOf(labels as Record<string, string>)).toBe(text);
});
