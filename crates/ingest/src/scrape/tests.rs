//! A target that comes, changes, fails and goes.

use super::*;
use crate::limits::IngestLimits;
use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::env::sim;
use firn_model::sample::is_stale;
use firn_model::store::{Append, AppendBounds, Appended, Ticket};
use firn_wire::WireLimits;
use std::sync::Mutex;

/// A batch as text: one line a sample, the target's labels left out.
fn lines(batch: &Batch) -> Vec<String> {
    let mut lines = Vec::new();
    for series in batch.iter() {
        let labels = series.labels.to_string();
        let labels = labels
            .replace(", instance=\"here\", job=\"firn\"", "")
            .replace("__name__=", "");
        let (time, value) = (series.times[0], series.values[0]);
        let value = match is_stale(value) {
            true => "stale".to_owned(),
            false => value.to_string(),
        };
        lines.push(format!("{labels} {value}@{time}"));
    }
    lines
}

struct Steps {
    state: ScrapeState,
    time: TimestampMs,
}

impl Steps {
    fn new() -> Self {
        Self {
            state: ScrapeState::new(&Target::itself("here"), WireLimits::default()),
            time: 0,
        }
    }

    /// Scrapes `text`, or nothing at all, and checks the samples and the report behind them.
    fn check(&mut self, text: Option<&str>, wanted: &[&str], report: [u32; 3]) {
        self.time += 10;
        let failure = || Error::new(ErrorKind::Unavailable, "connection refused");
        let fetched = text.map(|t| t.as_bytes().to_vec()).ok_or_else(failure);
        let time = self.time;
        let outcome = self.state.take(fetched, time, Duration::from_millis(500));
        assert_eq!(outcome.is_ok(), report[0] == 1, "{text:?}");
        let [up, scraped, added] = report;
        let mut all: Vec<String> = wanted.iter().map(|w| format!("{w}@{time}")).collect();
        for (name, value) in [
            ("up", f64::from(up)),
            ("scrape_duration_seconds", 0.5),
            ("scrape_samples_scraped", f64::from(scraped)),
            ("scrape_samples_post_metric_relabeling", f64::from(scraped)),
            ("scrape_series_added", f64::from(added)),
        ] {
            all.push(format!("{{\"{name}\"}} {value}@{time}"));
        }
        assert_eq!(lines(self.state.batch()), all, "{text:?}");
    }
}

#[test]
fn scrape_series_that_vanish_are_marked_stale_once() {
    let mut steps = Steps::new();
    steps.check(Some("a 1\nb 2"), &["{\"a\"} 1", "{\"b\"} 2"], [1, 2, 2]);
    steps.check(Some("a 1\n"), &["{\"a\"} 1", "{\"b\"} stale"], [1, 1, 0]);
    steps.check(Some("a 1\n"), &["{\"a\"} 1"], [1, 1, 0]);
    steps.check(Some("b 3\n"), &["{\"b\"} 3", "{\"a\"} stale"], [1, 1, 1]);
    steps.check(None, &["{\"b\"} stale"], [0, 0, 0]);
    steps.check(None, &[], [0, 0, 0]);
    steps.check(Some("b 4"), &["{\"b\"} 4"], [1, 1, 0]);
    steps.check(Some("b 5\nbad line"), &["{\"b\"} stale"], [0, 0, 0]);
}

#[test]
fn scrape_series_with_own_time_are_never_marked() {
    let mut steps = Steps::new();
    let outcome = steps
        .state
        .take(Ok(b"a 1 5\nb 1".to_vec()), 10, Duration::ZERO);
    assert_eq!(outcome, Ok(()));
    assert_eq!(
        lines(steps.state.batch())[..2],
        ["{\"a\"} 1@5", "{\"b\"} 1@10"]
    );
    steps.time = 10;
    steps.check(Some(""), &["{\"b\"} stale"], [1, 0, 0]);
}

#[test]
fn scrape_end_marks_everything_after_the_last_sample() {
    let mut steps = Steps::new();
    steps.state.end(5);
    assert!(steps.state.batch().is_empty());
    steps.check(Some("a 1"), &["{\"a\"} 1"], [1, 1, 1]);
    steps.state.end(10);
    let marked = lines(steps.state.batch());
    assert_eq!(marked[..2], ["{\"a\"} stale@11", "{\"up\"} stale@11"]);
    assert_eq!(marked.len(), 6);
}

/// Keeps every batch as lines of text.
#[derive(Default)]
struct Batches(Mutex<Vec<Vec<String>>>);

impl Append for Batches {
    fn append(&self, _: &TenantId, batch: &Batch, _: AppendBounds) -> Ticket {
        self.0.lock().unwrap().push(lines(batch));
        Ticket::ready(Ok(Appended {
            stored: batch.sample_count(),
            rejected: Vec::new(),
        }))
    }
}

/// Moves its clock by what the fetch takes, and never answers the third time.
struct Exporter {
    clock: Arc<sim::SimClock>,
    calls: Mutex<u32>,
}

impl Fetch for Exporter {
    fn fetch(&self) -> Fetching<'_> {
        Box::pin(async {
            let call = {
                let mut calls = self.calls.lock().unwrap();
                *calls += 1;
                *calls
            };
            if call == 3 {
                std::future::pending::<()>().await;
            }
            // The timer is a millisecond late from the second scrape on.
            self.clock.set_ms(i64::from(call) * 5_000 + 1);
            Ok(format!("calls {call}").into_bytes())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn scraper_scrapes_at_once_then_on_schedule_and_marks_at_stop() {
    let clock = Arc::new(sim::SimClock::default());
    clock.set_ms(0);
    let batches = Arc::new(Batches::default());
    let memory = Budget::new("process", 1 << 30);
    let pipeline = Pipeline::new(
        batches.clone(),
        clock.clone(),
        IngestLimits::default(),
        &memory,
    );
    let pipeline = Arc::new(pipeline);
    let exporter = Exporter {
        clock: clock.clone(),
        calls: Mutex::new(0),
    };
    let target = Target::itself("here");
    let scraper = Scraper::start(target, Arc::new(exporter), pipeline.clone(), clock.clone());
    tokio::time::sleep(Duration::from_secs(19)).await;
    scraper.stop().await;
    let firsts: Vec<String> = batches
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|b| b[0].clone())
        .collect();
    let wanted = [
        "{\"calls\"} 1@0",
        "{\"calls\"} 2@5000",
        "{\"calls\"} stale@10000",
        "{\"calls\"} 4@10000",
        "{\"calls\"} stale@20001",
    ];
    assert_eq!(firsts, wanted);
    let metrics = pipeline.metrics();
    assert_eq!(metrics.scrapes_succeeded.get(), 3);
    assert_eq!(metrics.scrapes_failed.get(), 1);
    assert_eq!(metrics.scrape_targets.get(), 0);
}
