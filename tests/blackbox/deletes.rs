//! Deletes over HTTP: parameters and errors, deleted samples after a kill and a cleanup, samples
//! written after a delete, and the freed space.

use crate::harness::choices::Choices;
use crate::harness::http::{Answer, Http};
use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body};
use crate::now_ms;
use serde_json::json;
use std::path::{Path, PathBuf};

const ADMIN: &str = "--web.enable-admin-api";
const DELETE: &str = "/api/v1/admin/tsdb/delete_series";
const CLEAN: &str = "/api/v1/admin/tsdb/clean_tombstones";

const MINUTE: i64 = 60_000;

/// Minutes of data, which become blocks, pages and samples in memory.
const MINUTES: i64 = 9 * 60;

/// Series of each of the metrics `old` and `kept`.
const SERIES: u64 = 20;

/// Stores both metrics with random values. Returns the time of the first sample.
fn store(http: &Http) -> i64 {
    let mut choices = Choices::new(1);
    let start = (now_ms() / MINUTE - MINUTES) * MINUTE;
    for first in (0..MINUTES).step_by(30) {
        let mut all = Vec::new();
        for (metric, number) in (0..SERIES).flat_map(|n| [("old", n), ("kept", n)]) {
            let times = (first..first + 30).map(|minute| start + minute * MINUTE);
            let samples: Vec<(i64, f64)> = times.map(|time| (time, choices.value())).collect();
            let number = number.to_string();
            all.push(Series::new(
                &[("__name__", metric), ("n", &number)],
                &samples,
            ));
        }
        assert_eq!(http.write(&body(&all)).status, 204);
    }
    start
}

/// Starts a server that scrapes nothing: samples of its own would be newer than all others.
fn start(folder: &Path) -> Server {
    let config = folder.join("firn.yml");
    std::fs::write(&config, "scrape_configs: []\n").unwrap();
    Server::start(
        &data(folder),
        &[ADMIN, "--config", config.to_str().unwrap()],
    )
}

/// Returns the data folder of a server.
fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn count(http: &Http, metric: &str) -> String {
    let query = format!("sum(count_over_time({metric}[10h])) or vector(0)");
    let found = http.query(&query, now_ms());
    found[0]["value"][1].as_str().unwrap().to_owned()
}

/// Returns the number of series of each block.
fn block_series(data: &Path) -> Vec<u64> {
    let folders = std::fs::read_dir(data.join("blocks")).unwrap();
    let metas = folders.filter_map(|folder| {
        let meta = std::fs::read(folder.ok()?.path().join("meta.json")).ok()?;
        let meta: serde_json::Value = serde_json::from_slice(&meta).ok()?;
        meta["stats"]["numSeries"].as_u64()
    });
    metas.collect()
}

fn wait_for_blocks(data: &Path) {
    wait_for("blocks", || block_series(data).contains(&(2 * SERIES)));
}

#[track_caller]
fn check_error(answer: &Answer, status: u16, kind: &str, text: &str) {
    assert_eq!(answer.status, status, "{}", answer.body);
    let json = answer.json();
    assert_eq!(json["errorType"], kind, "{}", answer.body);
    let error = json["error"].as_str().unwrap();
    assert!(error.contains(text), "{}", answer.body);
}

#[test]
fn deleted_series_are_gone_at_once_after_kill_and_after_the_cleanup() {
    let folder = tempfile::tempdir().unwrap();
    let data = data(folder.path());
    let server = start(folder.path());
    let http = server.http();
    let first = store(&http);
    wait_for_blocks(&data);
    let all = (MINUTES * SERIES as i64).to_string();
    assert_eq!(
        (count(&http, "old"), count(&http, "kept")),
        (all.clone(), all.clone())
    );
    let dry = http.post(DELETE, &[("match[]", "old"), ("dry_run", "1")]);
    let counted = json!({ "series": SERIES, "samples": MINUTES * SERIES as i64 });
    assert_eq!(dry.json(), json!({ "status": "success", "data": counted }));
    let deleted = http.post(DELETE, &[("match[]", "old")]);
    assert_eq!((deleted.status, deleted.body.as_str()), (204, ""));
    server.wait_log("action=delete_series matchers=old");
    server.kill();
    let server = start(folder.path());
    let http = server.http();
    let check = |http: &Http, when: &str| {
        assert_eq!(
            (count(http, "old"), count(http, "kept")),
            ("0".to_owned(), all.clone()),
            "{when}"
        );
        let range = format!("start={}&end={}", first / 1_000, now_ms() / 1_000);
        let names = http
            .get(&format!("/api/v1/label/__name__/values?{range}"))
            .json();
        let names = names["data"].as_array().unwrap();
        assert!(
            !names.contains(&json!("old")) && names.contains(&json!("kept")),
            "{when}"
        );
        let series = http
            .get(&format!("/api/v1/series?match[]=old&{range}"))
            .json();
        assert_eq!(series["data"], json!([]), "{when}");
        let federated = http.get("/federate?match[]=old").body;
        assert!(!federated.contains("old{"), "{when}: {federated}");
    };
    check(&http, "after kill");
    let cleaned = http.post(CLEAN, &[]);
    assert_eq!((cleaned.status, cleaned.body.as_str()), (204, ""));
    check(&http, "after the cleanup");
    wait_for("blocks without deleted series", || {
        block_series(&data).iter().all(|series| *series == SERIES)
    });
    server.kill();
    let server = start(folder.path());
    check(&server.http(), "after another kill");
}

#[test]
fn samples_that_arrive_after_a_delete_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let data = data(folder.path());
    let server = start(folder.path());
    let http = server.http();
    let first = store(&http);
    wait_for_blocks(&data);
    let (from, to) = (first / 1_000, first / 1_000 + 3_600);
    let range = [
        ("match[]", "old{n=\"3\"}"),
        ("start", &from.to_string()),
        ("end", &to.to_string()),
    ];
    assert_eq!(http.post(DELETE, &range).status, 204);
    let left = MINUTES * SERIES as i64 - 61;
    assert_eq!(count(&http, "old"), left.to_string());
    let text = format!("old{{n=\"3\"}} 7 {}\n", first + 5 * MINUTE);
    let imported = http.send("/api/v1/import/prometheus", &[], text.as_bytes());
    assert!(imported.status < 300, "{}", imported.body);
    let newest = Series::new(&[("__name__", "old"), ("n", "3")], &[(now_ms(), 8.0)]);
    assert_eq!(http.write(&body(&[newest])).status, 204);
    server.kill();
    let server = start(folder.path());
    assert_eq!(count(&server.http(), "old"), (left + 2).to_string());
    let found = server.http().query("old{n=\"3\"}", first + 6 * MINUTE);
    assert_eq!(found[0]["value"][1], "7");
    let gone = server.http().query("old{n=\"3\"}", first + 40 * MINUTE);
    assert_eq!(gone, json!([]));
}

#[test]
fn requests_that_delete_nothing_have_the_errors_of_prometheus() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    for path in [DELETE, CLEAN] {
        let refused = server.http().post(path, &[("match[]", "up")]);
        check_error(&refused, 503, "unavailable", "admin APIs disabled");
    }
    drop(server);
    let server = Server::start(data.path(), &[ADMIN]);
    let http = server.http();
    let kept = crate::Kept::store(&http);
    let cases: [(&[(&str, &str)], &str); 7] = [
        (&[], "no match[] parameter provided"),
        (&[("match[]", "kept{")], "invalid parameter \"match[]\""),
        (
            &[("match[]", "kept"), ("match[]", "=")],
            "invalid parameter \"match[]\"",
        ),
        (
            &[("match[]", "{}")],
            "must contain at least one non-empty matcher",
        ),
        (
            &[("match[]", "kept"), ("start", "x")],
            "invalid parameter \"start\"",
        ),
        (
            &[("match[]", "kept"), ("end", "x")],
            "invalid parameter \"end\"",
        ),
        (
            &[("match[]", "kept"), ("dry_run", "x")],
            "invalid parameter \"dry_run\"",
        ),
    ];
    for (form, text) in cases {
        check_error(&http.post(DELETE, form), 400, "bad_data", text);
    }
    assert_eq!(http.get(DELETE).status, 405);
    let inverted = [("match[]", "kept"), ("start", "2000000000"), ("end", "1")];
    assert_eq!(http.post(DELETE, &inverted).status, 204);
    assert_eq!(http.post(DELETE, &[("match[]", "none")]).status, 204);
    assert_eq!(http.post(CLEAN, &[]).status, 204);
    kept.check(&http, "requests that delete nothing");
}
