//! The results cache over HTTP: refreshes that use it, its bypasses, and changes of old samples
//! that a refresh must show.

use crate::harness::http::Http;
use crate::harness::server::Server;
use crate::harness::write::{Series, body};
use crate::now_ms;
use serde_json::Value;
use std::path::Path;

const SECOND: i64 = 1_000;
const INTERVAL: i64 = 15 * SECOND;
const STEP: &str = "15";

/// Samples of each series, an hour.
const SAMPLES: i64 = 240;

fn start(folder: &Path, keys: &str) -> Server {
    let config = folder.join("firn.yml");
    std::fs::write(&config, format!("scrape_configs: []\n{keys}")).unwrap();
    let config = config.to_str().unwrap();
    Server::start(
        &folder.join("data"),
        &["--web.enable-admin-api", "--config", config],
    )
}

fn write(http: &Http, series: &str, samples: &[(i64, f64)]) {
    let all = [Series::new(
        &[("__name__", "c_total"), ("n", series)],
        samples,
    )];
    assert_eq!(http.write(&body(&all)).status, 204);
}

/// Stores an hour of two counters. Returns the time of the newest sample.
fn store(http: &Http) -> i64 {
    let end = now_ms() / INTERVAL * INTERVAL - 60 * SECOND;
    for series in ["1", "2"] {
        let time = |at: i64| end - (SAMPLES - 1 - at) * INTERVAL;
        let samples: Vec<(i64, f64)> = (0..SAMPLES).map(|at| (time(at), at as f64 / 3.0)).collect();
        write(http, series, &samples);
    }
    end
}

fn hits(http: &Http) -> u64 {
    let text = http.get("/metrics").body;
    let name = "firn_query_results_cache_hits_total ";
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().parse().unwrap()
}

/// Returns the answer of a range query over the last 50 minutes.
fn evaluate(http: &Http, text: &str, end: i64, more: &[(&str, &str)]) -> Value {
    let [start, end] = [end - 3_000 * SECOND, end].map(|time| (time / SECOND).to_string());
    let mut form = vec![("query", text), ("start", &start), ("end", &end)];
    if !more.iter().any(|(name, _)| *name == "step") {
        form.push(("step", STEP));
    }
    form.extend(more);
    let answer = http.post("/api/v1/query_range", &form);
    assert_eq!(answer.status, 200, "{text}: {}", answer.body);
    answer.json()
}

/// Checks that the answer equals one without the cache, and whether it uses the cache. Returns it.
#[track_caller]
fn check(http: &Http, text: &str, end: i64, uses_cache: bool) -> Value {
    let before = hits(http);
    let expected = evaluate(http, text, end, &[("nocache", "1")]);
    assert_eq!(hits(http), before, "{text} with nocache");
    let answer = evaluate(http, text, end, &[]);
    assert_eq!(answer, expected, "{text}");
    assert_eq!(hits(http) - before, u64::from(uses_cache), "{text}");
    answer
}

const SUM: &str = "sum(rate(c_total[1m]))";

#[test]
fn refreshed_query_uses_the_cache_and_shows_all_changes_of_old_samples() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(
        folder.path(),
        "storage: {tsdb: {out_of_order_time_window: 2h}}\n",
    );
    let http = server.http();
    let end = store(&http);
    check(&http, SUM, end, false);
    check(&http, SUM, end, true);
    let live = [(end + INTERVAL, 100.0)];
    write(&http, "1", &live);
    write(&http, "2", &live);
    check(&http, SUM, end + INTERVAL, true);

    // A late sample in the middle of the range.
    let end = end + INTERVAL;
    let before = check(&http, SUM, end, true);
    write(
        &http,
        "3",
        &[(end - 2_000 * SECOND, 5.0), (end - 1_990 * SECOND, 9.0)],
    );
    let late = check(&http, SUM, end, true);
    assert_ne!(before, late);
    write(
        &http,
        "3",
        &[(end - 2_990 * SECOND, 5.0), (end - 2_980 * SECOND, 7.0)],
    );
    let later = check(&http, SUM, end, false);
    assert_ne!(late, later);
    check(&http, SUM, end, true);

    let range = ((end - 2_100 * SECOND) / SECOND).to_string();
    let form = [("match[]", "{n=\"3\"}"), ("start", &range)];
    let deleted = http.post("/api/v1/admin/tsdb/delete_series", &form);
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    let left = check(&http, SUM, end, false);
    assert_ne!(left, later);
    check(&http, SUM, end, true);

    let line =
        |ago: i64, value: u64| format!("c_total{{n=\"4\"}} {value} {}\n", end - ago * SECOND);
    let text = line(1_500, 1) + &line(1_490, 30);
    let plain = [("Content-Type", "text/plain")];
    let imported = http.send("/api/v1/import/prometheus", &plain, text.as_bytes());
    assert!(imported.status < 300, "{}", imported.body);
    let imported = evaluate(&http, SUM, end, &[]);
    assert_eq!(imported, evaluate(&http, SUM, end, &[("nocache", "1")]));
    assert_ne!(imported, left);
    server.stop();
}

#[test]
fn queries_whose_results_may_not_be_joined_bypass_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "");
    let http = server.http();
    let end = store(&http);
    for text in [
        "sum(c_total @ end())",
        "rate({n=\"1\"}[1m])",
        "stddev(c_total)",
    ] {
        check(&http, text, end, false);
        check(&http, text, end, false);
    }
    // `quantile` has the same warning in both parts, and `topk` finds equal values.
    for text in [
        "rate(c_total[1m])",
        "quantile(2, c_total)",
        "avg(c_total)",
        "topk(1, c_total * 2 + 1)",
        "time()",
    ] {
        check(&http, text, end, false);
        check(&http, text, end, text != "topk(1, c_total * 2 + 1)");
    }
    evaluate(&http, "count(c_total)", end, &[("stats", "all")]);
    check(&http, "count(c_total)", end, false);
    // Another phase and another step are other results.
    check(&http, "count(c_total)", end + SECOND, false);
    let before = hits(&http);
    evaluate(&http, "count(c_total)", end, &[("step", "16")]);
    assert_eq!(hits(&http), before);
    let wrong = http.post(
        "/api/v1/query_range",
        &[
            ("query", "up"),
            ("start", "0"),
            ("end", "9"),
            ("step", "1"),
            ("nocache", "maybe"),
        ],
    );
    let error = "invalid parameter \"nocache\": unable to parse boolean: ";
    let text = wrong.json()["error"].to_string();
    assert!(
        wrong.status == 400 && wrong.json()["error"].as_str().unwrap().starts_with(error),
        "{text}"
    );
    server.stop();
}

#[test]
fn cache_of_size_zero_keeps_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "firn: {results_cache_size: 0}\n");
    let http = server.http();
    let end = store(&http);
    for _ in 0..2 {
        check(&http, SUM, end, false);
    }
    let text = http.get("/metrics").body;
    assert!(
        text.contains("\nfirn_query_results_cache_bytes 0\n"),
        "{text}"
    );
    server.stop();
}
