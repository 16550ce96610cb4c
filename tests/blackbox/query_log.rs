//! The query log: the client, the query and its outcome, and its use by `firn compare`.

use crate::harness::server::{Server, firn, wait_for};
use serde_json::Value;
use std::path::Path;

const RULES: &str =
    "groups: [{name: g, interval: 1s, rules: [{record: one, expr: 'vector( 1 )'}]}]\n";

fn config(dir: &Path, log: &str) {
    let text = format!("global: {{query_log_file: {log}}}\nrule_files: [rules.yml]\n");
    std::fs::write(dir.join("firn.yml"), text).unwrap();
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn query_is_logged_with_its_origin_its_error_and_its_stats_and_can_be_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    config(dir.path(), "queries.log");
    std::fs::write(dir.path().join("rules.yml"), RULES).unwrap();
    let file = dir.path().join("firn.yml").to_str().unwrap().to_owned();
    let data = dir.path().join("data");
    let server = Server::start(&data, &["--config", &file, "--web.enable-lifecycle"]);
    let http = server.http();
    let log = dir.path().join("queries.log");
    let by_text = |text: &str| {
        let mut all = lines(&log).into_iter();
        all.find(|line| line["params"]["query"] == text)
    };
    http.get("/api/v1/query?query=vector(7)&time=1700000000.5");
    let line = by_text("vector(7)").unwrap();
    let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
    let wanted = [
        "httpRequest",
        "level",
        "msg",
        "params",
        "spanID",
        "stats",
        "time",
        "traceID",
    ];
    assert_eq!(keys, wanted);
    assert_eq!(line["params"]["start"], "2023-11-14T22:13:20.500Z");
    assert_eq!(line["params"]["end"], line["params"]["start"]);
    assert_eq!(line["params"]["step"], 0);
    let request = serde_json::json!({
        "clientIP": "127.0.0.1", "method": "GET", "path": "/api/v1/query"
    });
    assert_eq!(line["httpRequest"], request);
    let time = line["stats"]["timings"]["execTotalTime"].as_f64().unwrap();
    assert!(time > 0.0, "{line}");
    http.post(
        "/api/v1/query_range",
        &[
            ("query", "one offset 5m"),
            ("start", "100"),
            ("end", "200"),
            ("step", "10"),
        ],
    );
    let line = by_text("one offset 5m").unwrap();
    assert_eq!(line["params"]["step"], 10);
    assert_eq!(line["httpRequest"]["method"], "POST");
    // Invalid PromQL is not logged; a query that fails is.
    http.post("/api/v1/query", &[("query", "sum(")]);
    let failing = "label_replace(vector(1), \"a\", \"\", \"\", \"(\")";
    http.post("/api/v1/query", &[("query", failing)]);
    assert!(by_text("sum(").is_none());
    let error = by_text(failing).unwrap()["error"].clone();
    assert!(
        error.as_str().unwrap().contains("regular expression"),
        "{error}"
    );
    // Queries of rules are logged too.
    wait_for("a rule in the log", || by_text("vector(1)").is_some());
    let line = by_text("vector(1)").unwrap();
    assert_eq!(line["ruleGroup"]["name"], "g");
    assert!(
        line["ruleGroup"]["file"]
            .as_str()
            .unwrap()
            .ends_with("rules.yml")
    );
    assert_eq!(line["httpRequest"], Value::Null);
    assert!(
        http.get("/metrics")
            .body
            .contains("firn_query_log_enabled 1\n")
    );

    // A moved file is created again by a reload. A file that cannot be opened changes nothing.
    let moved = dir.path().join("moved.log");
    std::fs::rename(&log, &moved).unwrap();
    http.get("/api/v1/query?query=vector(8)");
    assert!(!log.exists());
    assert_eq!(http.post("/-/reload", &[]).status, 200);
    http.get("/api/v1/query?query=vector(9)");
    assert!(by_text("vector(8)").is_none() && by_text("vector(9)").is_some());
    config(dir.path(), "nowhere/queries.log");
    let answer = http.post("/-/reload", &[]);
    assert_eq!(answer.status, 500);
    assert!(
        answer.body.contains("global.query_log_file: open "),
        "{}",
        answer.body
    );
    http.get("/api/v1/query?query=vector(10)");
    assert!(by_text("vector(10)").is_some());

    // Queries of users are replayed.
    let report = dir.path().join("report");
    let mut compare = firn();
    let url = format!("http://{}", server.address);
    compare.args(["compare", "--baseline", &url, "--candidate", &url]);
    compare
        .arg("--queries")
        .arg(&moved)
        .arg("--report")
        .arg(&report);
    let output = compare.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read(report.join("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&text).unwrap();
    assert!(
        report["passes"]["instant"]["match"].as_u64().unwrap() >= 2,
        "{report:#}"
    );

    drop(server);
    let output = firn()
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--config",
            &file,
            "--data",
        ])
        .arg(&data)
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("global.query_log_file: open "), "{text}");
}
