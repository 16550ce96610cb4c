//! The files in `deploy/`: each expression is valid and uses metrics that Firn exports.

use crate::harness::server::{Server, firn, wait_for};
use crate::harness::webhook::Webhook;
use firn_model::budget::Budget;
use firn_promql::Features;
use firn_promql::parser::parse_selectors;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use tempfile::TempDir;

fn shipped(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../deploy")
        .join(name)
}

/// Names of metrics with the names of their labels.
type Metrics = BTreeMap<String, BTreeSet<String>>;

/// Sections of a config with rules, in a file beside it, and with aggregation.
const RULES: &str = "
rule_files: [rules.yml]
firn: {aggregation: {groups: [{name: g, stream: true, rules: [
  {record: r, expr: sum by (job) (x_total)}]}]}}
";

/// Returns the metrics of a server that has rules, aggregates and sends alerts.
fn exported() -> Metrics {
    let dir = tempfile::tempdir().unwrap();
    let webhook = Webhook::start();
    let rules = "groups: [{name: g, rules: [{record: made, expr: vector(1)}]}]";
    std::fs::write(dir.path().join("rules.yml"), rules).unwrap();
    let config = format!(
        "alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{0}']}}]}}]}}\n\
         scrape_configs: [{{job_name: a, static_configs: [{{targets: ['{0}']}}]}}]\n\
         remote_write: [{{url: 'http://{0}/write', name: other}}]\n{RULES}",
        webhook.address
    );
    // Groups start after the server is ready.
    metrics_of(&dir, &config, "firn_rule_group_rules{")
}

/// Returns the metrics of the only node of a cluster that listens for peers.
fn exported_by_node() -> Metrics {
    let dir = tempfile::tempdir().unwrap();
    let bucket = dir.path().join("bucket");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let config = format!(
        "firn: {{cluster: {{bucket: 'file://{}', partitions: 2, read_lease: 100ms, \
         listen: '{address}', peers: ['{address}']}}}}\n",
        bucket.display()
    );
    let mut metrics = metrics_of(&dir, &config, "firn_log_creates_total{");
    // A node exports this metric after its first block, half an hour later.
    let name = "firn_cluster_commit_age_seconds";
    metrics.insert(name.to_owned(), BTreeSet::new());
    metrics
}

/// Starts a server with this config, and returns its metrics once they contain `last`.
fn metrics_of(dir: &TempDir, config: &str, last: &str) -> Metrics {
    let file = dir.path().join("firn.yml");
    std::fs::write(&file, config).unwrap();
    let file = file.display().to_string();
    let server = Server::start(&dir.path().join("data"), &["--config", &file]);
    let mut metrics = Metrics::new();
    let mut text = String::new();
    wait_for(last, || {
        text = server.http().get("/metrics").body;
        text.contains(last)
    });
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).unwrap();
        let labels = metrics.entry(line[..end].to_owned()).or_default();
        let Some(inside) = line[end..].strip_prefix('{') else {
            continue;
        };
        let pairs = inside.split_once('}').unwrap().0.split(',');
        labels.extend(pairs.filter_map(|pair| Some(pair.split_once('=')?.0.to_owned())));
    }
    assert!(metrics.len() > 50, "{text}");
    metrics
}

/// Returns the errors of an expression.
fn faults(expression: &str, exported: &Metrics) -> Vec<String> {
    let mut memory = Budget::new("test", usize::MAX).create_reservation();
    let selectors = match parse_selectors(expression, Features::default(), &mut memory) {
        Ok(selectors) => selectors,
        Err(e) => return vec![format!("{expression}: {e}")],
    };
    let mut faults = Vec::new();
    for matchers in selectors {
        let name = matchers.iter().find(|m| m.name() == "__name__");
        let name = name.map(|m| String::from_utf8_lossy(m.value()).into_owned());
        let Some(labels) = exported.get(&name.clone().unwrap_or_default()) else {
            faults.push(format!("{expression}: no metric {name:?}"));
            continue;
        };
        // Labels that a scrape adds.
        let known = |label: &str| matches!(label, "__name__" | "instance" | "job");
        for matcher in matchers.iter().filter(|m| !known(m.name())) {
            if !labels.contains(matcher.name()) {
                faults.push(format!("{expression}: no label {:?}", matcher.name()));
            }
        }
    }
    faults
}

/// Checks that the alerts of a file are valid, and use `exported` metrics.
fn check_alerts(file: &str, count_min: usize, exported: &Metrics) {
    let file = shipped(file);
    let checked = firn().args(["check", "rules"]).arg(&file).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let text = std::fs::read_to_string(file).unwrap();
    let rules = firn_rules::file::parse(&text, Default::default()).unwrap();
    let rules: Vec<_> = rules.groups.iter().flat_map(|group| &group.rules).collect();
    assert!(rules.len() >= count_min);
    let faults: Vec<String> = rules
        .iter()
        .flat_map(|rule| faults(&rule.expr, exported))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for rule in rules {
        assert!(rule.labels.contains_key("severity"), "{}", rule.alert);
        assert!(rule.annotations.contains_key("summary"), "{}", rule.alert);
    }
}

/// Collects the expressions at any depth of a dashboard.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("expr", Value::String(text)) => found.push(text.clone()),
                    _ => expressions(value, found),
                }
            }
        }
        _ => {}
    }
}

/// Checks that the expressions of a dashboard are valid, and use `exported` metrics.
fn check_dashboard(file: &str, exported: &Metrics) {
    let text = std::fs::read_to_string(shipped(file)).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut all = Vec::new();
    expressions(&dashboard, &mut all);
    assert!(all.len() > 20);
    let faults: Vec<String> = all
        .iter()
        .map(|text| text.replace("$__rate_interval", "5m"))
        .flat_map(|text| faults(&text, exported))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let mut ids: Vec<i64> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|panel| panel["id"].as_i64().unwrap())
        .collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "panels share an id");
}

#[test]
fn shipped_alerts_and_dashboard_use_metrics_of_a_server() {
    let exported = exported();
    check_alerts("alerts/firn.yml", 11, &exported);
    check_dashboard("dashboards/firn.json", &exported);
}

#[test]
fn shipped_alerts_and_dashboard_of_a_cluster_use_metrics_of_a_node() {
    let exported = exported_by_node();
    check_alerts("alerts/cluster.yml", 5, &exported);
    check_dashboard("dashboards/cluster.json", &exported);
}
