//! A real Prometheus sends to Firn. The received samples are compared one by one with those that
//! the sender stored.
//!
//! ```text
//! node_exporter <- 1 s - prometheus - remote write, 4 shards -> firn
//! prometheus    <- 1 s -     |                                   |
//!                      promtool tsdb dump    ==    {job=~".+"}[...] of the query API
//! ```
//!
//! The test needs Debian's packages `prometheus` and `prometheus-node-exporter`, and fails without
//! them.

// A test fails by a panic, and its output is shown then.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod dump;
#[path = "../harness/mod.rs"]
// Each test program uses a part of the harness.
#[allow(dead_code)]
mod harness;

use dump::{Series, from_answer, from_dump};
use firn_mirror::api::{ExpressionRequest, SystemClient};
use firn_mirror::push::now_ms;
use harness::server::Server;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Number of scrapes of each target that the test waits for.
const SCRAPES: f64 = 40.0;

/// Maximum time for these scrapes, at one per second.
const PATIENCE: Duration = Duration::from_secs(120);

/// Age in milliseconds from which samples have been sent: the shards send at most a second late.
const IN_FLIGHT_MS: i64 = 5_000;

/// A process of the test, which is killed on drop.
struct Process(Child);

impl Process {
    fn start(program: &str, args: &[String], log: &Path) -> Process {
        let log = File::create(log).unwrap();
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Process(child.unwrap_or_else(|e| {
            panic!(
                "{program}: {e}; install Debian's packages prometheus and \
                 prometheus-node-exporter (`make install`)"
            )
        }))
    }

    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = self.0.wait().unwrap();
        assert!(status.success(), "the sender stopped with {status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns ports without a listener. They are below the range for outgoing connections, so that
/// none is taken before the program that listens has started.
fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let first = 10_000 + (std::process::id() % 10_000) as u16;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut free = (first..).filter(is_free);
    [(); COUNT].map(|()| free.next().unwrap())
}

fn sender_config(own_port: u16, exporter_port: u16, receiver: &str) -> String {
    format!(
        "global:
  scrape_interval: 1s
scrape_configs:
  - job_name: prometheus
    static_configs: [{{targets: ['127.0.0.1:{own_port}']}}]
  - job_name: node
    static_configs: [{{targets: ['127.0.0.1:{exporter_port}']}}]
remote_write:
  - url: http://{receiver}/api/v1/write
    queue_config:
      min_shards: 4
      max_shards: 4
      max_samples_per_send: 300
      batch_send_deadline: 1s
"
    )
}

/// Returns the only current value of `expression`, or zero if there is none.
fn number(client: &SystemClient, expression: &str) -> f64 {
    let ask = ExpressionRequest::Instant {
        expression: expression.to_owned(),
        time_ms: now_ms(),
    };
    let answer = client.send_query(&ask).unwrap();
    let value = answer["data"]["result"][0]["value"][1].as_str();
    value.map_or(0.0, |v| v.parse().unwrap())
}

fn wait_for_scrapes(client: &SystemClient, log: &Path) {
    let start = Instant::now();
    while number(client, "min(count_over_time(up[10m]))") < SCRAPES {
        assert!(
            start.elapsed() < PATIENCE,
            "no {SCRAPES} scrapes after {PATIENCE:?}; log of the sender:\n{}",
            fs::read_to_string(log).unwrap()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn sender_of_a_real_prometheus_finds_every_sample_in_firn() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("firn.yml"), "scrape_configs: []\n").unwrap();
    let config = format!("--config={}", path("firn.yml").display());
    let firn = Server::start(&path("firn"), &[&config]);

    let [own_port, exporter_port] = free_ports();
    let exporter_args = [format!("--web.listen-address=127.0.0.1:{exporter_port}")];
    let exporter = "prometheus-node-exporter";
    let _exporter = Process::start(exporter, &exporter_args, &path("exporter.log"));
    let config = sender_config(own_port, exporter_port, &firn.address);
    fs::write(path("prometheus.yml"), config).unwrap();
    let sender_args = [
        format!("--config.file={}", path("prometheus.yml").display()),
        format!("--storage.tsdb.path={}", path("sender").display()),
        format!("--web.listen-address=127.0.0.1:{own_port}"),
    ];
    let sender = Process::start("prometheus", &sender_args, &path("sender.log"));

    let client = SystemClient::new(&format!("http://{}", firn.address));
    wait_for_scrapes(&client, &path("sender.log"));
    assert_eq!(
        number(&client, "max(prometheus_remote_storage_shards)"),
        4.0
    );
    sender.stop();

    let dump = Command::new("promtool")
        .args(["tsdb", "dump"])
        .arg(path("sender"))
        .output()
        .expect("promtool is part of the package prometheus");
    assert!(
        dump.status.success(),
        "{}",
        String::from_utf8_lossy(&dump.stderr)
    );
    let stored = from_dump(&String::from_utf8(dump.stdout).unwrap());
    let ask = ExpressionRequest::Instant {
        expression: "{job=~\".+\"}[20m]".to_owned(),
        time_ms: now_ms(),
    };
    let arrived = from_answer(&client.send_query(&ask).unwrap());
    compare(&stored, &arrived);
}

fn compare(stored: &Series, arrived: &Series) {
    let samples = |s: &Series| s.values().map(|samples| samples.len()).sum::<usize>();
    let newest = arrived.values().filter_map(|s| s.last_key_value());
    let newest_ms = *newest.map(|(t, _)| t).max().expect("samples arrived");
    let mut findings = Vec::new();
    for (labels, expected) in stored {
        let actual = arrived.get(labels);
        for (time_ms, value) in expected.range(..newest_ms - IN_FLIGHT_MS) {
            let found = actual.and_then(|a| a.get(time_ms));
            let is_marker = found.is_none() && dump::may_be_marker(expected, *time_ms);
            if found != Some(value) && !is_marker {
                findings.push(format!(
                    "{labels:?} at {time_ms}: stored {value}, found {found:?}"
                ));
            }
        }
    }
    for (labels, actual) in arrived {
        for (time_ms, value) in actual {
            if stored.get(labels).and_then(|s| s.get(time_ms)) != Some(value) {
                findings.push(format!("{labels:?} at {time_ms}: {value} was never stored"));
            }
        }
    }
    println!(
        "{} series, {} samples compared",
        stored.len(),
        samples(stored)
    );
    assert!(stored.len() > 500, "only {} series", stored.len());
    findings.truncate(20);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
