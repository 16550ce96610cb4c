// An answer or a question for other tools: CSV, a shell, Grafana.

import type { QueryData } from "../api/types";
import { root } from "../api/root";
import { selectorOf } from "../format/labels";
import { formatDuration } from "../format/duration";
import { shellQuoted } from "../format/shell";
import { tenant } from "../state/tenant.svelte";
import type { Question } from "./run.svelte";
import { numberText } from "./wire";

const field = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
// A line of CSV, without its end.
export const line = (fields: readonly string[]) => fields.map(field).join(",");
const iso = (seconds: number) => new Date(seconds * 1000).toISOString();

// One line a sample of an instant query; one column a series of a range query. Histograms are left out,
// because a cell has no place for their buckets.
export function csv(data: QueryData): string {
  switch (data.resultType) {
    case "scalar":
    case "string":
      return `${line(["time", "value"])}\n${line([iso(data.result[0]), data.result[1]])}\n`;
    case "vector": {
      const names = [...new Set(data.result.flatMap(({ metric }) => Object.keys(metric)))].sort();
      const rows = data.result.flatMap(({ metric, value }) =>
        value === undefined ? [] : [line([iso(value[0]), ...names.map((name) => metric[name] ?? ""), value[1]])],
      );
      return `${[line(["time", ...names, "value"]), ...rows].join("\n")}\n`;
    }
    case "matrix":
      return matrixCsv(data.result);
  }
}

function matrixCsv(result: Extract<QueryData, { resultType: "matrix" }>["result"]): string {
  const columns = result.map(({ times, values }) => new Map(Array.from(times, (time, i) => [time, values[i] ?? NaN])));
  const times = [...new Set(columns.flatMap((column) => [...column.keys()]))].sort((a, b) => a - b);
  const head = line(["time", ...result.map(({ metric }) => selectorOf(metric))]);
  const rows = times.map((time) =>
    line([iso(time), ...columns.map((column) => (column.has(time) ? numberText(column.get(time) ?? NaN) : ""))]),
  );
  return `${[head, ...rows].join("\n")}\n`;
}

// The headers of the page itself, except for the credential.
const headers = (flag: string, between: string): string[] =>
  Object.entries(tenant.headers()).map(([name, value]) => `${flag} ${shellQuoted(name + between + value)}`);

export function curl({ expr, kind, start, end, step }: Question): string {
  const path = kind === "range" ? "query_range" : "query";
  const times = kind === "range" ? [`start=${iso(start)}`, `end=${iso(end)}`, `step=${step}`] : [`time=${iso(end)}`];
  const forms = [`query=${expr}`, ...times].map((one) => `--data-urlencode ${shellQuoted(one)}`);
  return ["curl", "-s", ...headers("-H", ": "), shellQuoted(`${root}api/v1/${path}`), ...forms].join(" ");
}

export function firnQuery({ expr, kind, start, end, step }: Question): string {
  const server = [...headers("--header", "="), shellQuoted(root.replace(/\/$/, ""))].join(" ");
  if (kind === "instant") return `firn query instant --time ${iso(end)} ${server} ${shellQuoted(expr)}`;
  const times = `--start ${iso(start)} --end ${iso(end)} --step ${formatDuration(step)}`;
  return `firn query range ${times} ${server} ${shellQuoted(expr)}`;
}

const GRAFANA_UNITS: Record<string, string> = { bytes: "bytes", seconds: "s", ratio: "percentunit" };

// A panel for Grafana's "Panel JSON".
export function grafanaPanel({ expr, kind }: Question, unit: string, isStacked: boolean): string {
  const custom = isStacked ? { stacking: { mode: "normal" }, fillOpacity: 30 } : {};
  return JSON.stringify(
    {
      type: kind === "range" ? "timeseries" : "table",
      title: expr,
      datasource: { type: "prometheus" },
      fieldConfig: { defaults: { unit: GRAFANA_UNITS[unit] ?? "short", custom }, overrides: [] },
      targets: [{ refId: "A", expr, range: kind === "range", instant: kind === "instant", editorMode: "code" }],
    },
    null,
    2,
  );
}

