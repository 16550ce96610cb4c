// Places and labels of axes. Labels of one axis always differ: digits are added until they do.

const FACTORS = [1, 2, 5, 10];

// Distance of round numbers that cut [min, max] into at most `count` parts; powers of two for bytes.
export function tickStep(min: number, max: number, count: number, isBinary = false): number {
  const span = max - min || Math.abs(max) || 1;
  const finest = span / Math.max(1, count);
  if (isBinary && finest >= 1) {
    return 2 ** Math.ceil(Math.log2(finest) - 1e-9);
  }
  const power = 10 ** Math.floor(Math.log10(finest));
  const factor = FACTORS.find((f) => power * f >= finest * (1 - 1e-9)) ?? 10;
  return power * factor;
}

export function ticks(min: number, max: number, count: number, isBinary = false): number[] {
  const step = tickStep(min, max, count, isBinary);
  const first = Math.ceil(min / step - 1e-9);
  const found: number[] = [];
  for (let i = first; i * step <= max + step * 1e-9; i += 1) {
    // 3 * 0.1 is 0.30000000000000004: the digits below the step are noise.
    found.push(Number((i * step).toPrecision(14)));
    if (found.length > 200) break;
  }
  return found;
}

// Powers of ten between min and max, thinned to about `count`.
export function logTicks(min: number, max: number, count: number): number[] {
  const [low, high] = [Math.ceil(Math.log10(min) - 1e-9), Math.floor(Math.log10(max) + 1e-9)];
  const every = Math.max(1, Math.ceil((high - low + 1) / Math.max(1, count)));
  const found: number[] = [];
  for (let power = low; power <= high; power += every) found.push(10 ** power);
  if (found.length >= 2) return found;
  return ticks(min, max, count);
}

// Labels of ticks. `format` takes a number and how many digits are significant; it is called with
// more digits until no two labels are the same.
export function tickLabels(
  values: readonly number[],
  format: (value: number, digits: number) => string,
): string[] {
  for (let digits = 4; digits <= 15; digits += 1) {
    const labels = values.map((value) => format(value, digits));
    if (new Set(labels).size === labels.length) return labels;
  }
  return values.map(String);
}

// Limits of the value axis for data in [min, max]; zero is on the axis when the data comes near it.
export function axisRange(min: number, max: number): [number, number] {
  if (!(min <= max)) return [0, 1];
  let [low, high] = [min, max];
  if (low > 0 && low < high * 0.5) low = 0;
  if (high < 0 && high > low * 0.5) high = 0;
  // A height below the precision of a float cannot be drawn.
  if (high - low <= Math.max(Math.abs(high), Math.abs(low)) * 1e-12) {
    if (low === 0) return [0, 1];
    const room = Math.abs(low) * 0.2;
    return [low > 0 ? Math.max(0, low - room) : low - room, high < 0 ? Math.min(0, high + room) : high + room];
  }
  const room = (high - low) * 0.06;
  return [low === 0 ? 0 : low - room, high === 0 ? 0 : high + room];
}

// Limits of a logarithmic axis: the data with a little room; only positive values have a place.
export function logRange(min: number, max: number): [number, number] {
  if (!(min > 0) || !(max > 0)) return [0.1, 10];
  const room = Math.max((max / min) ** 0.05, 1.05);
  return [min / room, max * room];
}

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
const TIME_STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE,
  5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR,
  DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY,
];

// Round times between start and end. `offset` is the distance of the zone from UTC in seconds, so
// that midnight of the zone is a round time.
export function timeTicks(start: number, end: number, count: number, offset: number): number[] {
  const span = end - start;
  const step = TIME_STEPS.find((size) => span / size <= count) ?? 365 * DAY;
  const found: number[] = [];
  for (let n = Math.ceil((start + offset) / step); n * step - offset <= end; n += 1) {
    found.push(n * step - offset);
    if (found.length > 200) break;
  }
  return found;
}
