//! Retention by time and size of a running server, and its changes.

use crate::harness::http::Http;
use crate::harness::server::{Server, command, firn, spawn, wait_for};
use crate::harness::write::{Series, body};
use crate::{Kept, now_ms};
use rustix::process::Signal;
use serde_json::json;
use std::path::Path;

/// Returns the retention that the server reports.
fn shown(http: &Http) -> String {
    let info = http.get("/api/v1/status/runtimeinfo").json();
    info["data"]["storageRetention"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Returns the value of one of the server's own metrics.
fn metric(http: &Http, name: &str) -> f64 {
    let page = http.get("/metrics").body;
    let lines = page.lines().find_map(|line| line.strip_prefix(name));
    let value = lines.and_then(|rest| rest.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{name} is not in {page}"))
}

#[test]
fn retention_follows_flags_and_then_each_reload_of_the_config() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("firn.yml");
    let write = |text: &str| std::fs::write(&config, text).unwrap();
    write("");
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--storage.tsdb.retention.size=1536MB",
        "--web.enable-lifecycle",
    ];
    let server = Server::start(&data.path().join("data"), &flags);
    let http = server.http();
    assert_eq!(shown(&http), "1GiB512MiB");
    let kept = Kept::store(&http);
    write("storage: {tsdb: {retention: {time: 36h, size: 512MB, percentage: 12.5}}}\n");
    assert_eq!(http.post("/-/reload", &[]).status, 200);
    assert_eq!(shown(&http), "1d12h or 512MiB or 12.5%");
    server.wait_log("size has no effect: storage.tsdb.retention.percentage");
    let seconds = "firn_storage_retention_limit_seconds";
    wait_for("the limits of the store", || {
        metric(&http, seconds) == 129_600.0
            && metric(&http, "firn_storage_retention_limit_percentage") == 12.5
    });
    write("storage: {tsdb: {retention: {size: 512MB}}}\n");
    server.signal(Signal::HUP);
    wait_for("the new limit of size", || {
        metric(&http, "firn_storage_retention_limit_bytes") == (512u64 << 20) as f64
    });
    assert_eq!(
        (shown(&http).as_str(), metric(&http, seconds)),
        ("512MiB", 0.0)
    );
    write("storage: {tsdb: {retention: {percentage: 101}}}\n");
    assert_eq!(http.post("/-/reload", &[]).status, 500);
    assert_eq!(shown(&http), "512MiB");
    kept.check(&http, "reloads");
    let beside = "next start only\" key=storage.tsdb.retention";
    assert!(!server.log().iter().any(|line| line.contains(beside)));
}

#[test]
fn retention_that_is_no_size_is_refused_at_the_start() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--storage.tsdb.retention.size=much"];
    let output = spawn(command(data.path(), &flags))
        .wait_with_output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains("flag --storage.tsdb.retention.size: not a valid size"),
        "{err}"
    );
}

const MINUTE: i64 = 60_000;

/// Minutes of data, enough for blocks.
const MINUTES: i64 = 9 * 60;

/// Stores a sample per minute of the metric `m` for each environment. Returns the newest time.
fn store_environments(http: &Http) -> i64 {
    let newest = now_ms() / MINUTE * MINUTE;
    for first in (0..MINUTES).step_by(30) {
        let series = ["dev", "prod", "test"].map(|env| {
            let minutes =
                (first..first + 30).map(|minute| newest - (MINUTES - 1 - minute) * MINUTE);
            let samples: Vec<(i64, f64)> = minutes.map(|time| (time, 1.0)).collect();
            Series::new(&[("__name__", "m"), ("env", env)], &samples)
        });
        assert_eq!(http.write(&body(&series)).status, 204);
    }
    newest
}

/// Returns the number of samples of each environment.
fn counts(http: &Http, newest: i64) -> serde_json::Value {
    let found = http.query("sum by (env) (count_over_time(m[1d]))", newest);
    let counts = found.as_array().unwrap().iter();
    let counts = counts.map(|one| {
        let env = one["metric"]["env"].as_str().unwrap().to_owned();
        (env, one["value"][1].clone())
    });
    serde_json::Value::Object(counts.collect())
}

fn environments(http: &Http, newest: i64) -> serde_json::Value {
    let start = (newest - 24 * 60 * MINUTE) / 1_000;
    let found = http.get(&format!(
        "/api/v1/label/env/values?start={start}&end={}",
        newest / 1_000
    ));
    found.json()["data"].clone()
}

fn write_rules(folder: &Path, rules: &str) -> String {
    let config = folder.join("firn.yml");
    let text = format!("scrape_configs: []\nfirn: {{retention: {rules}}}\n");
    std::fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_owned()
}

/// Returns the output of `firn tsdb analyze` about the rules of a config.
fn analyze(data: &Path, config: &str) -> String {
    let mut command = firn();
    command
        .args(["tsdb", "analyze", "--config", config])
        .arg(data);
    let output = command.output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn rules_keep_matching_series_for_their_own_time() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let rules = "[{match: '{env=\"dev\"}', keep: 90m}, {match: '{env=~\"dev|prod\"}', keep: 8h}]";
    let config = write_rules(folder.path(), rules);
    let flags = ["--config", &config, "--web.enable-lifecycle"];
    let server = Server::start(&data, &flags);
    let http = server.http();
    let newest = store_environments(&http);
    // The sample at the boundary is kept.
    let kept = json!({"dev": "91", "prod": "481", "test": "540"});
    assert_eq!(counts(&http, newest), kept);
    server.kill();

    let server = Server::start(&data, &flags);
    let http = server.http();
    assert_eq!(counts(&http, newest), kept, "after a kill");
    // Merges and rewrites leave the expired samples out.
    wait_for("blocks without `dev`", || {
        let table = analyze(&data, &config);
        let samples = |rule: &str| -> Option<u64> {
            let row = table.lines().find(|line| line.starts_with(rule))?;
            let counts = row.split_whitespace().rev().take(2);
            counts.map(|count| count.parse::<u64>().ok()).sum()
        };
        let found = samples("{env=\"dev\"}").zip(samples("other series"));
        found.is_some_and(|(dev, others)| dev == 0 && others >= 240)
    });
    assert_eq!(counts(&http, newest), kept, "after merges");

    write_rules(folder.path(), "[{match: '{env=\"dev\"}', keep: 1ms}]");
    assert_eq!(http.post("/-/reload", &[]).status, 200);
    let shorter = json!({"dev": "1", "prod": "481", "test": "540"});
    wait_for("the new rules", || {
        counts(&http, newest)["dev"] == shorter["dev"]
    });
    assert_eq!(environments(&http, newest), json!(["dev", "prod", "test"]));
    let newer = Series::new(
        &[("__name__", "m"), ("env", "test")],
        &[(newest + MINUTE, 1.0)],
    );
    assert_eq!(http.write(&body(&[newer])).status, 204);
    assert_eq!(environments(&http, newest), json!(["prod", "test"]));

    write_rules(folder.path(), "[{match: '{env=dev}', keep: 1d}]");
    let rejected = http.post("/-/reload", &[]);
    assert_eq!(rejected.status, 500);
    assert!(
        rejected.body.contains("firn.retention: match"),
        "{}",
        rejected.body
    );
    assert_eq!(
        environments(&http, newest),
        json!(["prod", "test"]),
        "old rules"
    );
}
