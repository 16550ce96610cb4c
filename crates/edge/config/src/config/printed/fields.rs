//! Table of the fields of Prometheus's config, in the order and with the defaults in which
//! Prometheus prints them.

use PrintedFieldKind::{
    Discoveries, Duration, Flag, List, ListMap, Lower, Number, Path, Paths, Pointer, Section, Size,
    Text, TextMap, Texts, Whole,
};
use firn_config_schema::printed::{PrintedField, PrintedFieldKind, always, field, with};
use firn_http_client::http_config::{CLIENT, PRINTED_TLS as TLS, WRITE_CLIENT};

const DISCOVERIES: PrintedField = field("", Discoveries);

/// Fields of the whole config in upstream's order, except the section `firn`.
pub const CONFIG: &[PrintedField] = &[
    field("global", Section(&[GLOBAL])),
    field("runtime", Section(&[&[with("gogc", Whole, "75")]])),
    field("alerting", Pointer(&[ALERTING])),
    field("rule_files", Paths),
    field("scrape_config_files", Paths),
    field(
        "scrape_configs",
        List(&[JOB, CLIENT, RELABELLING, &[DISCOVERIES]]),
    ),
    field("storage", Section(&[STORAGE])),
    field("tracing", Pointer(&[TRACING])),
    field(
        "remote_write",
        List(&[REMOTE_WRITE, WRITE_CLIENT, QUEUE, SIGNING]),
    ),
    field("remote_read", List(&[REMOTE_READ, CLIENT, READ_MATCHERS])),
    field("otlp", Section(&[OTLP])),
];

const GLOBAL: &[PrintedField] = &[
    with("scrape_interval", Duration, "1m"),
    with("scrape_timeout", Duration, "10s"),
    field("scrape_protocols", Texts),
    with("evaluation_interval", Duration, "1m"),
    field("rule_query_offset", Duration),
    field("query_log_file", Path),
    field("scrape_failure_log_file", Path),
    field("external_labels", TextMap),
    field("body_size_limit", Size),
    field("sample_limit", Whole),
    field("target_limit", Whole),
    field("label_limit", Whole),
    field("label_name_length_limit", Whole),
    field("label_value_length_limit", Whole),
    field("keep_dropped_targets", Whole),
    with("metric_name_validation_scheme", Text, "utf8"),
    field("metric_name_escaping_scheme", Text),
    always("scrape_native_histograms", Flag, "false"),
    field("convert_classic_histograms_to_nhcb", Flag),
    field("always_scrape_classic_histograms", Flag),
    always("extra_scrape_metrics", Flag, "false"),
];

const JOB: &[PrintedField] = &[
    always("job_name", Text, ""),
    field("honor_labels", Flag),
    always("honor_timestamps", Flag, "true"),
    always("track_timestamps_staleness", Flag, "false"),
    field("params", ListMap),
    field("scrape_interval", Duration),
    field("scrape_timeout", Duration),
    field("scrape_protocols", Texts),
    field("fallback_scrape_protocol", Text),
    always("scrape_native_histograms", Flag, "false"),
    always("always_scrape_classic_histograms", Flag, "false"),
    always("convert_classic_histograms_to_nhcb", Flag, "false"),
    field("scrape_failure_log_file", Path),
    with("metrics_path", Text, "/metrics"),
    with("scheme", Text, "http"),
    always("enable_compression", Flag, "true"),
    field("body_size_limit", Size),
    field("sample_limit", Whole),
    field("target_limit", Whole),
    field("label_limit", Whole),
    field("label_name_length_limit", Whole),
    field("label_value_length_limit", Whole),
    field("native_histogram_bucket_limit", Whole),
    field("native_histogram_min_bucket_factor", Number),
    field("keep_dropped_targets", Whole),
    field("metric_name_validation_scheme", Text),
    field("metric_name_escaping_scheme", Text),
    always("extra_scrape_metrics", Flag, "false"),
];

const RELABELLING: &[PrintedField] = &[
    field("relabel_configs", List(&[RULE])),
    field("metric_relabel_configs", List(&[RULE])),
];

const RULE: &[PrintedField] = &[
    field("source_labels", Texts),
    always("separator", Text, ";"),
    field("regex", Text),
    field("modulus", Whole),
    field("target_label", Text),
    always("replacement", Text, "$1"),
    with("action", Lower, "replace"),
];

const ALERTING: &[PrintedField] = &[
    field("alert_relabel_configs", List(&[RULE])),
    field("alertmanagers", List(&[CLIENT, ALERTMANAGER])),
];

const ALERTMANAGER: &[PrintedField] = &[
    field("sigv4", Pointer(&[SIGV4])),
    with("scheme", Text, "http"),
    field("path_prefix", Text),
    with("timeout", Duration, "10s"),
    always("api_version", Text, "v2"),
    field("relabel_configs", List(&[RULE])),
    field("alert_relabel_configs", List(&[RULE])),
    DISCOVERIES,
];

const STORAGE: &[PrintedField] = &[
    field("tsdb", Section(&[TSDB])),
    field("exemplars", Pointer(&[&[field("max_exemplars", Whole)]])),
];

const TSDB: &[PrintedField] = &[
    // Upstream prints this internal field, which has no YAML key, under its Go name.
    always("outofordertimewindow", Whole, "0"),
    // Printed even if zero, because Firn's default is not zero.
    always("out_of_order_time_window", Duration, ""),
    field("stale_series_compaction_threshold", Number),
    field("chunk_encoding", Pointer(&[&[field("floats", Text)]])),
    field("retention", Pointer(&[RETENTION])),
];

const RETENTION: &[PrintedField] = &[
    field("time", Duration),
    field("size", Size),
    field("percentage", Number),
];

const TRACING: &[PrintedField] = &[
    with("client_type", Text, "grpc"),
    field("endpoint", Text),
    field("sampling_fraction", Number),
    field("insecure", Flag),
    field("tls_config", Pointer(&[TLS])),
    field("headers", TextMap),
    field("compression", Text),
    field("timeout", Duration),
];

const REMOTE_WRITE: &[PrintedField] = &[
    always("url", Text, ""),
    with("remote_timeout", Duration, "30s"),
    field("headers", TextMap),
    field("write_relabel_configs", List(&[RULE])),
    field("name", Text),
    field("send_exemplars", Flag),
    field("send_native_histograms", Flag),
    field("round_robin_dns", Flag),
    with("protobuf_message", Text, "prometheus.WriteRequest"),
    field("failed_request_logging", Flag),
];

const QUEUE: &[PrintedField] = &[
    field(
        "queue_config",
        Section(&[&[
            with("capacity", Whole, "10000"),
            with("max_shards", Whole, "50"),
            with("min_shards", Whole, "1"),
            with("max_samples_per_send", Whole, "2000"),
            with("batch_send_deadline", Duration, "5s"),
            with("min_backoff", Duration, "30ms"),
            with("max_backoff", Duration, "5s"),
            field("retry_on_http_429", Flag),
            field("sample_age_limit", Duration),
        ]]),
    ),
    field(
        "metadata_config",
        Section(&[&[
            always("send", Flag, "true"),
            always("send_interval", Duration, "1m"),
            with("max_samples_per_send", Whole, "2000"),
        ]]),
    ),
];

const SIGNING: &[PrintedField] = &[
    field("sigv4", Pointer(&[SIGV4])),
    field("azuread", Pointer(&[AZURE_AD])),
    field("google_iam", Pointer(&[&[field("credentials_file", Path)]])),
];

const SIGV4: &[PrintedField] = &[
    field("region", Text),
    field("access_key", Text),
    field("secret_key", Text),
    field("profile", Text),
    field("role_arn", Text),
    field("external_id", Text),
    field("use_fips_sts_endpoint", Flag),
    field("service_name", Text),
];

const AZURE_AD: &[PrintedField] = &[
    field("managed_identity", Pointer(&[&[field("client_id", Text)]])),
    field(
        "workload_identity",
        Pointer(&[&[
            field("client_id", Text),
            field("tenant_id", Text),
            field("token_file_path", Text),
        ]]),
    ),
    field(
        "oauth",
        Pointer(&[&[
            field("client_id", Text),
            field("client_secret", Text),
            field("tenant_id", Text),
        ]]),
    ),
    field("sdk", Pointer(&[&[field("tenant_id", Text)]])),
    field(
        "certificate",
        Pointer(&[&[
            field("client_id", Text),
            field("tenant_id", Text),
            field("certificate_path", Text),
            field("certificate_key_path", Text),
            field("certificate_password", Text),
            field("send_certificate_chain", Flag),
        ]]),
    ),
    with("cloud", Text, "AzurePublic"),
    field("scope", Text),
];

const REMOTE_READ: &[PrintedField] = &[
    always("url", Text, ""),
    with("remote_timeout", Duration, "1m"),
    with("chunked_read_limit", Whole, "50000000"),
    field("headers", TextMap),
    field("read_recent", Flag),
    field("name", Text),
];

const READ_MATCHERS: &[PrintedField] = &[
    field("required_matchers", TextMap),
    with("filter_external_labels", Flag, "true"),
];

const OTLP: &[PrintedField] = &[
    field("promote_all_resource_attributes", Flag),
    field("promote_resource_attributes", Texts),
    field("ignore_resource_attributes", Texts),
    with(
        "translation_strategy",
        Text,
        "UnderscoreEscapingWithSuffixes",
    ),
    field("keep_identifying_resource_attributes", Flag),
    field("convert_histograms_to_nhcb", Flag),
    field("promote_scope_metadata", Flag),
    with("label_name_underscore_sanitization", Flag, "true"),
    with("label_name_preserve_multiple_underscores", Flag, "true"),
];
