// Firn's own metrics, as `/api/v1/status/self_metrics` returns them. They are read without PromQL, so
// they are there before the first scrape and on a server that scrapes nothing.

import type { Labels } from "../api/types";

export interface SelfSample {
  label?: { name: string; value: string }[];
  counter?: { value: number };
  gauge?: { value: number };
}

export interface SelfFamily {
  name: string;
  help?: string;
  metric?: SelfSample[];
}

interface Entry {
  labels: Labels;
  value: number;
}

export class SelfMetrics {
  private readonly families = new Map<string, Entry[]>();

  constructor(families: readonly SelfFamily[]) {
    for (const { name, metric = [] } of families) {
      const entries = metric.flatMap(({ label = [], counter, gauge }) => {
        const value = (counter ?? gauge)?.value;
        const labels = Object.fromEntries(label.map((pair) => [pair.name, pair.value]));
        return value === undefined ? [] : [{ labels, value: Number(value) }];
      });
      this.families.set(name, [...(this.families.get(name) ?? []), ...entries]);
    }
  }

  // The value of a series; `undefined` if there is none with these labels.
  value(name: string, labels: Labels = {}): number | undefined {
    return this.all(name).find((entry) => has(entry.labels, labels))?.value;
  }

  // The sum of the series with these labels; `undefined` without a series.
  sum(name: string, labels: Labels = {}): number | undefined {
    const found = this.all(name).filter((entry) => has(entry.labels, labels));
    return found.length === 0 ? undefined : found.reduce((sum, { value }) => sum + value, 0);
  }

  all(name: string): readonly Entry[] {
    return this.families.get(name) ?? [];
  }
}

function has(labels: Labels, wanted: Labels): boolean {
  return Object.entries(wanted).every(([name, value]) => labels[name] === value);
}
