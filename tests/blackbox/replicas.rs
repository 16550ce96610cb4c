//! Pairs of replicas that push the same series: over the wire, after `kill -9`, and with configured
//! labels.

use crate::harness::http::{Answer, Http};
use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body, compress, push_field, push_uvarint};
use crate::now_ms;
use serde_json::Value;
use std::path::Path;

const INTERVAL: i64 = 15_000;

/// Number of scrapes that a test sends.
const SCRAPES: i64 = 20;

fn start(folder: &Path, keys: &str) -> Server {
    let config = folder.join("firn.yml");
    std::fs::write(&config, "firn: {overrides: overrides.yml}\n").unwrap();
    let overrides = format!("overrides:\n  anonymous: {{accept_ha_samples: true{keys}}}\n");
    std::fs::write(folder.join("overrides.yml"), overrides).unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    Server::start(&folder.join("data"), &flags)
}

/// Data time of the first scrape: all scrapes are in the past.
fn first_scrape() -> i64 {
    (now_ms() - (SCRAPES + 5) * INTERVAL) / INTERVAL * INTERVAL
}

fn labels<'a>(name: &'a str, replica: &'a str) -> [(&'a str, &'a str); 4] {
    [
        ("__name__", name),
        ("__replica__", replica),
        ("cluster", "c"),
        ("job", "j"),
    ]
}

fn push(http: &Http, replica: &str, time: i64, value: f64) -> u16 {
    let series = Series::new(&labels("m", replica), &[(time, value)]);
    http.write(&body(&[series])).status
}

/// Returns the stored samples of a selector as times and values, without the label of the replica.
fn stored(http: &Http, selector: &str, from: i64) -> Vec<(i64, f64)> {
    let now = from + (SCRAPES + 5) * INTERVAL;
    let result = http.query(&format!("{selector}[{}ms]", now - from + INTERVAL), now);
    let series = result.as_array().unwrap();
    assert_eq!(series.len(), 1, "{result}");
    assert_eq!(series[0]["metric"]["__replica__"], Value::Null, "{result}");
    let values = series[0]["values"].as_array().unwrap().iter();
    let sample = |sample: &Value| {
        let time = (sample[0].as_f64().unwrap() * 1e3).round() as i64;
        (time, sample[1].as_str().unwrap().parse().unwrap())
    };
    values.map(sample).collect()
}

/// Checks that no interval is missing and no sample is near another one.
fn check_distances(samples: &[(i64, f64)], first: i64, last: i64) {
    let mut times = vec![first];
    times.extend(
        samples
            .iter()
            .map(|(time, _)| *time)
            .filter(|time| *time > first),
    );
    for pair in times.windows(2) {
        let distance = pair[1] - pair[0];
        assert!(distance * 10 >= INTERVAL * 3, "{samples:?}");
        assert!(distance * 10 <= INTERVAL * 16, "{samples:?}");
    }
    assert!(
        last - times[times.len() - 1] <= INTERVAL * 16 / 10,
        "{samples:?}"
    );
}

#[test]
fn samples_of_one_replica_are_stored_and_those_of_the_other_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "");
    let (http, first) = (server.http(), first_scrape());
    for scrape in 0..SCRAPES {
        let time = first + scrape * INTERVAL;
        assert_eq!(push(&http, "a", time, 1.0), 204);
        assert_eq!(push(&http, "b", time + 4_000, 2.0), 202);
        // A sender that missed the response repeats its request.
        assert_eq!(push(&http, "a", time, 1.0), 204);
    }
    let expected: Vec<(i64, f64)> = (0..SCRAPES)
        .map(|scrape| (first + scrape * INTERVAL, 1.0))
        .collect();
    assert_eq!(stored(&http, "m", first), expected);
    let metrics = http.get("/metrics").body;
    let count = format!("\nfirn_ingest_ha_deduplicated_samples_total {SCRAPES}\n");
    assert!(metrics.contains(&count), "{metrics}");
    assert_eq!(
        http.get("/api/v1/status/discards").json()["data"],
        Value::Array(Vec::new())
    );
}

#[test]
fn death_of_the_elected_replica_leaves_no_gap_whatever_the_skew() {
    for skew in [0, 1_000, 4_500, 7_500, 9_800, 13_000] {
        let folder = tempfile::tempdir().unwrap();
        let server = start(folder.path(), "");
        let (http, first) = (server.http(), first_scrape());
        for scrape in 0..SCRAPES {
            let time = first + scrape * INTERVAL;
            if scrape < SCRAPES / 2 {
                assert_eq!(push(&http, "a", time, 1.0), 204);
            }
            let status = push(&http, "b", time + skew, 2.0);
            assert!(matches!(status, 202 | 204), "{status}");
        }
        let samples = stored(&http, "m", first);
        check_distances(&samples, first, first + (SCRAPES - 1) * INTERVAL + skew);
        let of_first = samples.iter().filter(|(_, value)| *value == 1.0).count();
        assert_eq!(of_first as i64, SCRAPES / 2, "{samples:?}");
        server.wait_log("msg=\"HA replica elected\"");
    }
}

#[test]
fn kill_of_the_server_neither_loses_nor_doubles_a_scrape() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = start(folder.path(), "");
    let first = first_scrape();
    for scrape in 0..SCRAPES {
        let time = first + scrape * INTERVAL;
        if scrape % 5 == 3 {
            server.kill();
            server = start(folder.path(), "");
        }
        let http = server.http();
        // After each restart the other replica is the first to send.
        let order = if scrape % 2 == 0 {
            ["a", "b"]
        } else {
            ["b", "a"]
        };
        for replica in order {
            let skew = if replica == "a" { 0 } else { 2_000 };
            let status = push(&http, replica, time + skew, 1.0);
            assert!(matches!(status, 202 | 204), "{status}");
        }
    }
    let samples = stored(&server.http(), "m", first);
    check_distances(&samples, first, first + (SCRAPES - 1) * INTERVAL);
    assert_eq!(samples.len() as i64, SCRAPES, "{samples:?}");
}

#[test]
fn backlog_of_a_replica_fills_the_gap_in_which_both_were_silent() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "");
    let (http, first) = (server.http(), first_scrape());
    let at = |scrape: i64| first + scrape * INTERVAL;
    for scrape in (0..5).chain(12..SCRAPES) {
        if scrape < 5 {
            push(&http, "a", at(scrape), 1.0);
        }
        push(&http, "b", at(scrape) + 3_000, 2.0);
    }
    let backlog: Vec<(i64, f64)> = (5..SCRAPES).map(|scrape| (at(scrape), 1.0)).collect();
    let series = Series::new(&labels("m", "a"), &backlog);
    assert_eq!(http.write(&body(&[series])).status, 204);
    let samples = stored(&http, "m", first);
    check_distances(&samples, first, at(SCRAPES - 1));
    assert_eq!(samples.len() as i64, SCRAPES, "{samples:?}");
}

#[test]
fn labels_of_clusters_and_replicas_are_those_of_the_overrides() {
    let folder = tempfile::tempdir().unwrap();
    let keys = ", ha_cluster_label: team, ha_replica_label: prom, ha_max_clusters: 1";
    let server = start(folder.path(), keys);
    let (http, time) = (server.http(), first_scrape());
    let push = |pairs: &[(&str, &str)]| http.write(&body(&[Series::new(pairs, &[(time, 1.0)])]));
    let pair = |prom, team| [("__name__", "m"), ("prom", prom), ("team", team)];
    assert_eq!(push(&pair("a", "x")).status, 204);
    assert_eq!(push(&pair("b", "x")).status, 202);
    let refused = push(&pair("a", "y"));
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(
        refused
            .body
            .contains("too many HA clusters: 2, limit 1 (ha_max_clusters)"),
        "{}",
        refused.body
    );
    // Series with one of the labels, or with Mimir's, are ordinary ones.
    let usual = labels("plain", "a");
    assert_eq!(push(&usual).status, 204);
    assert_eq!(push(&[("__name__", "half"), ("prom", "a")]).status, 204);
    let found = http.query("plain", time);
    assert_eq!(found[0]["metric"]["__replica__"], "a", "{found}");
    assert_eq!(http.query("half", time)[0]["metric"]["prom"], "a");
    let found = http.query("m", time);
    assert_eq!(found[0]["metric"]["team"], "x", "{found}");
    assert_eq!(found[0]["metric"]["prom"], Value::Null, "{found}");
}

/// Sends a request of version 2.0 with one series and one sample.
fn push_2(http: &Http, replica: &str, time: i64) -> Answer {
    let mut message = Vec::new();
    let pairs = labels("two", replica);
    push_field(&mut message, 0x22, b"");
    for (name, value) in pairs {
        push_field(&mut message, 0x22, name.as_bytes());
        push_field(&mut message, 0x22, value.as_bytes());
    }
    let mut refs = Vec::new();
    (1..=2 * pairs.len() as u64).for_each(|number| push_uvarint(&mut refs, number));
    let mut series = Vec::new();
    push_field(&mut series, 0x0a, &refs);
    let mut sample = vec![0x09];
    sample.extend_from_slice(&1.0f64.to_le_bytes());
    sample.push(0x10);
    push_uvarint(&mut sample, time as u64);
    push_field(&mut series, 0x12, &sample);
    push_field(&mut message, 0x2a, &series);
    http.write_2(&compress(&message))
}

#[test]
fn remote_write_2_and_otlp_are_deduplicated_like_version_1() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "");
    let (http, time) = (server.http(), first_scrape());
    assert_eq!(push_2(&http, "a", time).status, 204);
    let second = push_2(&http, "b", time + 1_000);
    assert_eq!(second.status, 202, "{}", second.body);
    // The sender must not count the samples as lost.
    assert_eq!(
        second.header("x-prometheus-remote-write-samples-written"),
        "1"
    );
    assert_eq!(stored(&http, "two", time).len(), 1);
    let otlp = |replica: &str, time: i64| {
        let message = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"o","gauge":
            {{"dataPoints":[{{"timeUnixNano":"{}","asDouble":1,"attributes":[
            {{"key":"cluster","value":{{"stringValue":"c"}}}},
            {{"key":"__replica__","value":{{"stringValue":"{replica}"}}}}]}}]}}}}]}}]}}]}}"#,
            time * 1_000_000
        );
        let headers = [("Content-Type", "application/json")];
        http.send("/api/v1/otlp/v1/metrics", &headers, message.as_bytes())
    };
    assert_eq!(otlp("a", time).status, 200);
    let second = otlp("b", time + 1_000);
    assert_eq!((second.status, second.body.as_str()), (202, "{}"));
    assert_eq!(stored(&http, "o", time).len(), 1);
}

#[test]
fn replicas_are_ordinary_labels_until_a_reload_accepts_them() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "");
    let (http, first) = (server.http(), first_scrape());
    assert_eq!(push(&http, "a", first, 1.0), 204);
    let file = folder.path().join("overrides.yml");
    std::fs::write(file, "overrides: {anonymous: {accept_ha_samples: false}}\n").unwrap();
    server.signal(rustix::process::Signal::HUP);
    server.wait_log("msg=\"config reloaded\"");
    wait_for("the label to be kept", || {
        push(&http, "b", first + INTERVAL, 1.0) == 204
            && http.query("m{__replica__=\"b\"}", first + INTERVAL)[0] != Value::Null
    });
}
