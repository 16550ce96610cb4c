//! Journal of the answers that a writer received, and the check of the stored samples.

use crate::harness::http::Http;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Maximum number of reported findings.
const FINDINGS_MAX: usize = 20;

/// Outcome of writing a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// The server answered with 204.
    Acked,
    /// The server died before it answered.
    Unknown,
}

/// Journal of one writer. Series have numbers.
pub struct Journal {
    /// Number of the writer, which is its label.
    pub writer: usize,
    /// Value and fate by time and series.
    samples: BTreeMap<(i64, u64), (f64, Fate)>,
    clock: DataClock,
    /// Time of the newest request.
    last_time: i64,
    round_start: i64,
}

/// Shared data time of all writers: each request takes the next step, so that no writer is far
/// behind.
#[derive(Clone)]
pub struct DataClock {
    next: Arc<AtomicI64>,
    step_ms: i64,
}

impl DataClock {
    /// Creates a clock whose first step is `first_time`.
    pub fn new(first_time: i64, step_ms: i64) -> Self {
        Self {
            next: Arc::new(AtomicI64::new(first_time)),
            step_ms,
        }
    }

    /// Returns the next time, which is unique to one request.
    pub fn tick(&self) -> i64 {
        self.next.fetch_add(self.step_ms, Ordering::Relaxed)
    }

    /// Returns the time of the next step.
    pub fn now(&self) -> i64 {
        self.next.load(Ordering::Relaxed)
    }
}

impl Journal {
    /// Creates one empty journal per writer.
    pub fn for_writers(count: usize, clock: &DataClock) -> Vec<Journal> {
        let journal = |writer| Journal {
            writer,
            samples: BTreeMap::new(),
            clock: clock.clone(),
            last_time: clock.now(),
            round_start: clock.now(),
        };
        (0..count).map(journal).collect()
    }

    /// Starts a round: checks that are not full cover only samples from here on.
    pub fn start_round(&mut self) {
        self.round_start = self.clock.now();
    }

    /// Returns the time of the next request.
    pub fn tick(&mut self) -> i64 {
        self.last_time = self.clock.tick();
        self.last_time
    }

    /// Returns the number of acknowledged samples.
    pub fn acked_count(&self) -> usize {
        self.samples
            .values()
            .filter(|(_, fate)| *fate == Fate::Acked)
            .count()
    }

    /// Records the samples of a request, each with time, series and value.
    pub fn note(&mut self, samples: &[((i64, u64), f64)], is_acked: bool) {
        let fate = if is_acked { Fate::Acked } else { Fate::Unknown };
        for (key, value) in samples {
            self.samples.insert(*key, (*value, fate));
        }
    }

    /// Compares the stored samples with the journal and returns the differences.
    pub fn check(&mut self, http: &Http, is_full: bool) -> Vec<String> {
        let first = self
            .samples
            .keys()
            .next()
            .map_or(self.last_time, |(time, _)| *time);
        let start = if is_full { first } else { self.round_start };
        if self.last_time < start {
            return Vec::new();
        }
        // A range selector excludes its left end.
        let span_ms = self.last_time - start + 1;
        let expr = format!("crash{{writer=\"{}\"}}[{span_ms}ms]", self.writer);
        let result = http.query(&expr, self.last_time);
        let mut findings = Vec::new();
        let mut found = BTreeMap::new();
        for series in result.as_array().into_iter().flatten() {
            read_series(series, &mut found, &mut findings);
        }
        self.compare(start, &found, &mut findings);
        findings.truncate(FINDINGS_MAX);
        findings
    }

    fn compare(
        &mut self,
        start: i64,
        found: &BTreeMap<(i64, u64), f64>,
        findings: &mut Vec<String>,
    ) {
        let writer = self.writer;
        for (key, (value, fate)) in self.samples.range_mut((start, 0)..) {
            let (time, series) = key;
            match found.get(key) {
                Some(there) if there.to_bits() == value.to_bits() => {
                    // The sample was visible to a reader, so that it must not disappear.
                    *fate = Fate::Acked;
                }
                Some(there) => findings.push(format!(
                    "altered writer {writer} series {series} time {time}: {value} is {there}"
                )),
                None if *fate == Fate::Acked => findings.push(format!(
                    "lost writer {writer} series {series} time {time}: {value}"
                )),
                None => {}
            }
        }
        for (time, series) in found.keys().filter(|key| !self.samples.contains_key(key)) {
            findings.push(format!(
                "invented writer {writer} series {series} time {time}"
            ));
        }
    }
}

/// Adds the samples of one series of a matrix to `found`.
fn read_series(series: &Value, found: &mut BTreeMap<(i64, u64), f64>, findings: &mut Vec<String>) {
    let number = series["metric"]["series"]
        .as_str()
        .and_then(|text| text.parse::<u64>().ok());
    let number = number.expect("every series is numbered");
    for pair in series["values"].as_array().into_iter().flatten() {
        let seconds = pair[0].as_f64().expect("a time");
        let value = pair[1]
            .as_str()
            .and_then(|text| text.parse::<f64>().ok())
            .expect("a value");
        let time = (seconds * 1000.0).round() as i64;
        if found.insert((time, number), value).is_some() {
            findings.push(format!("twice series {number} time {time}"));
        }
    }
}
