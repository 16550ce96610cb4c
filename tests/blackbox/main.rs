//! Black-box tests of the built binary, as used by users, senders and attackers.
// A test fails by a panic, and its output is shown then.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod active;
mod agent;
mod aggregation;
mod alerting;
mod blocks;
mod certificates;
mod cluster;
mod cluster_node;
mod cluster_nodes;
mod command_line;
mod compare;
mod configs;
mod consoles;
mod deletes;
mod deploy;
mod differences;
mod disconnect;
mod disk;
mod documents;
#[path = "../harness/mod.rs"]
mod harness;
mod hostile;
mod import;
mod input;
mod life;
mod limits;
mod locks;
mod mirror;
mod otlp;
mod overrides;
mod plans;
mod previews;
mod profiles;
mod query_log;
mod raw;
mod reads;
mod refusal;
mod refused_samples;
mod remote_reading;
mod remote_write_2;
mod remote_write_musts;
mod replicas;
mod resources;
mod results_cache;
mod retention;
mod rules;
mod running;
mod scenario;
mod scrape;
mod sending;
mod snapshot;
mod start;
mod tenants;
mod tls;
mod tools;
mod tracing;
mod tsdb;
mod tsdb_kills;

use harness::http::Http;
use harness::write::{Series, body};
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in milliseconds since the epoch.
fn now_ms() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    now.as_millis() as i64
}

/// Data that a test stores first and must find again at its end.
struct Kept {
    time_ms: i64,
    answer: serde_json::Value,
}

impl Kept {
    /// Stores two series and remembers the result of a query for them.
    fn store(http: &Http) -> Kept {
        let time_ms = now_ms();
        let series = |name: &str, value: f64| {
            Series::new(&[("__name__", "kept"), ("name", name)], &[(time_ms, value)])
        };
        let answer = http.write(&body(&[series("a", 0.1), series("b", f64::MAX)]));
        assert_eq!(answer.status, 204, "{}", answer.body);
        let answer = http.query("kept", time_ms);
        assert_eq!(answer.as_array().map(Vec::len), Some(2), "{answer}");
        Kept { time_ms, answer }
    }

    /// Panics unless the same query has the same result.
    fn check(&self, http: &Http, after: &str) {
        assert_eq!(
            http.query("kept", self.time_ms),
            self.answer,
            "after {after}"
        );
    }
}
