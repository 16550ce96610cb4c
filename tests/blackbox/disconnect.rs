//! Clients that disconnect: at any point of a query, its processor time is released within 100 ms.
//! `FIRN_SEED` repeats the moments of a run.

use crate::harness::http::Http;
use crate::harness::server::{Server, wait_for};
use crate::harness::write::{Series, body};
use crate::now_ms;
use firn_model::env::sim::SimRng;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Maximum time that a query may continue after its end. Without optimization everything is ten
/// times slower.
pub const LONGEST: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 1_000 } else { 100 });

/// Pause between two polls of the server, which is part of the measured time.
const POLL: Duration = Duration::from_millis(2);

/// Number of moments of disconnection per query, at which it may be in different phases.
const MOMENTS: usize = 6;

/// Range of the moments, in milliseconds.
const MOMENTS_MS: std::ops::Range<u64> = 20..400;

/// Each measurement includes other work of the machine: the minimum of several is the server's own
/// time.
const ATTEMPTS: usize = 4;

const SERIES: usize = if cfg!(debug_assertions) {
    2_000
} else {
    20_000
};
const SAMPLES: i64 = 60;
const INTERVAL_MS: i64 = 15_000;

/// Slow queries of every shape, with their numbers of steps. Most of them are running when the
/// client disconnects, even on a fast machine.
const QUERIES: [(&str, i64); 19] = [
    // One series with long windows.
    (
        "max_over_time(stddev_over_time(vector(time())[1d:1s])[20h:1s])",
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
    // Operations on whole vectors.
    ("topk by (zone) (1000, wide)", 500),
    ("quantile(0.5, wide)", 500),
    ("count_values(\"v\", wide)", 50),
    ("wide + on (pod, zone) wide", 500),
    ("wide and on (pod) wide unless on (zone) nothing", 500),
    // Labels and sorting.
    (
        "label_replace(wide, \"new\", \"$1-$2\", \"pod\", \"(p.*)-(.*)\")",
        500,
    ),
    (
        "label_join(wide, \"pod\", \"-\", \"zone\", \"pod\", \"pod\")",
        500,
    ),
    ("wide * on (pod, zone) group_left () wide", 500),
    // Copies of whole vectors.
    ("wide @ end()", 2_000),
    ("limitk(15000, wide)", 2_000),
    ("limit_ratio(0.9, wide)", 2_000),
    ("topk(15000, wide)", 200),
    ("(wide or on (zone) nothing) * 2", 500),
    // Raw samples.
    ("last_over_time(wide[15m:1s])", 20),
];

/// Stores the series `wide`. Returns the time of their newest sample.
pub fn load(http: &Http) -> i64 {
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

/// Returns how long a query continues after its client disconnects, which is `after` its start.
/// `None` if it had ended by then.
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

/// Measures a disconnection at one moment, repeatedly until the time is below the limit.
fn times_to_stop(server: &Server, path: &str, moment: Duration) -> Vec<Duration> {
    let mut times = Vec::new();
    while times.len() < ATTEMPTS {
        let Some(time) = time_to_stop(server, path, moment) else {
            break;
        };
        times.push(time);
        if time <= LONGEST {
            break;
        }
    }
    times
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
    let seed = std::env::var("FIRN_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(newest as u64);
    println!("FIRN_SEED={seed}");
    let rng = SimRng::new(seed);
    let (mut slow, mut ended) = (Vec::new(), Vec::new());
    for (query, steps) in QUERIES {
        let span_ms = (SAMPLES * INTERVAL_MS).max(steps);
        let path = format!(
            "/api/v1/query_range?query={}&start={}&end={}&step={}",
            escaped(query),
            (newest - span_ms) as f64 / 1000.0,
            newest as f64 / 1000.0,
            (span_ms / steps) as f64 / 1000.0,
        );
        let mut was_at_work = false;
        for _ in 0..MOMENTS {
            let span = MOMENTS_MS.end - MOMENTS_MS.start;
            let moment = Duration::from_millis(MOMENTS_MS.start + rng.next_below(span));
            let times = times_to_stop(&server, &path, moment);
            println!("{query} left after {moment:?}: {times:?}");
            was_at_work |= !times.is_empty();
            if times.len() == ATTEMPTS {
                slow.push(format!("{query} left after {moment:?}: {times:?}"));
            }
        }
        if !was_at_work {
            ended.push(query);
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
    assert!(ended.len() * 3 < QUERIES.len(), "never at work: {ended:#?}");
}

/// Escapes a query for a URL.
pub fn escaped(query: &str) -> String {
    query
        .replace(' ', "%20")
        .replace('+', "%2B")
        .replace('"', "%22")
}
