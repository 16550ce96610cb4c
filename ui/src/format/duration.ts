// Durations as PromQL writes them: "1h30m", "500ms".

const UNITS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000, y: 31_536_000_000 };

// Seconds of "1h30m" or "90"; undefined for other text.
export function parseDuration(text: string): number | undefined {
  const trimmed = text.trim();
  if (/^\d+(\.\d+)?$/.test(trimmed)) return Number(trimmed);
  if (!/^(\d+(ms|[smhdwy]))+$/.test(trimmed)) return undefined;
  let milliseconds = 0;
  for (const [, count, unit] of trimmed.matchAll(/(\d+)(ms|[smhdwy])/g)) {
    milliseconds += Number(count) * (UNITS[unit ?? ""] ?? 0);
  }
  return milliseconds / 1000;
}

export const DURATION_EXPECTED = "a duration like 90s or 1h30m";

// "1h30m"; weeks only if nothing remains.
export function formatDuration(seconds: number): string {
  let rest = Math.round(seconds * 1000);
  let text = "";
  for (const unit of ["w", "d", "h", "m", "s", "ms"]) {
    const size = UNITS[unit] ?? 1;
    if (unit === "w" && rest % size !== 0) continue;
    const count = Math.floor(rest / size);
    if (count > 0) text += `${count}${unit}`;
    rest -= count * size;
  }
  return text || "0s";
}

// For people, with the two largest units: "2 h 5 min", "18 s", "1.2 s", "35 ms".
export function spell(seconds: number): string {
  const size = Math.abs(seconds);
  if (!Number.isFinite(seconds)) return "–";
  if (size === 0) return "0 s";
  if (size < 0.001) return `${trimmed(seconds * 1e6)} µs`;
  if (size < 1) return `${trimmed(seconds * 1e3)} ms`;
  if (size < 10) return `${trimmed(seconds)} s`;
  const units: [string, number][] = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
  let rest = Math.round(size);
  const first = units.findIndex(([, unit]) => rest >= unit);
  const parts: string[] = [];
  for (const [name, unit] of units.slice(first, first + 2)) {
    const count = Math.floor(rest / unit);
    rest -= count * unit;
    if (count > 0) parts.push(`${count} ${name}`);
  }
  return (seconds < 0 ? "−" : "") + parts.join(" ");
}

const trimmed = (value: number): string => String(Number(value.toPrecision(3)));
