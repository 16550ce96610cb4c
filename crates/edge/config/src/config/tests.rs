//! Tests of parsing whole configs.

use super::*;
use firn_discovery::{DiscoverySettings, TargetGroup};
use firn_http_client::{AuthMethod, Secret};
use firn_ingest::relabel::RelabelAction;
use firn_model::names::NameScheme;
use firn_wire::exposition::{ScrapeNameEscaping, ScrapeProtocol};

/// Parses the config in `text` as a file in `/etc`.
fn parse(text: &str) -> Result<Config, YamlError> {
    super::parse(text, Path::new("/etc"), JobFeatures::default()).map(|parsed| parsed.config)
}

/// Parses a config with one job that contains these lines, and returns the job.
fn job(lines: &str) -> Result<Arc<ScrapeJobSettings>, YamlError> {
    let text = format!(
        "scrape_configs:\n- job_name: j\n  {}\n",
        lines.replace('\n', "\n  ")
    );
    parse(&text).map(|config| config.jobs[0].clone())
}

/// A config with the features of real ones: every top-level section, several discoveries, anchors.
const REAL: &str = r#"
# Kubernetes, two static jobs, remote write with credentials.
global:
  scrape_interval: 15s
  scrape_timeout: 10s
  evaluation_interval: 30s
  external_labels: {cluster: eu-1, replica: "0"}
rule_files: [rules/*.yml]
alerting:
  alertmanagers:
  - scheme: https
    basic_auth: {username: u, password: hunter2}
    static_configs:
    - targets: ['alertmanager:9093']
scrape_configs:
- job_name: prometheus
  static_configs:
  - targets: ["localhost:9090"]
    labels: {a: b}
- job_name: pods
  honor_labels: yes
  kubernetes_sd_configs:
  - role: pod
    namespaces: {names: [a, b]}
  relabel_configs: &rules
  - source_labels: [__meta_kubernetes_pod_annotation_prometheus_io_scrape]
    action: keep
    regex: "true"
  - target_label: x
    replacement: $1:9100
- job_name: consul
  scheme: https
  tls_config: {insecure_skip_verify: true}
  authorization: {credentials: hunter2}
  consul_sd_configs: [{server: 'consul:8500', token: hunter2}]
  relabel_configs: *rules
remote_write:
- url: https://user:hunter2@example.org/api/v1/write
  queue_config: {max_shards: 4, max_samples_per_send: 2000}
  oauth2: {client_id: a, client_secret: hunter2, token_url: 'https://example.org'}
remote_read:
- {url: 'http://example.org/read', read_recent: true}
storage:
  tsdb:
    out_of_order_time_window: 10m
    retention: {time: 30d, size: 100GB}
  exemplars: {max_exemplars: 100000}
tracing: {endpoint: 'localhost:4317', insecure: true}
otlp: {promote_resource_attributes: [service.name]}
firn:
  wal_sync: interval
  duplicates: max
  memory_limit: 4GB
  multitenancy: true
  sealing_jitter: false
  sealing_background: no
"#;

#[test]
fn config_of_the_field_loads() {
    let config = parse(REAL).unwrap();
    assert_eq!(config.evaluation_interval, Duration::from_secs(30));
    let month = Duration::from_secs(30 * 24 * 3600);
    let retention = config.retention.unwrap();
    assert_eq!(
        (retention.time, retention.size, retention.percentage),
        (Some(month), Some(100 << 30), None)
    );
    assert_eq!(config.late_window, Duration::from_secs(600));
    assert_eq!(config.duplicates, DuplicatePolicy::Max);
    assert_eq!(config.wal_sync, WalSync::Interval);
    assert_eq!(config.memory_limit, MemoryLimit::Bytes(4 << 30));
    assert!(config.is_multitenant);
    assert!(!config.is_sealing_jittered && !config.seals_in_background);
    let usual = Config::default();
    assert!(usual.is_sealing_jittered && usual.seals_in_background);
    assert!(config.ignored.is_empty());
}

#[test]
fn late_window_is_half_an_hour_unless_the_config_says_another() {
    let cases = [
        ("", 30 * 60),
        ("storage: {tsdb: {retention: {time: 1d}}}", 30 * 60),
        ("storage: {tsdb: {out_of_order_time_window: }}", 30 * 60),
        ("storage: {tsdb: {out_of_order_time_window: 0s}}", 0),
        ("storage: {tsdb: {out_of_order_time_window: 2h}}", 7_200),
    ];
    for (text, seconds) in cases {
        let config = parse(text).unwrap();
        assert_eq!(config.late_window, Duration::from_secs(seconds), "{text}");
    }
}

#[test]
fn config_printed_has_no_secret_and_reads_back() {
    let config = parse(REAL).unwrap();
    assert!(!config.text.contains("hunter2"), "{}", config.text);
    assert!(
        config
            .text
            .contains("https://user:xxxxx@example.org/api/v1/write")
    );
    assert!(config.text.contains("password: <secret>"));
    let again = parse(&config.text).unwrap();
    assert_eq!(again.text, config.text);
    // The printed config adds, as upstream, the settings of Go's garbage collection and the
    // capacity of queues in memory.
    let of_others = |key: &str| key == "runtime" || key.ends_with(".queue_config.capacity");
    let own = |config: &Config| {
        let keys = config.ignored.iter().filter(|key| !of_others(key));
        keys.cloned().collect::<Vec<String>>()
    };
    assert_eq!(own(&again), own(&config));
    // Relabeling rules are printed with their defaults.
    for (read_back, job) in again.jobs.iter().zip(&config.jobs[..2]) {
        assert_eq!(read_back.name, job.name);
        assert_eq!(read_back.interval, job.interval);
        assert_eq!(read_back.http, job.http);
        assert_eq!(read_back.discoveries, job.discoveries);
        assert_eq!(read_back.relabel.len(), job.relabel.len());
    }
    // The third job has a secret, which is read but not printed.
    let secret = |job: &ScrapeJobSettings| job.http.auth.clone();
    let credentials = |text: &str| AuthMethod::Credentials {
        scheme: "Bearer".into(),
        credentials: Some(Secret::Inline(text.into())),
    };
    assert_eq!(secret(&config.jobs[2]), credentials("hunter2"));
    assert_eq!(secret(&again.jobs[2]), credentials("<secret>"));
}

#[test]
fn config_empty_has_the_documented_defaults() {
    for text in ["", "# nothing\n", "global:\n", "firn: {}\n"] {
        let config = parse(text).unwrap();
        let text = config.text.clone();
        assert_eq!(
            config,
            Config {
                text,
                ..Config::default()
            }
        );
    }
    assert_eq!(Config::default().memory_limit, MemoryLimit::Percent(60.0));
    assert_eq!(
        Config::default().evaluation_interval,
        Duration::from_secs(60)
    );
}

#[test]
fn config_not_understood_names_place_and_key() {
    for (text, want) in [
        ("globl: {}\n", "1:1: unknown key \"globl\" in the config"),
        ("- a\n", "1:1: the config: expected a mapping, got a list"),
        (
            "global:\n  scrape_intervall: 15s\n",
            "2:3: unknown key \"scrape_intervall\" in global",
        ),
        (
            "global:\n  scrape_interval: 15\n",
            "2:20: global.scrape_interval: not a valid duration string: \"15\"",
        ),
        (
            "global: {scrape_interval: 5s, scrape_timeout: 6s}\n",
            "1:9: global scrape timeout greater than scrape interval",
        ),
        (
            "scrape_configs:\n- static_configs: []\n",
            "2:3: job_name is empty",
        ),
        (
            "scrape_configs:\n- job_name: a\n- job_name: a\n",
            "3:3: found multiple scrape configs with job name \"a\"",
        ),
        (
            "scrape_configs:\n- job_name: a\n  relabel_configs:\n  - action: keeep\n",
            "4:13: unknown relabel action \"keeep\"",
        ),
        (
            "scrape_configs:\n- job_name: a\n  consul_sd_configs:\n  - {servr: x}\n",
            "4:6: unknown key \"servr\" in scrape_configs[0].consul_sd_configs[0]",
        ),
        (
            "scrape_configs:\n- {job_name: a, scrape_timeout: 2m}\n",
            "2:3: scrape timeout greater than scrape interval for scrape config with job name \
             \"a\"",
        ),
        (
            "remote_write:\n- name: x\n",
            "2:3: url for remote_write is empty",
        ),
        (
            "storage: {tsdb: {retention: {percentage: 101}}}\n",
            "1:29: 'storage.tsdb.retention.percentage' must be in the range [0, 100], got 101",
        ),
        (
            "firn:\n  memory_limit: 0%\n",
            "2:17: firn.memory_limit: expected a size or a percentage above 0%: \"0%\"",
        ),
        (
            "firn:\n  new_series_limit: -5\n",
            "2:21: firn.new_series_limit: not a count: \"-5\"",
        ),
        (
            "firn:\n  new_series_per_job_limit: -1\n",
            "2:29: firn.new_series_per_job_limit: not a count: \"-1\"",
        ),
        (
            "firn:\n  query_series_limit: -1\n",
            "2:23: firn.query_series_limit: not a count: \"-1\"",
        ),
        (
            "firn:\n  blocked_queries: [{pattern: up}, {pattern: '(', regex: true}]\n",
            "2:36: firn.blocked_queries: error parsing regexp: missing closing ): `(`",
        ),
        (
            "firn:\n  blocked_queries: [{regex: true}]\n",
            "2:21: firn.blocked_queries[0]: pattern is missing or empty",
        ),
        (
            "firn:\n  retention: [{match: '{a=\"b\"}', keep: 3d}, {match: '{a=}', keep: 1d}]\n",
            "2:53: firn.retention: match: 1:4: parse error: unexpected \"}\" in label matching, \
             expected string",
        ),
        (
            "firn:\n  retention: [{match: '{}', keep: 3d}]\n",
            "2:23: firn.retention: match: the selector has no matcher",
        ),
        (
            "firn:\n  retention: [{match: up, keep: 0s}]\n",
            "2:33: firn.retention: keep: must be greater than 0s",
        ),
        (
            "firn:\n  retention: [{match: up}]\n",
            "2:15: firn.retention[0]: keep is missing or empty",
        ),
        (
            "firn:\n  query_series_limit: -1.5\n",
            "2:23: firn.query_series_limit: not a count: \"-1.5\"",
        ),
        (
            "firn:\n  query_series_limit: 1e3\n",
            "2:23: firn.query_series_limit: not a count: \"1e3\"",
        ),
        (
            "firn: {wal_sync: sometimes}\n",
            "1:18: firn.wal_sync: not one of always, interval, none: \"sometimes\"",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), want, "{text}");
    }
}

#[test]
fn job_inherits_from_global_what_it_does_not_say() {
    let config = parse(
        r#"
global:
  scrape_interval: 15s
  scrape_timeout: 12s
  scrape_protocols: [PrometheusText0.0.4]
  body_size_limit: 1MB
  sample_limit: 10
  label_limit: 20
  keep_dropped_targets: 3
  extra_scrape_metrics: true
  metric_name_validation_scheme: legacy
  query_log_file: queries.log
  scrape_failure_log_file: failed.log
  external_labels: {zone: eu}
scrape_configs:
- job_name: a
- job_name: b
  scrape_interval: 10s
  sample_limit: 7
  scrape_protocols: [PrometheusProto, OpenMetricsText1.0.0]
  metric_name_validation_scheme: utf8
  extra_scrape_metrics: false
  scrape_failure_log_file: /var/log/b.log
"#,
    )
    .unwrap();
    let [a, b] = &config.jobs[..] else {
        panic!("two jobs")
    };
    let seconds = |d: Duration| d.as_secs();
    assert_eq!((seconds(a.interval), seconds(a.timeout)), (15, 12));
    assert_eq!((seconds(b.interval), seconds(b.timeout)), (10, 10));
    assert_eq!(a.protocols, [ScrapeProtocol::PrometheusText0_0_4]);
    assert_eq!(b.protocols.len(), 2);
    assert_eq!((a.limits.samples, b.limits.samples), (10, 7));
    assert_eq!((b.limits.body_bytes, b.limits.labels), (1 << 20, 20));
    assert_eq!(
        (a.names, a.escaping),
        (NameScheme::Legacy, ScrapeNameEscaping::Underscores)
    );
    assert_eq!(
        (b.names, b.escaping),
        (NameScheme::Utf8, ScrapeNameEscaping::AllowUtf8)
    );
    assert_eq!((a.extra_metrics, b.extra_metrics), (true, false));
    assert_eq!(
        a.failure_log_file.as_deref(),
        Some(Path::new("/etc/failed.log"))
    );
    assert_eq!(
        b.failure_log_file.as_deref(),
        Some(Path::new("/var/log/b.log"))
    );
    assert_eq!(config.external_labels.get("zone"), b"eu");
    assert_eq!(
        config.query_log_file.as_deref(),
        Some(Path::new("/etc/queries.log"))
    );
}

#[test]
fn job_without_a_word_has_prometheus_defaults() {
    let job = job("").unwrap();
    assert_eq!(*job, ScrapeJobSettings::new("j"));
    assert_eq!(job.interval, Duration::from_secs(60));
    assert_eq!(job.timeout, Duration::from_secs(10));
    assert_eq!(job.protocols, ScrapeProtocol::DEFAULT);
    let native = super::tests::job("scrape_native_histograms: true").unwrap();
    assert_eq!(native.protocols[0], ScrapeProtocol::PrometheusProto);
}

#[test]
fn job_reads_rules_sources_and_client() {
    let job = job(
        r#"params: {module: [http_2xx], "match[]": ['{job="a"}', up]}
static_configs:
- targets: ["a:1", 'b:2']
  labels: {env: prod, n: 1}
file_sd_configs:
- files: [targets/*.json, /abs/x.yml]
  refresh_interval: 10s
http_sd_configs:
- url: http://sd/targets
  basic_auth: {username: u, password_file: pw}
relabel_configs:
- source_labels: [__address__]
  regex:
  replacement:
  target_label: x
- {action: LabelDrop, regex: tmp_.*}
metric_relabel_configs:
- {source_labels: [a, b], action: hashmod, modulus: 8, target_label: shard}
bearer_token_file: token"#,
    )
    .unwrap();
    assert_eq!(job.params["match[]"], ["{job=\"a\"}", "up"]);
    let [fixed, files, server] = &job.discoveries[..] else {
        panic!("three discoveries")
    };
    let group = TargetGroup {
        targets: vec!["a:1".into(), "b:2".into()],
        labels: [("env".into(), "prod".into()), ("n".into(), "1".into())].into(),
    };
    assert_eq!(*fixed, DiscoverySettings::Static(vec![group]));
    let patterns = ["/etc/targets/*.json", "/abs/x.yml"].map(PathBuf::from);
    assert_eq!(files.target_files(), patterns);
    assert_eq!((files.mechanism(), server.mechanism()), ("file", "http"));
    // A key without a value differs from a missing key.
    let first = job.relabel[0].settings();
    assert_eq!((first.regex(), first.replacement()), ("", ""));
    assert_eq!(job.relabel[1].settings().action, RelabelAction::LabelDrop);
    assert_eq!(job.metric_relabel[0].settings().modulus, 8);
    let token = Some(Secret::File("/etc/token".into()));
    assert!(
        matches!(&job.http.auth, AuthMethod::Credentials { credentials, .. } if *credentials == token)
    );
}

#[test]
fn job_that_cannot_work_names_place_and_reason() {
    for (lines, want) in [
        (
            "static_configs: [{targets: ['http://a']}]",
            "2:3: \"http://a\" is not a valid hostname",
        ),
        (
            "relabel_configs: [{action: hashmod, target_label: x}]",
            "3:21: relabel configuration for hashmod requires non-zero modulus",
        ),
        (
            "metric_relabel_configs:\n- regex: a(\n  target_label: x",
            "4:5: error parsing regexp: missing closing ): `^(?s:a()$`",
        ),
        (
            "scrape_protocols: []",
            "3:21: scrape_protocols cannot be empty for scrape config with job name \"j\"",
        ),
        (
            "scrape_protocols: [PrometheusProto, PrometheusProto]",
            "3:39: duplicated protocol in scrape_protocols, got [PrometheusProto PrometheusProto] \
             for scrape config with job name \"j\"",
        ),
        (
            "metric_name_validation_scheme: legacy\nmetric_name_escaping_scheme: allow-utf-8",
            "2:3: utf8 metric names requested but validation scheme is not set to UTF8",
        ),
        (
            "sample_limit: -1",
            "3:17: scrape_configs[0].sample_limit: not a count: \"-1\"",
        ),
        (
            "file_sd_configs: [{files: [a.txt]}]",
            "3:21: path name \"a.txt\" is not valid for file discovery",
        ),
        (
            "http_sd_configs: [{url: 'ftp://x'}]",
            "3:21: URL scheme must be 'http' or 'https'",
        ),
        (
            "basic_auth: {username: a, password: b, password_file: c}",
            "3:15: at most one of basic_auth password, password_file & password_ref must be \
             configured",
        ),
        (
            "basic_auth: {username: a}\nauthorization: {credentials: x}",
            "2:3: at most one of basic_auth, oauth2 & authorization must be configured",
        ),
        (
            "authorization: {type: Basic, credentials: x}",
            "3:18: authorization type cannot be set to \"basic\", use \"basic_auth\" instead",
        ),
        (
            "bearer_token: a\noauth2: {client_id: a, token_url: 'http://x'}",
            "2:3: at most one of basic_auth, oauth2, bearer_token & bearer_token_file must be \
             configured",
        ),
        (
            "oauth2: {client_id: a}",
            "3:11: oauth2 token_url must be configured",
        ),
        (
            "tls_config: {cert_file: a}",
            "3:15: exactly one of key or key_file must be configured when a client certificate is \
             configured",
        ),
        (
            "no_proxy: x",
            "2:3: if no_proxy is configured, proxy_url must also be configured",
        ),
        (
            "http_headers: {x-b: {values: [a]}, content-type: {values: [a]}}",
            "3:52: setting header \"Content-Type\" is not allowed",
        ),
    ] {
        assert_eq!(job(lines).unwrap_err().to_string(), want, "{lines}");
    }
}

#[test]
fn load_takes_jobs_from_other_files_too() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    let main = write(
        "main.yml",
        "global: {scrape_interval: 5s}\nscrape_config_files: [jobs/*.yml]\n\
         scrape_configs: [{job_name: a}]\n",
    );
    write(
        "jobs/b.yml",
        "scrape_configs:\n- job_name: b\n  bearer_token_file: t\n  serverset_sd_configs: \
         [{servers: [z], paths: [/p]}]\n",
    );
    let config = load(&main, JobFeatures::default()).unwrap();
    let names: Vec<_> = config.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(config.jobs[1].interval, Duration::from_secs(5));
    assert_eq!(config.ignored, [""; 0]);
    let token = Some(Secret::File(dir.path().join("jobs/t")));
    assert!(
        matches!(&config.jobs[1].http.auth, AuthMethod::Credentials { credentials, .. } if *credentials == token)
    );
    write("jobs/c.yml", "scrape_configs: [{job_name: a}]\n");
    let e = load(&main, JobFeatures::default()).unwrap_err().to_string();
    assert!(
        e.ends_with("jobs/c.yml:1:1: found multiple scrape configs with job name \"a\""),
        "{e}"
    );
}

#[test]
fn features_change_what_jobs_inherit_and_not_what_is_written() {
    let names = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        JobFeatures::from_names(&names)
    };
    let job = |global: &str, features| {
        let text = format!("{global}scrape_configs: [{{job_name: j}}]\n");
        let parsed = super::parse(&text, Path::new("/etc"), features).unwrap();
        parsed.config.jobs[0].clone()
    };
    let none = names(&["promql-experimental-functions"]);
    assert!(none.language.experimental_functions && none.language.duration_expressions);
    let plain = job("", none);
    assert!(!plain.extra_metrics && !plain.start_times.are_parsed());
    assert_eq!(plain.protocols, ScrapeProtocol::DEFAULT);
    let all = names(&["extra-scrape-metrics", "st-storage", "type-and-unit-labels"]);
    for global in ["", "global: {scrape_interval: 1s}\n"] {
        let job = job(global, all);
        assert!(job.extra_metrics && job.start_times.are_stored && job.type_and_unit_labels);
        assert_eq!(job.protocols[0], ScrapeProtocol::PrometheusProto);
    }
    let written =
        "global: {extra_scrape_metrics: false, scrape_protocols: [OpenMetricsText1.0.0]}\n";
    let job = job(written, all);
    assert!(!job.extra_metrics && job.start_times.are_parsed());
    assert_eq!(job.protocols, [ScrapeProtocol::OpenMetricsText1_0_0]);
}

#[test]
fn config_of_an_agent_has_nothing_that_needs_a_store() {
    let agent = JobFeatures {
        is_agent: true,
        ..JobFeatures::default()
    };
    let refused = |text: &str| match super::parse(text, Path::new(""), agent) {
        Ok(_) => String::new(),
        Err(e) => e.to_string(),
    };
    for (text, key) in [
        (
            "alerting: {alertmanagers: [{static_configs: []}]}",
            "alerting",
        ),
        ("rule_files: [a.yml]", "rule_files"),
        ("remote_read: [{url: 'http://a/r'}]", "remote_read"),
        ("firn: {aggregation: {groups: []}}", "firn.aggregation"),
    ] {
        let expected = format!("field {key} is not allowed in agent mode");
        assert!(refused(text).contains(&expected), "{text}");
    }
    assert_eq!(
        refused("alerting:\nremote_write: [{url: 'http://a/w'}]"),
        ""
    );
}
