//! The file of `firn.overrides`: every limit of a tenant, reloads, and files with mistakes.

use crate::harness::http::Http;
use crate::harness::server::{Server, firn, wait_for};
use crate::harness::write::{Series, body};
use crate::now_ms;
use rustix::process::Signal;
use std::path::Path;

/// A query that runs for several seconds.
const SLOW: &str = "max_over_time(quantile_over_time(0.5,vector(time())[1d:1s])[20h:1s])";

/// A server whose anonymous tenant has limits.
struct Limited {
    folder: tempfile::TempDir,
    server: Server,
}

impl Limited {
    fn start(keys: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("firn.yml");
        std::fs::write(&config, "firn: {overrides: overrides.yml}\n").unwrap();
        write_overrides(folder.path(), keys);
        let flags = [
            "--config",
            config.to_str().unwrap(),
            "--web.enable-lifecycle",
        ];
        let server = Server::start(&folder.path().join("data"), &flags);
        Self { folder, server }
    }

    fn http(&self) -> Http {
        self.server.http()
    }

    fn reload(&self, keys: &str) -> (u16, String) {
        write_overrides(self.folder.path(), keys);
        let answer = self.http().post("/-/reload", &[]);
        (answer.status, answer.body)
    }
}

fn write_overrides(folder: &Path, keys: &str) {
    let text = format!("overrides:\n  anonymous: {{{keys}}}\n  other: {{ingestion_rate: 1}}\n");
    std::fs::write(folder.join("overrides.yml"), text).unwrap();
}

/// Returns one series with a sample for each of `numbers`.
fn series(numbers: std::ops::Range<usize>, time: i64) -> Vec<u8> {
    let one = |number: usize| {
        let number = number.to_string();
        Series::new(&[("__name__", "m"), ("n", &number)], &[(time, 1.0)])
    };
    body(&numbers.map(one).collect::<Vec<Series>>())
}

#[test]
fn errors_of_write_limits_contain_names_and_values() {
    let limited = Limited::start(
        "max_global_series_per_user: 3, max_label_names_per_series: 4, \
         max_request_body_size: 1000",
    );
    let (http, now) = (limited.http(), now_ms());
    assert_eq!(http.write(&series(0..3, now)).status, 204);
    let many = http.write(&series(0..4, now + 1));
    assert_eq!(many.status, 400);
    let why = "too many active series: limit 3 (max_global_series_per_user)";
    assert!(many.body.contains(why), "{}", many.body);
    assert!(
        many.body.contains("n=\\\"3\\\"") || many.body.contains("n=\"3\""),
        "{}",
        many.body
    );
    // Existing series go on.
    assert_eq!(http.write(&series(0..3, now + 2)).status, 204);
    let labels = [
        ("__name__", "m"),
        ("a", "1"),
        ("b", "1"),
        ("c", "1"),
        ("d", "1"),
    ];
    let wide = http.write(&body(&[Series::new(&labels, &[(now, 1.0)])]));
    assert_eq!(wide.status, 400);
    let why = "too many labels: 5, limit 4 (max_label_names_per_series)";
    assert!(wide.body.contains(why), "{}", wide.body);
    let large = http.send("/api/v1/write", &[], &[0; 1001]);
    assert_eq!(large.status, 413);
    let why = "request body too large: 1001 bytes, limit 1000 (max_request_body_size)";
    assert!(large.body.contains(why), "{}", large.body);
    let (status, body) = limited.reload("max_global_series_per_user: 4");
    assert_eq!(status, 200, "{body}");
    wait_for("the new limit", || {
        http.write(&series(0..4, now + 3)).status == 204
    });
}

#[test]
fn limit_of_labels_applies_to_existing_series_too() {
    let limited = Limited::start("");
    let (http, now) = (limited.http(), now_ms());
    assert_eq!(http.write(&series(0..1, now)).status, 204);
    limited.reload("max_label_names_per_series: 1");
    wait_for("the limit", || {
        http.write(&series(0..1, now + 1)).status == 400
    });
}

#[test]
fn rate_of_samples_is_refused_with_429_and_the_time_to_wait() {
    let limited = Limited::start("ingestion_rate: 10, ingestion_burst_size: 50");
    let (http, now) = (limited.http(), now_ms());
    assert_eq!(http.write(&series(0..50, now)).status, 204);
    let refused = http.write(&series(0..50, now + 1));
    assert_eq!(refused.status, 429, "{}", refused.body);
    let seconds: u32 = refused.header("retry-after").parse().unwrap();
    assert!((1..=5).contains(&seconds), "{seconds}");
    let why = "ingestion rate exceeded: 50 samples, limit 10 samples per second (ingestion_rate) \
               with a burst of 50 samples (ingestion_burst_size)";
    assert!(refused.body.contains(why), "{}", refused.body);
    wait_for("new tokens", || {
        http.write(&series(0..1, now + 2)).status == 204
    });
}

#[test]
fn new_series_over_the_budget_of_a_window_are_refused_and_listed() {
    let limited = Limited::start("new_series_limit: 5");
    let http = limited.http();
    let hour = 3_600_000;
    // The windows follow data time.
    let start = (now_ms() / hour - 3) * hour;
    assert_eq!(http.write(&series(0..5, start)).status, 204);
    let refused = http.write(&series(0..9, start + 1));
    assert_eq!(refused.status, 400);
    let why = "too many new series: limit 5 (new_series_limit)";
    assert!(refused.body.contains(why), "{}", refused.body);
    assert!(
        refused.body.contains("4 new_series_limit"),
        "{}",
        refused.body
    );
    let discards = http.get("/api/v1/status/discards").json();
    let offender = &discards["data"][0];
    assert_eq!(offender["reason"], "new_series_limit", "{discards}");
    assert_eq!(offender["samples"], 4, "{discards}");
    assert_eq!(offender["labels"]["__name__"], "m", "{discards}");
    assert_eq!(offender["labels"]["n"], "5", "{discards}");
    assert_eq!(http.write(&series(0..5, start + 2)).status, 204);
    // The next window.
    assert_eq!(http.write(&series(0..1, start + hour)).status, 204);
    assert_eq!(http.write(&series(5..10, start + hour + 1)).status, 204);
    assert_eq!(http.write(&series(10..11, start + hour + 2)).status, 400);
}

#[test]
fn limits_of_queries_take_precedence_over_the_config() {
    let limited = Limited::start(
        "max_fetched_series_per_query: 3, max_samples_per_query: 20, \
         blocked_queries: [{pattern: 'sum(m)', reason: slow}]",
    );
    let (http, now) = (limited.http(), now_ms());
    for scrape in 0..8 {
        assert_eq!(http.write(&series(0..4, now - scrape * 1_000)).status, 204);
    }
    let query = |text: &str| {
        let time = (now / 1_000).to_string();
        let answer = http.post("/api/v1/query", &[("query", text), ("time", &time)]);
        (answer.status, answer.body)
    };
    let check = |text: &str, status: u16, why: &str| {
        let (found, body) = query(text);
        assert_eq!(found, status, "{text}: {body}");
        assert!(body.contains(why), "{text}: {body}");
    };
    check("m", 422, "4 series, limit 3 (max_fetched_series_per_query)");
    let samples = "samples, limit 20 (max_samples_per_query)";
    check("count_over_time(m{n=~'0|1|2'}[1m])", 422, samples);
    check("sum(m)", 400, "blocked by the cluster administrator: slow");
    check("count(m{n='1'})", 200, "success");
    let (status, body) = limited.reload("query_timeout: 50ms, max_concurrent_queries: 1");
    assert_eq!(status, 200, "{body}");
    wait_for("the new limits", || query("m").0 == 200);
    let why = "query timed out in expression evaluation: limit 50ms (query_timeout)";
    check(SLOW, 503, why);
}

#[test]
fn query_over_the_concurrency_limit_of_its_tenant_waits() {
    let limited = Limited::start("max_concurrent_queries: 1");
    let http = limited.http();
    let address = limited.server.address.clone();
    let running = std::thread::spawn(move || {
        let form = [("query", SLOW), ("timeout", "5s")];
        Http::new(&address).post("/api/v1/query", &form).status
    });
    wait_for("the slow query to run", || {
        http.get("/metrics")
            .body
            .contains("\nfirn_server_queries_running 1\n")
    });
    let waiting = http.post("/api/v1/query", &[("query", "1"), ("timeout", "100ms")]);
    assert_eq!(waiting.status, 503, "{}", waiting.body);
    let why = "query timed out in query queue: 1 queries of the tenant run, limit 1 \
               (max_concurrent_queries)";
    assert!(waiting.body.contains(why), "{}", waiting.body);
    assert_eq!(running.join().unwrap(), 503);
}

#[test]
fn broken_file_keeps_the_old_overrides_and_is_named_with_line_and_column() {
    let limited = Limited::start("max_label_names_per_series: 2");
    let (http, now) = (limited.http(), now_ms());
    let wide = || {
        let labels = [("__name__", "m"), ("a", "1"), ("b", "1")];
        http.write(&body(&[Series::new(&labels, &[(now, 1.0)])]))
            .status
    };
    assert_eq!(wide(), 400);
    for (keys, place) in [
        (
            "max_labels: 2",
            "2:15: unknown key \"max_labels\" in overrides.anonymous",
        ),
        (
            "max_global_series_per_user: many",
            "2:43: overrides.anonymous.max_global_series",
        ),
        (
            "query_timeout: soon",
            "2:30: overrides.anonymous.query_timeout",
        ),
        ("a: [", "overrides.yml:"),
    ] {
        let (status, body) = limited.reload(keys);
        assert_eq!(status, 500, "{keys}: {body}");
        assert!(
            body.contains("overrides.yml:") && body.contains(place),
            "{keys}: {body}"
        );
        assert_eq!(wide(), 400);
    }
    std::fs::remove_file(limited.folder.path().join("overrides.yml")).unwrap();
    let answer = http.post("/-/reload", &[]);
    assert_eq!(answer.status, 500, "{}", answer.body);
    assert_eq!(wide(), 400);
    write_overrides(limited.folder.path(), "max_label_names_per_series: 3");
    limited.server.signal(Signal::HUP);
    wait_for("the reload", || wide() == 204);
    // A server does not start with a broken file, and the check of the config finds it.
    write_overrides(limited.folder.path(), "max_labels: 2");
    let config = limited.folder.path().join("firn.yml");
    let output = firn()
        .args(["check", "config"])
        .arg(&config)
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("overrides.yml:2:15: unknown key"), "{text}");
}
