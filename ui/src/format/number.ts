// Numbers: grouped in tables, short on axes.

export type Unit = "" | "bytes" | "seconds" | "ratio" | "percent";

const SCALES: Record<string, [number, string[]]> = {
  "": [1000, ["", "k", "M", "G", "T", "P", "E"]],
  bytes: [1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]],
};

// A number with few digits and a prefix: "29.34M", "2.4 MiB", "35 ms".
export function formatNumber(value: number, unit: string = "", digits = 4): string {
  if (!Number.isFinite(value)) return special(value);
  if (unit === "seconds") return formatSeconds(value, digits);
  if (unit === "ratio" || unit === "percent") return `${short(value * 100, digits)} %`;
  const [base, names] = SCALES[unit] ?? (SCALES[""] as [number, string[]]);
  let size = Math.abs(value);
  if (size !== 0 && size < 0.001 && unit !== "bytes") return value.toExponential(Math.min(2, digits - 1));
  let step = 0;
  // Rounding to `digits` may reach the next prefix: 999,999 is 1M.
  while ((size >= base || Number(size.toPrecision(digits)) >= base) && step < names.length - 1) {
    size /= base;
    step += 1;
  }
  if (size >= base) return value.toExponential(3);
  return (value < 0 ? "-" : "") + short(size, digits) + (names[step] ?? "");
}

function formatSeconds(value: number, digits: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${short(value * 1e6, digits)} µs`;
  if (size < 1) return `${short(value * 1e3, digits)} ms`;
  if (size < 120) return `${short(value, digits)} s`;
  if (size < 7200) return `${short(value / 60, digits)} min`;
  if (size < 172_800) return `${short(value / 3600, digits)} h`;
  return `${short(value / 86_400, digits)} d`;
}

const short = (value: number, digits: number): string => String(Number(value.toPrecision(digits)));

// The text of a value that is not finite, as the API writes it.
export function special(value: number): "NaN" | "+Inf" | "-Inf" {
  if (Number.isNaN(value)) return "NaN";
  return value > 0 ? "+Inf" : "-Inf";
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 6 });

// All digits that matter, in groups: "1,728", "0.000012".
export function formatGrouped(value: number): string {
  if (!Number.isFinite(value)) return special(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.0001 || size >= 1e15)) return String(value);
  return grouped.format(value);
}

// "1 target", "3 targets"; callers give a plural that is not the singular with an s.
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${formatGrouped(count)} ${count === 1 ? one : many}`;
}
