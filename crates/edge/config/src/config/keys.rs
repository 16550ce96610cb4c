//! Tables of the keys of a config: those of Prometheus 3.14, and Firn's own under `firn`.
//!
//! The keys have the order in which Prometheus prints them. Follows Prometheus's `config/config.go`
//! and its libraries for HTTP clients and signing.

use super::schema::{ConfigKey, ConfigValueShape, KeyGroups, KeyPrinting, PATHS, TEXTS};
use ConfigValueShape::{
    Bool, CaselessText, Choice, Count, Duration, Integer, LabelName, Labels, List, Map, Number,
    Path, Secret, Section, Size, Text, Url,
};
use KeyPrinting::{AsWritten, UnlessZero};
use firn_discovery::DISCOVERY_KEYS;
use firn_http_client::http_config::{HTTP_CLIENT, TLS, WRITE_CLIENT};

const fn key(name: &'static str, shape: ConfigValueShape) -> ConfigKey {
    ConfigKey::new(name, shape)
}

/// Shape of the whole config file.
pub const CONFIG: ConfigValueShape = Section(KEYS);

/// Keys of the whole config file, including the section `firn`.
pub const KEYS: KeyGroups = &[TOP];

const TOP: &[ConfigKey] = &[
    key("global", Section(&[GLOBAL])).printed(UnlessZero),
    key("runtime", Section(&[&[key("gogc", Integer).or("75")]]))
        .printed(UnlessZero)
        .ignored(),
    key("alerting", Section(&[ALERTING])),
    key("rule_files", PATHS),
    key("scrape_config_files", PATHS),
    JOBS,
    key("storage", Section(&[STORAGE])).printed(UnlessZero),
    key("tracing", Section(&[TRACING])),
    key(
        "remote_write",
        List(&Section(&[REMOTE_WRITE, WRITE_CLIENT, SENDING])),
    ),
    key(
        "remote_read",
        List(&Section(&[REMOTE_READ, HTTP_CLIENT, READ_MATCHERS])),
    ),
    key("otlp", Section(&[OTLP])).printed(UnlessZero),
    key("firn", Section(&[FIRN])).printed(AsWritten),
];

const JOBS: ConfigKey = key(
    "scrape_configs",
    List(&Section(&[
        JOB,
        HTTP_CLIENT,
        JOB_RELABELLING,
        DISCOVERY_KEYS,
    ])),
);

/// Shape of a scrape config file, which contains only jobs.
pub const JOB_FILE: ConfigValueShape = Section(&[&[JOBS]]);

/// Firn's own keys, with the defaults and texts for `docs/settings.md`.
pub const FIRN: &[ConfigKey] = &[
    key("wal_sync", Choice(&["always", "interval", "none"])).explained(
        "always",
        "When Firn flushes acknowledged writes to disk: `always` (before the response), \
         `interval` (within 200 ms under load, within a second when idle) or `none` (left to the \
         operating system). This determines which writes survive a power failure. A crash of the \
         process loses no acknowledged write in any mode.",
    ),
    key("memory_limit", Text).explained(
        "60%",
        "Memory for ingestion, queries and caches together: a size (`4GB`) or a percentage \
         (`60%`) of the memory available to the process: the limit of the cgroup, the memory of \
         the machine or `ulimit -v`. All other memory limits are fractions of this value.",
    ),
    key("new_series_limit", Count).explained(
        "0",
        "Maximum number of new series per hour of data time. Firn rejects further new series and \
         continues to accept samples of existing series. 0 means no limit.",
    ),
    key("new_series_per_job_limit", Count).explained(
        "0",
        "Maximum number of new series per hour of data time for each value of the label `job`. \
         `/api/v1/status/tsdb` lists the jobs over the limit. 0 means no limit.",
    ),
    key("query_series_limit", Count).explained(
        "0",
        "Maximum number of series that the selectors of one query may match in total, for every \
         tenant. A query that matches more series fails before it reads samples; the error \
         contains their number. A series counts for a selector if it has a sample in one of the \
         two-hour windows that the selector's time range overlaps. 0 means no limit. A config \
         reload applies changes.",
    ),
    key("duplicates", DUPLICATES).explained(
        "keep-first",
        "Which sample queries return if a series has two samples with the same timestamp: \
         `keep-first` (the sample ingested first; samples ingested in order take precedence over \
         late samples), `keep-last` (the sample ingested last) or `max` (the greatest value; \
         histograms take precedence over floats, and the last histogram over earlier ones). With \
         `keep-last` and `max`, and if late samples are accepted, Firn also accepts a different \
         value at the timestamp of the newest sample of a series.",
    ),
    key("sealing_jitter", Bool).explained(
        "true",
        "Seal groups of series into pages at different times. For benchmarks only (`make bench \
         BENCH=--ablation`): if false, all groups are sealed at once.",
    ),
    key("sealing_background", Bool).explained(
        "true",
        "Create and write pages in the background. For benchmarks only: if false, a write that \
         fills a window waits until its pages are written.",
    ),
    key("rules", Section(&[RULES])),
    key("sending_queue_bytes", Size).explained(
        "4GiB",
        "Maximum size of the queue on disk for one receiver of `remote_write`. When the queue is \
         full, Firn drops the oldest requests of that receiver and counts them. A config reload \
         applies changes.",
    ),
    key("multitenancy", Bool).explained(
        "false",
        "Require the `X-Scope-OrgID` header, which selects the tenant of a request.",
    ),
    key("access", Section(&[super::access::KEYS])),
    key("aggregation", Section(&[AGGREGATION])).explained(
        "{groups: []}",
        "Rules that aggregate samples during ingestion, so that their source series need not be \
         stored. See [aggregation.md](aggregation.md). A config reload applies changes.",
    ),
];

const AGGREGATION: &[ConfigKey] = &[key("groups", List(&Section(&[AGGREGATION_GROUP])))];

const AGGREGATION_GROUP: &[ConfigKey] = &[
    key("name", Text).required(),
    key("stream", Bool).required(),
    key("interval", Duration),
    key("delay", Duration),
    key("rules", List(&Section(&[AGGREGATION_RULE]))),
];

const AGGREGATION_RULE: &[ConfigKey] = &[
    key("record", Text).required(),
    key("expr", Text).required(),
    key("labels", Map(&Text)),
    key("drop", Bool),
    key("type", Choice(&["counter", "gauge"])),
];

const RULES: &[ConfigKey] = &[
    key("catch_up", Duration).explained(
        "1h",
        "Maximum age of missed rule evaluations (after a restart or under overload) that Firn \
         catches up on. It evaluates the rules for their original timestamps, with the data \
         stored at the time of the catch-up. Older missed evaluations are skipped. `0s` disables \
         catching up, as in Prometheus. A config reload applies changes.",
    ),
    key("catch_up_delay", Duration).explained(
        "0s",
        "Delay between the start of the server and catching up, in which senders can deliver \
         their backlog. A config reload applies changes.",
    ),
    key("folder", Text).explained(
        "",
        "Folder with rule files that clients edit over `/config/v1/rules`, as in Mimir's ruler, \
         for `mimirtool rules` and Grafana. Firn evaluates these rules like those of \
         `rule_files`. Without a folder, rules cannot be edited over HTTP. A config reload \
         applies changes.",
    ),
];

const DUPLICATES: ConfigValueShape = Choice(&["keep-first", "keep-last", "max"]);

const GLOBAL: &[ConfigKey] = &[
    key("scrape_interval", Duration).or("1m"),
    key("scrape_timeout", Duration).or("10s"),
    key("scrape_protocols", TEXTS),
    key("evaluation_interval", Duration).or("1m"),
    key("rule_query_offset", Duration),
    key("query_log_file", Path),
    key("scrape_failure_log_file", Path),
    key("external_labels", Map(&Text)),
    key("body_size_limit", Size),
    key("sample_limit", Count),
    key("target_limit", Count),
    key("label_limit", Count),
    key("label_name_length_limit", Count),
    key("label_value_length_limit", Count),
    key("keep_dropped_targets", Count),
    key("metric_name_validation_scheme", Text).or("utf8"),
    key("metric_name_escaping_scheme", Text),
    key("scrape_native_histograms", Bool).always("false"),
    key("convert_classic_histograms_to_nhcb", Bool),
    key("always_scrape_classic_histograms", Bool),
    key("extra_scrape_metrics", Bool).always("false"),
];

const STORAGE: &[ConfigKey] = &[
    key("tsdb", Section(&[TSDB])).printed(UnlessZero),
    key("exemplars", Section(&[&[key("max_exemplars", Integer)]])),
];

const TSDB: &[ConfigKey] = &[
    // Upstream accepts this internal field under its Go name, in milliseconds, overwrites it with
    // `out_of_order_time_window`, and prints it.
    key("outofordertimewindow", Integer).always("0"),
    // Printed even if zero, because Firn's default is not zero.
    key("out_of_order_time_window", Duration).always(""),
    key("stale_series_compaction_threshold", Number).ignored(),
    key("chunk_encoding", Section(&[&[key("floats", Text)]])).ignored(),
    key("retention", Section(&[RETENTION])),
];

const RETENTION: &[ConfigKey] = &[
    key("time", Duration),
    key("size", Size),
    key("percentage", Number),
];

const JOB: &[ConfigKey] = &[
    key("job_name", Text).always(""),
    key("honor_labels", Bool),
    key("honor_timestamps", Bool).always("true"),
    key("track_timestamps_staleness", Bool).always("false"),
    key("params", Map(&TEXTS)),
    key("scrape_interval", Duration),
    key("scrape_timeout", Duration),
    key("scrape_protocols", TEXTS),
    key("fallback_scrape_protocol", Text),
    key("scrape_native_histograms", Bool).always("false"),
    key("always_scrape_classic_histograms", Bool).always("false"),
    key("convert_classic_histograms_to_nhcb", Bool).always("false"),
    key("scrape_failure_log_file", Path),
    key("metrics_path", Text).or("/metrics"),
    key("scheme", Text).or("http"),
    key("enable_compression", Bool).always("true"),
    key("body_size_limit", Size),
    key("sample_limit", Count),
    key("target_limit", Count),
    key("label_limit", Count),
    key("label_name_length_limit", Count),
    key("label_value_length_limit", Count),
    key("native_histogram_bucket_limit", Count),
    key("native_histogram_min_bucket_factor", Number),
    key("keep_dropped_targets", Count),
    key("metric_name_validation_scheme", Text),
    key("metric_name_escaping_scheme", Text),
    key("extra_scrape_metrics", Bool).always("false"),
];

const JOB_RELABELLING: &[ConfigKey] = &[
    key("relabel_configs", RELABEL_RULES),
    key("metric_relabel_configs", RELABEL_RULES),
];

const RELABEL_RULES: ConfigValueShape = List(&Section(&[&[
    key("source_labels", List(&LabelName)),
    key("separator", Text).always(";"),
    key("regex", Text),
    key("modulus", Count),
    key("target_label", Text),
    key("replacement", Text).always("$1"),
    key("action", CaselessText).or("replace"),
]]));

const ALERTING: &[ConfigKey] = &[
    key("alert_relabel_configs", RELABEL_RULES),
    key(
        "alertmanagers",
        List(&Section(&[HTTP_CLIENT, ALERTMANAGER, DISCOVERY_KEYS])),
    ),
];

const ALERTMANAGER: &[ConfigKey] = &[
    key("sigv4", Section(&[SIGV4])),
    key("scheme", Text).or("http"),
    key("path_prefix", Text),
    key("timeout", Duration).or("10s"),
    key("api_version", Text).always("v2"),
    key("relabel_configs", RELABEL_RULES),
    key("alert_relabel_configs", RELABEL_RULES),
];

const TRACING: &[ConfigKey] = &[
    key("client_type", Text).or("grpc"),
    key("endpoint", Text),
    key("sampling_fraction", Number),
    key("insecure", Bool),
    key("tls_config", TLS),
    key("headers", Map(&Text)),
    key("compression", Text),
    key("timeout", Duration),
];

const REMOTE_WRITE: &[ConfigKey] = &[
    key("url", Url).always(""),
    key("remote_timeout", Duration).or("30s"),
    key("headers", Map(&Text)),
    key("write_relabel_configs", RELABEL_RULES),
    key("name", Text),
    key("send_exemplars", Bool),
    key("send_native_histograms", Bool),
    key("round_robin_dns", Bool).ignored(),
    key("protobuf_message", Text).or("prometheus.WriteRequest"),
    key("failed_request_logging", Bool).ignored(),
];

const SENDING: &[ConfigKey] = &[
    key("queue_config", Section(&[QUEUE])).printed(UnlessZero),
    key("metadata_config", Section(&[METADATA])).printed(UnlessZero),
    key("sigv4", Section(&[SIGV4])),
    key("azuread", Section(&[AZURE_AD])),
    key("google_iam", Section(&[&[key("credentials_file", Path)]])),
];

const QUEUE: &[ConfigKey] = &[
    key("capacity", Integer).or("10000").ignored(),
    key("max_shards", Integer).or("50"),
    key("min_shards", Integer).or("1"),
    key("max_samples_per_send", Integer).or("2000"),
    key("batch_send_deadline", Duration).or("5s"),
    key("min_backoff", Duration).or("30ms"),
    key("max_backoff", Duration).or("5s"),
    key("retry_on_http_429", Bool),
    key("sample_age_limit", Duration),
];

const METADATA: &[ConfigKey] = &[
    key("send", Bool).always("true"),
    key("send_interval", Duration).always("1m"),
    key("max_samples_per_send", Integer).or("2000"),
];

const REMOTE_READ: &[ConfigKey] = &[
    key("url", Url).always(""),
    key("remote_timeout", Duration).or("1m"),
    key("chunked_read_limit", Count).or("50000000"),
    key("headers", Map(&Text)),
    key("read_recent", Bool),
    key("name", Text),
];

const READ_MATCHERS: &[ConfigKey] = &[
    key("required_matchers", Labels),
    key("filter_external_labels", Bool).or("true"),
];

const OTLP: &[ConfigKey] = &[
    key("promote_all_resource_attributes", Bool),
    key("promote_resource_attributes", TEXTS),
    key("ignore_resource_attributes", TEXTS),
    key("translation_strategy", Text).or("UnderscoreEscapingWithSuffixes"),
    key("keep_identifying_resource_attributes", Bool),
    key("convert_histograms_to_nhcb", Bool),
    key("promote_scope_metadata", Bool),
    key("label_name_underscore_sanitization", Bool).or("true"),
    key("label_name_preserve_multiple_underscores", Bool).or("true"),
];

const SIGV4: &[ConfigKey] = &[
    key("region", Text),
    key("access_key", Text),
    key("secret_key", Secret),
    key("profile", Text),
    key("role_arn", Text),
    key("external_id", Text),
    key("use_fips_sts_endpoint", Bool),
    key("service_name", Text),
];

const AZURE_AD: &[ConfigKey] = &[
    key("managed_identity", Section(&[&[key("client_id", Text)]])),
    key(
        "workload_identity",
        Section(&[&[
            key("client_id", Text),
            key("tenant_id", Text),
            key("token_file_path", Text),
        ]]),
    ),
    key(
        "oauth",
        Section(&[&[
            key("client_id", Text),
            key("client_secret", Secret),
            key("tenant_id", Text),
        ]]),
    ),
    key("sdk", Section(&[&[key("tenant_id", Text)]])),
    key(
        "certificate",
        Section(&[&[
            key("client_id", Text),
            key("tenant_id", Text),
            key("certificate_path", Text),
            key("certificate_key_path", Text),
            key("certificate_password", Secret),
            key("send_certificate_chain", Bool),
        ]]),
    ),
    key("cloud", Text).or("AzurePublic"),
    key("scope", Text),
];
