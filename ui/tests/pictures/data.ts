// Data of the pictures: an hour of a shop, with a rise in the middle.

import type { Firn } from "../browser/fixtures/firn";

const STEP_MS = 15_000;
const STEPS = 300;
const HANDLERS = ["/assets", "/users", "/cart", "/checkout", "/login", "/admin"];
const BASES = [34, 26, 19, 15, 11, 4];
const BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

// Requests per second of a handler at a step.
function pace(handler: number, step: number): number {
  const wave = 1 + 0.07 * Math.sin(step / 18 + handler * 2) + 0.05 * Math.sin(step / 6 + handler);
  const rise = handler === 1 && step > 190 && step < 235 ? 1.35 : 1;
  return (BASES[handler] ?? 1) * wave * rise;
}

// Median latency in seconds at a step.
const median = (step: number): number => 0.06 * (1 + 0.5 * Math.sin(step / 25)) * (step > 190 && step < 235 ? 4 : 1);

export async function fillPictures(firn: Firn): Promise<void> {
  const now = Math.floor(Date.now() / 1000) * 1000;
  const lines: string[] = [];
  const totals = HANDLERS.map(() => 0);
  const buckets = [...BOUNDS, Infinity].map(() => 0);
  for (let step = 0; step <= STEPS; step += 1) {
    const at = now - (STEPS - step) * STEP_MS;
    for (const [i, handler] of HANDLERS.entries()) {
      totals[i] = (totals[i] ?? 0) + Math.round(pace(i, step) * 15);
      lines.push(`shop_requests_total{handler="${handler}",namespace="shop-1"} ${totals[i]} ${at}`);
    }
    for (const [i, bound] of [...BOUNDS, Infinity].entries()) {
      // A log-logistic distribution: the share of requests below a bound.
      const share = bound === Infinity ? 1 : 1 / (1 + (median(step) / bound) ** 2.5);
      buckets[i] = (buckets[i] ?? 0) + Math.round(1500 * share);
      lines.push(`shop_latency_seconds_bucket{le="${bound === Infinity ? "+Inf" : bound}"} ${buckets[i]} ${at}`);
    }
  }
  await firn.write(`${lines.join("\n")}\n`);
  await firn.waitForSeries("shop_requests_total");
}
