//! Configs and what becomes of them.

use super::*;

/// A config that uses what real ones use: every top-level section, several discoveries, anchors.
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
  memory_limit: 4GB
  multitenancy: true
"#;

#[test]
fn config_of_the_field_loads() {
    let config = parse(REAL).unwrap();
    assert_eq!(config.evaluation_interval, Duration::from_secs(30));
    let month = Duration::from_secs(30 * 24 * 3600);
    assert_eq!(config.retention, Some(Retention::For(month)));
    assert_eq!(config.wal_sync, WalSync::Interval);
    assert_eq!(config.memory_limit, MemoryLimit::Bytes(4 << 30));
    assert!(config.is_multitenant);
    assert_eq!(
        config.ignored,
        [
            "global.scrape_interval",
            "global.scrape_timeout",
            "global.external_labels",
            "rule_files",
            "alerting",
            "scrape_configs",
            "remote_write",
            "remote_read",
            "storage.tsdb.out_of_order_time_window",
            "storage.tsdb.retention.size",
            "storage.exemplars",
            "tracing",
            "otlp",
        ]
    );
}

#[test]
fn config_printed_has_no_secret_and_reads_back() {
    let config = parse(REAL).unwrap();
    assert!(!config.text.contains("hunter2"), "{}", config.text);
    assert!(
        config
            .text
            .contains("https://user:<secret>@example.org/api/v1/write")
    );
    assert!(config.text.contains("password: <secret>"));
    let again = parse(&config.text).unwrap();
    assert_eq!(again, config);
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
            "2:3: scrape_configs[0]: job_name is missing or empty",
        ),
        (
            "scrape_configs:\n- job_name: a\n- job_name: a\n",
            "3:3: found multiple scrape configs with job name \"a\"",
        ),
        (
            "scrape_configs:\n- job_name: a\n  relabel_configs:\n  - action: keeep\n",
            "4:13: scrape_configs[0].relabel_configs[0].action: not one of replace, keep, drop, \
             keepequal, dropequal, hashmod, labelmap, labeldrop, labelkeep, lowercase, \
             uppercase, Replace, Keep, Drop, KeepEqual, DropEqual, HashMod, LabelMap, LabelDrop, \
             LabelKeep, Lowercase, Uppercase: \"keeep\"",
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
            "2:3: remote_write[0]: url is missing or empty",
        ),
        (
            "storage: {tsdb: {retention: {percentage: 101}}}\n",
            "1:29: storage.tsdb.retention.percentage must be in the range [0, 100], got 101",
        ),
        (
            "firn:\n  memory_limit: 0%\n",
            "2:17: firn.memory_limit: neither a size nor a percentage above 0%: \"0%\"",
        ),
        (
            "firn: {wal_sync: sometimes}\n",
            "1:18: firn.wal_sync: not one of always, interval, none: \"sometimes\"",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), want, "{text}");
    }
}
