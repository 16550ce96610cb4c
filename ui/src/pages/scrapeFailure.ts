// Why a scrape failed, in words, with the next step. The error of the server is shown
// beside it in full.

const CAUSES: [RegExp, string][] = [
  [/connection refused/i, "Nothing listens at this address: is the process running, and is the port right?"],
  [/dns error|no such host|failed to lookup|name or service not known/i,
    "The name has no address: check its spelling and the DNS of this server."],
  [/x509|certificate|tls|handshake/i,
    "The TLS connection failed: check `scheme`, `tls_config` and the certificate of the target."],
  [/status 401/i, "The target requires credentials: set `basic_auth` or `authorization` for this job."],
  [/status 403/i, "The credentials of this job may not read the metrics of the target."],
  [/status 404/i, "There is no such page at the target: check `metrics_path`."],
  [/status 5\d\d/i, "The target itself failed to answer; its own log has the cause."],
  [/server returned http status/i, "The target answered, but not with metrics."],
  [/deadline exceeded|timed? ?out/i,
    "The target did not answer within the scrape timeout: it is slow, or a firewall drops the packets."],
  [/body size limit/i, "The answer is larger than `body_size_limit` of this job."],
  [/sample limit/i, "The target has more samples than `sample_limit` of this job."],
  [/label_limit|label_name_length|label_value_length/i, "A sample exceeds the limits on labels of this job."],
  [/bucket limit/i, "A native histogram has more buckets than `native_histogram_bucket_limit`."],
  [/target_limit/i, "The job has more targets than `target_limit`."],
  [/content type|content-type/i,
    "The answer is not in a format of Prometheus: set `fallback_scrape_protocol`, or check `metrics_path`."],
  [/no route|unreachable/i, "There is no way through the network to this address."],
  [/reset by peer|broken pipe|unexpected eof|connection closed/i, "The target ended the connection early."],
  [/parse|invalid|expected/i, "The answer is not valid in its format: the error contains the position."],
];

// Returns the cause of a scrape error in one sentence; `undefined` for an error of no known kind.
export function causeOf(error: string): string | undefined {
  return CAUSES.find(([pattern]) => pattern.test(error))?.[1];
}
