//! Alerts from a rule file to a webhook, and the folder of rules that can be edited over HTTP.

use crate::harness::server::{Server, wait_for};
use crate::harness::webhook::Webhook;
use crate::harness::write::{Series, body};
use crate::now_ms;
use serde_json::{Value, json};
use std::path::Path;

/// Starts a server with a config and these files beside it.
fn start(dir: &Path, config: &str, files: &[(&str, &str)], flags: &[&str]) -> Server {
    for (name, text) in files {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let file = dir.join("firn.yml");
    std::fs::write(&file, config).unwrap();
    let file = file.display().to_string();
    let flags = [&["--config", file.as_str()], flags].concat();
    Server::start(&dir.join("data"), &flags)
}

const RULES: &str = r#"
groups:
- name: g
  interval: 200ms
  rules:
  - alert: Always
    expr: vector(91.5)
    labels:
      severity: '{{ if gt $value 90.0 }}page{{ else }}info{{ end }}'
    annotations:
      summary: '{{ $externalLabels.region }}: {{ $value | humanize }}'
      broken: '{{ toUpper $value }}'
"#;

#[test]
fn alerts_reach_alertmanagers_with_their_templates_expanded() {
    let dir = tempfile::tempdir().unwrap();
    let webhook = Webhook::start();
    let config = format!(
        "global: {{external_labels: {{region: eu, severity: none}}}}
rule_files: [rules.yml]
alerting:
  alert_relabel_configs:
  - {{source_labels: [alertname, region], target_label: both}}
  alertmanagers:
  - path_prefix: /am
    static_configs: [{{targets: ['{}', 'dropped:1']}}]
    relabel_configs:
    - {{source_labels: [__address__], regex: 'dropped:.*', action: drop}}
",
        webhook.address
    );
    let flags = [
        "--web.external-url=http://firn.example.org/x/",
        "--web.route-prefix=/",
    ];
    let server = start(dir.path(), &config, &[("rules.yml", RULES)], &flags);
    let (line, alerts) = webhook.next();
    assert_eq!(line, "POST /am/api/v2/alerts HTTP/1.1");
    let alert = &alerts[0];
    assert_eq!(
        alert["labels"],
        json!({
            "alertname": "Always", "both": "Always;eu", "region": "eu", "severity": "page",
        })
    );
    assert_eq!(alert["annotations"]["summary"], "eu: 91.5");
    let broken = alert["annotations"]["broken"].as_str().unwrap();
    let error = "<error expanding template: error executing template __alert_Always: template: \
                 __alert_Always:1:123: executing \"__alert_Always\" at <$value>: wrong type for \
                 value; expected string; got float64>";
    assert_eq!(broken, error);
    assert_eq!(
        alert["generatorURL"],
        "http://firn.example.org/x/graph?g0.expr=vector%2891.5%29&g0.tab=1"
    );
    let found = server.http().get("/api/v1/alertmanagers").json();
    let url = format!("http://{}/am/api/v2/alerts", webhook.address);
    assert_eq!(
        found["data"],
        json!({
            "activeAlertmanagers": [{"url": url}],
            "droppedAlertmanagers": [{"url": "http://dropped:1/am/api/v2/alerts"}],
        })
    );
    wait_for("the alert to be counted", || {
        let metrics = server.http().get("/metrics").body;
        metrics.contains(&format!(
            "firn_notifications_sent_total{{alertmanager=\"{url}\"}} 1"
        ))
    });
}

/// Returns the names of the running rules.
fn rule_names(server: &Server) -> Vec<String> {
    let rules = server.http().get("/api/v1/rules").json();
    let groups = rules["data"]["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap().clone());
    rules
        .map(|rule| rule["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn rules_are_edited_over_http_and_evaluated() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "firn: {rules: {folder: edited}}\n", &[], &[]);
    let http = server.http();
    let path = "/prometheus/config/v1/rules";
    let none = http.get(path);
    assert_eq!((none.status, none.body.as_str()), (200, "{}\n"));
    // Grafana reads this before it shows its editor, and parses the response headers.
    let build = http.get("/api/v1/status/buildinfo").json();
    assert_eq!(build["data"]["features"]["ruler_config_api"], "true");
    assert_eq!(none.header("content-type"), "application/yaml");
    let group = |name: &str, expr: &str| {
        format!("name: {name}\ninterval: 1h\nrules:\n- record: {name}_made\n  expr: {expr}\n")
    };
    let post = |path: &str, headers: &[(&str, &str)], body: &str| {
        http.send(path, headers, body.as_bytes())
    };
    let namespace = format!("{path}/team%2Fa");
    let answer = post(&namespace, &[], &group("one", "sum(up)"));
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert_eq!(answer.json()["status"], "success");
    assert_eq!(answer.header("content-type"), "application/json");
    let answer = post("/config/v1/rules/team%2Fa", &[], &group("two", "vector(1)"));
    assert_eq!(answer.status, 202, "{}", answer.body);
    wait_for("the rules to run", || {
        rule_names(&server) == ["one_made", "two_made"]
    });
    let listed = http.get(path).body;
    assert!(listed.starts_with("team/a:\n- name: one\n"), "{listed}");
    // Grafana uses the namespace to find the edited group among the running ones.
    let runs = |query: &str| {
        let answer = http.get(&format!("/api/v1/rules{query}")).json();
        let groups = answer["data"]["groups"].as_array().unwrap().clone();
        groups
            .iter()
            .map(|group| group["file"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(runs(""), ["team/a", "team/a"]);
    assert_eq!(runs("?file[]=team/a").len(), 2);
    let path_of_file = dir.path().join("edited/team%2Fa.yml");
    let path_of_file = path_of_file.display().to_string().replace('%', "%25");
    assert_eq!(runs(&format!("?file[]={path_of_file}")).len(), 2);
    let shown = http.get(&format!("{namespace}/two"));
    assert!(shown.body.starts_with("name: two\n"), "{}", shown.body);
    // Keys that Mimir's ruler adds to groups.
    let keys = "source_tenants: [a]\nevaluation_delay: 1m\n\
                align_evaluation_time_on_interval: true\nquery_offset: 2m\n";
    let of_ruler = group("three", "vector(3)") + keys;
    let answer = post(&namespace, &[], &of_ruler);
    assert_eq!(answer.status, 202, "{}", answer.body);
    server.wait_log("source_tenants");
    let shown = http.get(&format!("{namespace}/three"));
    for key in ["source_tenants:\n- a\n", "evaluation_delay: 1m\n"] {
        assert!(shown.body.contains(key), "{}", shown.body);
    }
    wait_for("the group to run", || rule_names(&server).len() == 3);
    assert_eq!(http.delete(&format!("{namespace}/three")).status, 202);
    for (body, status, expected) in [
        (group("bad", "sum("), 400, "could not parse expression"),
        ("name: [".to_owned(), 400, ""),
        (String::new(), 400, "no rule group"),
        ("x".repeat(2 << 20), 413, "too large"),
    ] {
        let answer = post(&namespace, &[], &body);
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.body.contains(expected), "{}", answer.body);
    }
    let foreign = post(
        &namespace,
        &[("Origin", "http://evil.example")],
        &group("x", "1"),
    );
    assert_eq!(foreign.status, 403);
    assert_eq!(http.delete(&format!("{namespace}/none")).status, 404);
    assert_eq!(http.delete(&format!("{namespace}/one")).status, 202);
    wait_for("the rule to end", || rule_names(&server) == ["two_made"]);
    assert_eq!(http.delete(&namespace).status, 202);
    assert_eq!(http.delete(&namespace).status, 404);
    wait_for("the other to end", || rule_names(&server).is_empty());
    assert_eq!(http.get(&namespace).body, "{}\n");
}

#[test]
fn rule_editing_is_off_unless_a_folder_is_set_and_a_bad_folder_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "{}\n", &[], &[]);
    let build = server.http().get("/api/v1/status/buildinfo").json();
    assert!(build["data"]["features"].is_null(), "{build}");
    let answer = server.http().get("/config/v1/rules");
    assert_eq!(answer.status, 404);
    assert!(
        answer.body.contains("set firn.rules.folder"),
        "{}",
        answer.body
    );
    drop(server);
    let dir = tempfile::tempdir().unwrap();
    let config = "firn: {rules: {folder: firn.yml/x}}\n";
    let server = start(dir.path(), config, &[], &[]);
    let body = b"name: g\nrules: [{record: a, expr: '1'}]\n";
    let answer = server.http().send("/config/v1/rules/n", &[], body);
    assert_eq!(answer.status, 500, "{}", answer.body);
    assert!(answer.body.contains("firn.yml/x"), "{}", answer.body);
}

#[test]
fn resolved_alerts_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let webhook = Webhook::start();
    let config = format!(
        "rule_files: [rules.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{}']}}]}}]}}
",
        webhook.address
    );
    let rules = "groups: [{name: g, interval: 200ms, rules: [{alert: Gone, expr: absent(here)}]}]";
    let server = start(dir.path(), &config, &[("rules.yml", rules)], &[]);
    let ends = |alert: &Value| alert["endsAt"].as_str().unwrap().to_owned();
    let firing = webhook.next().1.remove(0);
    let series = Series::new(&[("__name__", "here")], &[(now_ms(), 1.0)]);
    assert_eq!(server.http().write(&body(&[series])).status, 204);
    // A firing alert ends in a few minutes, unless it is sent again.
    let resolved = webhook.next_alert(|alert| ends(alert) < ends(&firing));
    assert_eq!(resolved["labels"], json!({"alertname": "Gone"}));
    assert_eq!(resolved["startsAt"], firing["startsAt"]);
}
