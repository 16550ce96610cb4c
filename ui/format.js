// Formats numbers, times, durations and label sets, and builds elements.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const UNITS = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400, w: 604800, y: 31536000 };

// Seconds of "1h30m" or "90"; undefined for other text.
export function parseDuration(text) {
  const trimmed = text.trim();
  if (/^\d+(\.\d+)?$/.test(trimmed)) return Number(trimmed);
  if (!/^(\d+(ms|[smhdwy]))+$/.test(trimmed)) return undefined;
  let seconds = 0;
  for (const [, count, unit] of trimmed.matchAll(/(\d+)(ms|[smhdwy])/g)) seconds += count * UNITS[unit];
  return seconds;
}

export function formatDuration(seconds) {
  let rest = Math.round(seconds * 1000);
  let text = "";
  for (const unit of ["w", "d", "h", "m", "s", "ms"]) {
    const size = Math.round(UNITS[unit] * 1000);
    if (unit === "w" && rest % size !== 0) continue;
    const count = Math.floor(rest / size);
    if (count > 0) text += count + unit;
    rest -= count * size;
  }
  return text || "0s";
}

const SCALES = {
  "": [1000, ["", "k", "M", "G", "T", "P", "E"]],
  bytes: [1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]],
};

// A number with few digits and a unit prefix.
export function formatNumber(value, unit = "") {
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : value < 0 ? "-Inf" : "NaN";
  if (unit === "seconds") return formatSeconds(value);
  if (unit === "percent") return `${trimmed(value * 100)} %`;
  const [base, names] = SCALES[unit] ?? SCALES[""];
  let size = Math.abs(value);
  if (size !== 0 && size < 0.001 && unit === "") return value.toExponential(2);
  let step = 0;
  while (size >= base && step < names.length - 1) {
    size /= base;
    step += 1;
  }
  if (size >= base) return value.toExponential(3);
  return (value < 0 ? "-" : "") + trimmed(size) + names[step];
}

function formatSeconds(value) {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${trimmed(value * 1e6)} µs`;
  if (size < 1) return `${trimmed(value * 1e3)} ms`;
  return `${trimmed(value)} s`;
}

const trimmed = (value) => String(Number(value.toPrecision(4)));

const pad = (n) => String(n).padStart(2, "0");

export function formatTime(ms, span = 0) {
  const date = new Date(ms);
  const clock = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  if (span > 4 * 86400) return day.slice(5);
  if (span > 86400) return `${day.slice(5)} ${clock}`;
  if (span > 600) return clock;
  if (span > 0) return `${clock}:${pad(date.getSeconds())}`;
  return `${day} ${clock}:${pad(date.getSeconds())}`;
}

// "2026-11-20 19:04:05" in UTC, as Prometheus writes ends into its URLs.
export const formatUtc = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");
export const parseUtc = (text) => Date.parse(`${text.trim().replace(" ", "T")}Z`);

// A label set in query syntax, with muted names.
export function labelsElement(metric) {
  const node = element("span", { class: "labels mono" });
  const { __name__: name = "", ...labels } = metric;
  node.append(name);
  const pairs = Object.entries(labels);
  if (pairs.length === 0) {
    if (!name) node.append("{}");
    return node;
  }
  node.append("{");
  pairs.forEach(([label, value], i) => {
    const key = element("i");
    key.textContent = `${i > 0 ? ", " : ""}${/^[a-zA-Z_]\w*$/.test(label) ? label : JSON.stringify(label)}=`;
    node.append(key, JSON.stringify(value));
  });
  node.append("}");
  return node;
}
