//! Previews of rules over a past time range, steps of relabeling rules from a request, and the
//! settings of the process.

use crate::harness::http::{Answer, Http};
use crate::harness::server::{Server, wait_for};
use crate::now_ms;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const MINUTE_MS: i64 = 60_000;

fn start(folder: &Path, rules: &str) -> Server {
    let (config, file) = (folder.join("firn.yml"), folder.join("rules.yml"));
    std::fs::write(&file, rules).unwrap();
    let text = format!("scrape_configs: []\nrule_files: [{}]\n", file.display());
    std::fs::write(&config, text).unwrap();
    Server::start(
        &folder.join("data"),
        &["--config", config.to_str().unwrap()],
    )
}

fn preview(http: &Http, form: &[(&str, &str)]) -> Value {
    let answer = http.post("/api/v1/rules/preview", form);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["data"].take()
}

fn seconds(ms: i64) -> String {
    format!("{:.3}", ms as f64 / 1e3)
}

fn parse_ms(text: &Value) -> i64 {
    let time = OffsetDateTime::parse(text.as_str().unwrap(), &Rfc3339).unwrap();
    (time.unix_timestamp_nanos() / 1_000_000) as i64
}

#[track_caller]
fn check_error(answer: &Answer, text: &str) {
    assert_eq!(answer.status, 400, "{}", answer.body);
    let json = answer.json();
    assert_eq!(json["errorType"], "bad_data", "{json}");
    let error = json["error"].as_str().unwrap();
    assert!(error.contains(text), "{error} has no {text}");
}

/// Writes an hour of the gauge `demo`, one sample a minute, which is 1 in minutes 10 to 19 and 31.
/// Returns the time of minute 0.
fn fill(http: &Http) -> i64 {
    let begin = now_ms() - 60 * MINUTE_MS;
    let lines = (0..60).map(|minute| {
        let value = u8::from((10..20).contains(&minute) || minute == 31);
        format!("demo{{job=\"a\"}} {value} {}\n", begin + minute * MINUTE_MS)
    });
    let text: String = lines.collect();
    let answer = http.send("/api/v1/import/prometheus", &[], text.as_bytes());
    assert_eq!(answer.status, 204, "{}", answer.body);
    begin
}

/// Returns the periods of the only alert, as minutes after `begin`.
fn periods(preview: &Value, begin: i64) -> Vec<[Option<i64>; 3]> {
    let alerts = preview["alerts"].as_array().unwrap();
    assert_eq!(alerts.len(), 1, "{preview}");
    let minute = |time: &Value| (!time.is_null()).then(|| (parse_ms(time) - begin) / MINUTE_MS);
    let periods = alerts[0]["periods"].as_array().unwrap().iter();
    let times = ["activeAt", "firedAt", "endedAt"];
    periods
        .map(|period| times.map(|time| minute(&period[time])))
        .collect()
}

#[test]
fn preview_of_an_alert_has_its_periods_labels_and_texts() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "groups: []\n");
    let http = server.http();
    let begin = fill(&http);
    let (start, end) = (seconds(begin), seconds(begin + 59 * MINUTE_MS));
    let rule = |expr: &str| {
        format!(
            "- alert: Demo\n  expr: {expr}\n  for: 5m\n  labels: {{severity: page}}\n  \
             annotations: {{summary: '{{{{ $labels.job }}}} is {{{{ $value }}}}'}}\n"
        )
    };
    let ask = |rule: &str| {
        let form = [
            ("rule", rule),
            ("start", &start),
            ("end", &end),
            ("interval", "1m"),
        ];
        preview(&http, &form)
    };
    let seen = ask(&rule("demo == 1"));
    assert_eq!(seen["type"], "alerting");
    assert_eq!(
        (&seen["evaluations"], &seen["firings"]),
        (&json!(60), &json!(1))
    );
    assert_eq!(seen["firingSeconds"], json!(300.0));
    let expected = [[Some(10), Some(15), Some(20)], [Some(31), None, Some(32)]];
    assert_eq!(periods(&seen, begin), expected);
    let alert = &seen["alerts"][0];
    let labels = json!({"alertname": "Demo", "job": "a", "severity": "page"});
    assert_eq!(
        (&alert["labels"], &alert["annotations"]),
        (&labels, &json!({"summary": "a is 1"}))
    );
    // Evaluated at each instant, because `@ end()` differs between ranges.
    let single = ask(&rule("demo == 1 or demo @ end() > 5"));
    assert_eq!(single["alerts"], seen["alerts"]);

    let shorter = ask(&rule("demo == 1").replace("5m", "15m"));
    assert_eq!(
        (&shorter["firings"], &shorter["firingSeconds"]),
        (&json!(0), &json!(0.0))
    );
}

#[test]
fn preview_equals_the_alerts_that_a_group_had() {
    let folder = tempfile::tempdir().unwrap();
    let rule = "alert: Blink\nexpr: vector(time()) % 4 < 3\nfor: 1s\n";
    let indented = rule.trim_end().replace('\n', "\n    ");
    let rules = format!("groups:\n- name: g\n  interval: 1s\n  rules:\n  - {indented}\n");
    let server = start(folder.path(), &rules);
    let http = server.http();
    let times = |state: &str| -> BTreeSet<i64> {
        let selector = format!("ALERTS{{alertname=\"Blink\",alertstate=\"{state}\"}}[1h]");
        let found = http.query(&selector, now_ms());
        let values = found[0]["values"].as_array().cloned().unwrap_or_default();
        let ms = |pair: &Value| (pair[0].as_f64().unwrap() * 1e3).round() as i64;
        values.iter().map(ms).collect()
    };
    wait_for("three cycles", || times("firing").len() >= 6);
    let (pending, firing) = (times("pending"), times("firing"));
    let all: BTreeSet<i64> = pending.union(&firing).copied().collect();
    let (first, last) = (*all.first().unwrap() + 4_000, *firing.last().unwrap());
    let (start, end) = (seconds(first), seconds(last));
    let form = [
        ("rule", rule),
        ("start", &start),
        ("end", &end),
        ("interval", "1s"),
    ];
    let seen = preview(&http, &form);
    let periods = seen["alerts"][0]["periods"].as_array().unwrap();
    let fires = |at: i64| {
        periods.iter().any(|period| {
            let is_over = !period["endedAt"].is_null() && at >= parse_ms(&period["endedAt"]);
            !period["firedAt"].is_null() && at >= parse_ms(&period["firedAt"]) && !is_over
        })
    };
    let instants = (first..=last).step_by(1000);
    let previewed: BTreeSet<i64> = instants.filter(|at| fires(*at)).collect();
    let recorded: BTreeSet<i64> = firing.range(first..).copied().collect();
    assert!(!recorded.is_empty());
    assert_eq!(previewed, recorded, "{seen}");
}

#[test]
fn preview_of_a_recording_rule_counts_its_samples_and_stores_none() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "groups: []\n");
    let http = server.http();
    let begin = fill(&http);
    let rule = "record: job:demo\nexpr: sum by (job) (demo)\nlabels: {team: x}\n";
    let (start, end) = (seconds(begin), seconds(begin + 59 * MINUTE_MS));
    let seen = preview(&http, &[("rule", rule), ("start", &start), ("end", &end)]);
    assert_eq!(seen["type"], "recording");
    assert_eq!(
        (&seen["seriesCount"], &seen["sampleCount"]),
        (&json!(1), &json!(60))
    );
    let labels = json!({"__name__": "job:demo", "job": "a", "team": "x"});
    assert_eq!(
        seen["series"],
        json!([{"labels": labels, "samples": 60, "lastValue": "0e+00"}])
    );
    assert_eq!(http.query("job:demo", begin + 30 * MINUTE_MS), json!([]));

    let many =
        "record: a\nexpr: demo or label_replace(demo, 'job', 'b', '', '') * 2\nlabels: {job: c}\n";
    let seen = preview(&http, &[("rule", many), ("start", &start), ("end", &end)]);
    assert_eq!(
        (&seen["failedEvaluations"], &seen["sampleCount"]),
        (&json!(60), &json!(0))
    );
    let error = "vector contains metrics with the same labelset after applying rule labels";
    assert_eq!(seen["lastError"], error);
}

#[test]
fn preview_refuses_wrong_rules_and_times() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "groups: []\n");
    let http = server.http();
    let ask = |rule: &str, start: &str, end: &str, interval: &str| {
        let form = [
            ("rule", rule),
            ("start", start),
            ("end", end),
            ("interval", interval),
        ];
        http.post("/api/v1/rules/preview", &form)
    };
    let good = "{record: a, expr: up}";
    check_error(
        &ask("", "0", "60", "1m"),
        "invalid parameter \"rule\": the rule is empty",
    );
    check_error(
        &ask("alert: A\nexpr: up{\n", "0", "60", "1m"),
        "2:7: could not parse expression",
    );
    check_error(
        &ask("{alert: A, expr: up, form: 5m}", "0", "60", "1m"),
        "1:22: field form",
    );
    check_error(&ask(good, "", "60", "1m"), "invalid parameter \"start\"");
    check_error(
        &ask(good, "60", "0", "1m"),
        "end timestamp must not be before start time",
    );
    check_error(
        &ask(good, "0", "60", "0s"),
        "invalid parameter \"interval\"",
    );
    check_error(
        &ask(good, "0", "60", "1us"),
        "invalid parameter \"interval\"",
    );
    check_error(
        &ask(good, "0", "999999", "1s"),
        "exceeded maximum resolution of 11,000 points",
    );
    let long = "{alert: A, expr: up, for: 1d}";
    check_error(&ask(long, "0", "60", "1s"), "exceeded maximum resolution");
    assert_eq!(http.get("/api/v1/rules/preview?rule=a").status, 405);
}

#[test]
fn relabeling_rules_of_a_request_are_applied_step_by_step() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "groups: []\n");
    let http = server.http();
    let ask = |configs: &str, labels: &str| {
        let form = [("configs", configs), ("labels", labels)];
        http.post("/api/v1/targets/relabel_steps", &form)
    };
    let labels = r#"{"__name__":"up","env":"dev","pod":"a-1"}"#;
    let rules = "metric_relabel_configs:\n- {source_labels: [pod], regex: '(.*)-.*', target_label: app}\n\
                 - {regex: pod, action: labeldrop}\n- {source_labels: [env], regex: dev, action: drop}\n";
    let answer = ask(rules, labels);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let steps = answer.json()["data"]["steps"].take();
    let outputs: Vec<&Value> = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["output"])
        .collect();
    let expected = [
        json!({"__name__": "up", "app": "a", "env": "dev", "pod": "a-1"}),
        json!({"__name__": "up", "app": "a", "env": "dev"}),
        json!({}),
    ];
    assert_eq!(outputs, expected.iter().collect::<Vec<_>>());
    let kept: Vec<&Value> = steps
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["keep"])
        .collect();
    assert_eq!(kept, [true, true, false]);
    assert_eq!(steps[1]["rule"]["action"], "labeldrop");

    check_error(&ask("", labels), "no configs parameter provided");
    check_error(
        &ask("- action: dorp\n", labels),
        "configs:1:11: unknown relabel action \"dorp\"",
    );
    check_error(&ask("- action: drop\n  regx: a\n", labels), "configs:2:3: ");
    check_error(&ask("[]", "{"), "error parsing labels: ");
    let long = format!("# {}\n[]", "x".repeat(70_000));
    check_error(&ask(&long, labels), "70005 bytes, limit 65536");
    let double = "- {source_labels: [pod], target_label: pod, replacement: '$1$1'}\n".repeat(60);
    check_error(&ask(&double, labels), "may have more than 8388608 bytes");
}

#[test]
fn settings_have_values_defaults_and_descriptions() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let flags = ["--web.enable-lifecycle", "--query.timeout", "90s"];
    let server = Server::start(&data, &flags);
    let settings = server.http().get("/api/v1/status/settings").json()["data"]["settings"].take();
    let setting = |name: &str| {
        let mut all = settings.as_array().unwrap().iter();
        all.find(|setting| setting["name"] == name).unwrap().clone()
    };
    let check = |name: &str, value: &str, default: &str, is_changed: bool| {
        let found = setting(name);
        assert_eq!(
            (&found["value"], &found["default"]),
            (&json!(value), &json!(default)),
            "{found}"
        );
        assert_eq!(found["changed"], is_changed, "{found}");
    };
    check("query.timeout", "90s", "2m", true);
    check("query.max-samples", "50000000", "50000000", false);
    check("web.enable-lifecycle", "true", "false", true);
    check("web.enable-admin-api", "false", "false", false);
    let help = |setting: &Value| {
        setting["help"]
            .as_str()
            .is_some_and(|help| !help.is_empty())
    };
    assert!(settings.as_array().unwrap().iter().all(help));
}
