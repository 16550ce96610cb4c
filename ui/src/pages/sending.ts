// Ways to get data into Firn, as texts to copy. `root` is the address of this server with a slash at
// its end; `tenant` is empty without multitenancy.

import { shellQuoted } from "../format/shell";

export interface Way {
  id: string;
  name: string;
  text: string;
  code: (root: string, tenant: string) => string;
}

export const WAYS: readonly Way[] = [
  {
    id: "scrape",
    name: "Scrape targets",
    text: "Firn scrapes as Prometheus does. Start it with --config firn.yml, a file like this:",
    code: (_, tenant) =>
      `scrape_configs:\n- job_name: node\n  static_configs:\n  - targets: ['localhost:9100']\n${tenant && `    labels: {__tenant_id__: "${tenant}"}\n`}`,
  },
  {
    id: "write",
    name: "Prometheus remote_write",
    text: "A Prometheus that you have sends all that it scrapes, with this in its configuration:",
    code: (root, tenant) => `remote_write:\n- url: ${root}api/v1/write\n${tenant && `  headers: {X-Scope-OrgID: "${tenant}"}\n`}`,
  },
  {
    id: "otlp",
    name: "OpenTelemetry",
    text: "The SDKs of OpenTelemetry read these variables; a collector uses the same address in otlphttp.",
    code: (root, tenant) =>
      `export OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=${root}api/v1/otlp/v1/metrics\nexport OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf\n${
        tenant && `export OTEL_EXPORTER_OTLP_METRICS_HEADERS=${shellQuoted(`X-Scope-OrgID=${encodeURIComponent(tenant)}`)}\n`}`,
  },
  {
    id: "curl",
    name: "Text by curl",
    text: "Samples in the text format, also of the past:",
    code: (root, tenant) =>
      `echo 'my_first_metric{job="curl"} 42' | curl ${tenant && `-H ${shellQuoted(`X-Scope-OrgID: ${tenant}`)} `}--data-binary @- ${root}api/v1/import/prometheus\n`,
  },
];
