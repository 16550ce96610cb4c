//! A client that goes away: whatever its query is at, its processor time is free within 100 ms.

use crate::harness::http::Http;
use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body};
use crate::now_ms;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long a query may go on. Without optimisation everything takes ten times as long.
const LONGEST: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1_000 } else { 100 });

/// Pause between two looks at the server: its own share of the wait.
const POLL: Duration = Duration::from_millis(2);

/// Every wait holds what the machine does beside: the least of so many is the server's own.
const ATTEMPTS: u32 = 4;

const SERIES: usize = if cfg!(debug_assertions) {
    2_000
} else {
    20_000
};
const SAMPLES: i64 = 60;
const INTERVAL_MS: i64 = 15_000;

/// Queries of every shape that take long, and in how many steps they are asked: all of them are at
/// work when their client goes.
const QUERIES: [(&str, i64); 14] = [
    // One series whose windows are long.
    (
        "max_over_time(sum_over_time(vector(time())[1d:1s])[20h:1s])",
        2,
    ),
    (
        "max_over_time(quantile_over_time(0.5, vector(time())[1d:1s])[20h:10s])",
        2,
    ),
    // Many series at many steps.
    ("sum by (pod) (rate(wide[5m]))", 2_000),
    ("quantile_over_time(0.9, wide[10m])", 500),
    ("wide", 1_000),
    // Whole vectors at once.
    ("topk by (zone) (1000, wide)", 500),
    ("quantile(0.5, wide)", 500),
    ("count_values(\"v\", wide)", 50),
    ("wide + on (pod, zone) wide", 500),
    ("wide and on (pod) wide unless on (zone) nothing", 500),
    // Labels and orders.
    (
        "label_replace(wide, \"new\", \"$1-$2\", \"pod\", \"(p.*)-(.*)\")",
        500,
    ),
    (
        "label_join(wide, \"pod\", \"-\", \"zone\", \"pod\", \"pod\")",
        500,
    ),
    ("wide * on (pod, zone) group_left () wide", 500),
    // Samples as they are.
    ("last_over_time(wide[15m:1s])", 20),
];

fn load(http: &Http) -> i64 {
    let newest = now_ms() - INTERVAL_MS;
    for start in (0..SERIES).step_by(500) {
        let one = |number: usize| {
            let (pod, zone) = (format!("pod-{number}"), format!("zone-{}", number % 5));
            let labels = [("__name__", "wide"), ("pod", &pod), ("zone", &zone)];
            let sample = |i: i64| {
                let time = newest - (SAMPLES - 1 - i) * INTERVAL_MS;
                (time, (number * 31 + i as usize) as f64 * 0.25)
            };
            Series::new(&labels, &(0..SAMPLES).map(sample).collect::<Vec<_>>())
        };
        let all: Vec<Series> = (start..SERIES.min(start + 500)).map(one).collect();
        let answer = http.write(&body(&all));
        assert_eq!(answer.status, 204, "{}", answer.body);
    }
    newest
}

fn running(http: &Http) -> bool {
    let text = http.get("/metrics").body;
    !text.contains("\nfirn_server_queries_running 0\n")
}

/// How long a query goes on after its client went, which is `after` its begin; none if it had ended
/// by then.
fn time_to_stop(server: &Server, path: &str, after: Duration) -> Option<Duration> {
    let http = server.http();
    let mut socket = TcpStream::connect(&server.address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    std::thread::sleep(after);
    if !running(&http) {
        return None;
    }
    let start = Instant::now();
    drop(socket);
    wait_for("the query to stop", || {
        std::thread::sleep(POLL);
        !running(&http)
    });
    Some(start.elapsed())
}

#[test]
fn query_of_a_client_that_went_stops_within_100_ms() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("firn.yml");
    std::fs::write(&config, "firn: {memory_limit: 8GiB}\n").unwrap();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--query.max-samples",
        "1000000000",
    ];
    let server = Server::start(&folder.path().join("data"), &flags);
    let newest = load(&server.http());
    let mut slow = Vec::new();
    for (query, steps) in QUERIES {
        let span_ms = (SAMPLES * INTERVAL_MS).max(steps);
        let path = format!(
            "/api/v1/query_range?query={}&start={}&end={}&step={}",
            escaped(query),
            (newest - span_ms) as f64 / 1000.0,
            newest as f64 / 1000.0,
            (span_ms / steps) as f64 / 1000.0,
        );
        let attempts = (1..=ATTEMPTS).filter_map(|attempt| {
            let after = Duration::from_millis(60) * attempt;
            time_to_stop(&server, &path, after)
        });
        let times: Vec<Duration> = attempts.collect();
        println!("{query}: {times:?}");
        match times.iter().min() {
            None => slow.push(format!("{query}: never at work")),
            Some(least) if *least > LONGEST => slow.push(format!("{query}: {times:?}")),
            Some(_) => {}
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

/// A query as a URL has it.
fn escaped(query: &str) -> String {
    query
        .replace(' ', "%20")
        .replace('+', "%2B")
        .replace('"', "%22")
}
