//! The stored data, and a sender that continues it during all scenarios.

use crate::PATIENCE;
use crate::harness::http::Http;
use crate::harness::server::Server;
use crate::harness::write::{Series, body};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Samples per series, and milliseconds between two of them.
const SAMPLES: i64 = 4;
pub const INTERVAL_MS: i64 = 15_000;

/// Number of metrics that the series belong to.
pub const METRICS: usize = 100;

/// Series per request.
const BATCH: usize = 2_000;

/// The data stored first.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub series: usize,
    pub oldest_ms: i64,
    pub newest_ms: i64,
}

/// Returns the current time in milliseconds since 1970.
pub fn now_ms() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    now.as_millis() as i64
}

fn one(number: usize, samples: &[(i64, f64)]) -> Series {
    let metric = format!("load_{}", number % METRICS);
    let (pod, zone) = (
        format!("pod-{:06}", number / METRICS),
        format!("zone-{}", number % 7),
    );
    let path = format!("/api/v1/things/{number:07}/of/some/length");
    let labels = [
        ("__name__", metric.as_str()),
        ("instance", "10.0.0.1:9100"),
        ("path", path.as_str()),
        ("pod", pod.as_str()),
        ("zone", zone.as_str()),
    ];
    Series::new(&labels, samples)
}

/// Returns a value that is unique to one sample.
fn value(number: usize, sample: i64) -> f64 {
    number as f64 + sample as f64 / 16.0
}

/// Stores `series` series with unique values.
pub fn load(http: &Http, series: usize) -> Load {
    let load = Load {
        series,
        oldest_ms: now_ms() - SAMPLES * INTERVAL_MS,
        newest_ms: now_ms() - INTERVAL_MS,
    };
    for start in (0..series).step_by(BATCH) {
        let all = (start..series.min(start + BATCH)).map(|number| {
            let sample = |i| (load.oldest_ms + i * INTERVAL_MS, value(number, i));
            one(number, &(0..SAMPLES).map(sample).collect::<Vec<_>>())
        });
        let answer = http.write(&body(&all.collect::<Vec<_>>()));
        assert_eq!(answer.status, 204, "{}", answer.body);
    }
    load
}

/// Outcome of the pushes.
#[derive(Debug, Default)]
pub struct Pushed {
    pub count: usize,
    /// Number of accepted new series.
    pub new_series: usize,
    /// Answers to rejected pushes.
    pub refused: Vec<String>,
    pub longest: Duration,
}

/// Pushes new samples of some series, and one new series.
fn push(http: &Http, load: Load, pushed: &mut Pushed) {
    let now = now_ms();
    let known: Vec<Series> = (0..load.series.min(BATCH / 4))
        .map(|number| one(number, &[(now, value(number, SAMPLES))]))
        .collect();
    let start = Instant::now();
    let answer = http.write(&body(&known));
    pushed.longest = pushed.longest.max(start.elapsed());
    if answer.status != 204 {
        pushed.refused.push(format!("{answer:?}"));
    }
    let name = format!("new_{}", pushed.count);
    let answer = http.write(&body(&[Series::new(&[("__name__", &name)], &[(now, 1.0)])]));
    // Series with large labels may have filled the head.
    match answer.status {
        204 => pushed.new_series += 1,
        400 if answer.body.contains("limit") => {}
        _ => pushed.refused.push(format!("{answer:?}")),
    }
    pushed.count += 1;
}

/// A sender that pushes until it is stopped.
pub struct Sender {
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<Pushed>,
}

impl Sender {
    /// Starts to send new samples of some series, and a new series with each push.
    pub fn start(server: &Server, load: Load) -> Sender {
        let stopping = Arc::new(AtomicBool::new(false));
        let (told, http) = (stopping.clone(), Http::patient(&server.address, PATIENCE));
        let thread = std::thread::spawn(move || {
            let mut pushed = Pushed::default();
            while !told.load(Ordering::Relaxed) {
                push(&http, load, &mut pushed);
                std::thread::sleep(Duration::from_millis(100));
            }
            pushed
        });
        Sender { stopping, thread }
    }

    /// Stops the sender and returns the outcome.
    pub fn stop(self) -> Pushed {
        self.stopping.store(true, Ordering::Relaxed);
        self.thread.join().expect("the sender does not panic")
    }
}
