//! Scraping of many small targets at the usual interval: its cost, and whether scrapes are missed.
//!
//! ```text
//! 127.1.x.y:port, one address per target -> one stub that counts and serves a page of 100 series
//! start -> all targets seen -> two intervals that are ignored -> measured window
//! ```
//!
//! As on most pages, counters grow with each scrape and gauges remain the same.

use crate::process::Usage;
use crate::stub;
use crate::system::{Running, System};
use firn_mirror::api::{ExpressionRequest, SystemClient};
use firn_mirror::push::now_ms;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of targets, each of which has its own loopback address.
const TARGETS: usize = 2_000;

/// Number of series per page, half of them counters.
const SERIES: usize = 100;

const INTERVAL: Duration = Duration::from_secs(15);

/// Length of the measured window: four scrapes of each target.
const WINDOW: Duration = Duration::from_secs(60);

/// Maximum time until all targets have been scraped once by a system.
const PATIENCE: Duration = Duration::from_secs(120);

/// The results of one system: resource usage and scrapes in the measured window.
#[derive(Clone, Debug)]
pub struct Scraped {
    /// The system and its version, Firn or Prometheus.
    pub system: System,
    /// CPU seconds of the process in the measured window.
    pub cpu_seconds: f64,
    /// Resource usage of the process at the end of the window.
    pub usage: Usage,
    /// Number of scrapes that the stub answered in the window.
    pub scrapes: u64,
    /// Number of scrapes that a window of this length contains.
    pub expected: u64,
    /// Number of samples of `up` that are 0, over the whole run.
    pub failed: f64,
}

impl Scraped {
    /// Returns the CPU nanoseconds per scraped sample in the measured window.
    pub fn cpu_ns_per_sample(&self) -> f64 {
        self.cpu_seconds * 1e9 / (self.scrapes.max(1) as f64 * SERIES as f64)
    }

    /// Returns all figures as JSON, including those that the table leaves out.
    pub fn to_json(&self) -> Value {
        json!({
            "system": self.system.kind.name(),
            "version": self.system.version,
            "targets": TARGETS,
            "series_per_target": SERIES,
            "window_seconds": WINDOW.as_secs_f64(),
            "cpu_seconds": self.cpu_seconds,
            "cpu_ns_per_sample": self.cpu_ns_per_sample(),
            "resident_bytes": self.usage.resident_bytes,
            "peak_bytes": self.usage.peak_bytes,
            "written_bytes": self.usage.written_bytes,
            "scrapes": self.scrapes,
            "scrapes_expected": self.expected,
            "up_0": self.failed,
        })
    }

    /// Returns the row of this system in the Markdown table, with rounded figures.
    pub fn line(&self) -> String {
        format!(
            "| {} | {:.2} | {:.0} | {:.1} | {} of {} | {} |\n",
            self.system.kind.name(),
            self.cpu_seconds / WINDOW.as_secs_f64(),
            self.cpu_ns_per_sample(),
            self.usage.resident_bytes as f64 / 1e6,
            self.scrapes,
            self.expected,
            self.failed
        )
    }
}

/// Returns the heading with the number of targets, and the header rows of the Markdown table.
pub fn head() -> String {
    format!(
        "{TARGETS} targets of {SERIES} series every {} s, for {} s:\n\n| | cores | CPU ns a sample \
         | resident MB | scrapes | `up == 0` |\n|---|---:|---:|---:|---:|---:|\n",
        INTERVAL.as_secs(),
        WINDOW.as_secs()
    )
}

/// Lets `system` scrape all targets, with its data in `dir`, and measures the window.
pub fn run(system: &System, dir: &Path) -> Result<Scraped, String> {
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    let port = stub::start("0.0.0.0:0", move |request| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let target = request.host.len() as u64;
        Some(("text/plain; version=0.0.4", page(number + target)))
    })
    .map_err(|e| format!("listen: {e}"))?;
    let running = system.start_with(dir, &config(port))?;
    wait_for_all(&running)?;
    thread::sleep(2 * INTERVAL);
    let (before, asked_before) = (running.usage()?, asked.load(Ordering::Relaxed));
    let started = Instant::now();
    thread::sleep(WINDOW);
    let usage = running.usage()?;
    let scrapes = asked.load(Ordering::Relaxed) - asked_before;
    let intervals = started.elapsed().as_secs_f64() / INTERVAL.as_secs_f64();
    let failed = number(&running, "sum(count_over_time((up == 0)[10m:1s]))")?;
    running.stop()?;
    Ok(Scraped {
        system: system.clone(),
        cpu_seconds: usage.cpu_seconds - before.cpu_seconds,
        usage,
        scrapes,
        expected: (intervals * TARGETS as f64) as u64,
        failed,
    })
}

/// Returns a page of half counters and half gauges, with names and labels of a common exporter.
fn page(number: u64) -> Vec<u8> {
    let mut page = String::with_capacity(SERIES * 80);
    page.push_str("# TYPE node_cpu_seconds_total counter\n");
    for i in 0..SERIES / 2 {
        let value = number * 7 + i as u64;
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "node_cpu_seconds_total{{cpu=\"{}\",mode=\"mode-{}\"}} {value}.25",
            i / 8,
            i % 8
        );
    }
    page.push_str("# TYPE node_filesystem_size_bytes gauge\n");
    for i in SERIES / 2..SERIES {
        let _ = writeln!(
            page,
            "node_filesystem_size_bytes{{device=\"/dev/disk{i}\",fstype=\"ext4\"}} 1.2e+{}",
            i % 10
        );
    }
    page.into_bytes()
}

fn config(port: u16) -> String {
    let targets: Vec<String> = (0..TARGETS)
        .map(|i| format!("'127.1.{}.{}:{port}'", i / 250, 1 + i % 250))
        .collect();
    format!(
        "global: {{scrape_interval: {}s, scrape_timeout: 10s}}\nscrape_configs:\n- job_name: \
         many\n  static_configs: [{{targets: [{}]}}]\n",
        INTERVAL.as_secs(),
        targets.join(", ")
    )
}

fn wait_for_all(running: &Running) -> Result<(), String> {
    let start = Instant::now();
    while number(running, "count(up == 1)")? < TARGETS as f64 {
        if start.elapsed() > PATIENCE {
            return Err(format!("not all targets are up after {PATIENCE:?}"));
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Returns the current value of an expression with one element; 0 if it has none.
fn number(running: &Running, expression: &str) -> Result<f64, String> {
    let ask = ExpressionRequest::Instant {
        expression: expression.to_owned(),
        time_ms: now_ms(),
    };
    let client = SystemClient::new(&running.url);
    let answer = client.send_query(&ask).map_err(|e| e.to_string())?;
    match answer["data"]["result"][0]["value"][1].as_str() {
        Some(text) => text.parse().map_err(|e| format!("{text}: {e}")),
        None => Ok(0.0),
    }
}
