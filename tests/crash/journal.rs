//! What a writer was told is stored, and the check that it is.

use crate::harness::http::Http;
use serde_json::Value;
use std::collections::BTreeMap;

/// Milliseconds between two requests of a writer. 300 rounds of a few hundred requests stay within
/// the hour that the head accepts.
pub const STEP_MS: i64 = 10;

/// Most findings that are worth reading.
const FINDINGS_MAX: usize = 20;

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// The server answered 204.
    Acked,
    /// The server died before it answered.
    Unknown,
}

/// One writer's journal. Series are numbered; each has at most one sample a request.
pub struct Journal {
    /// The writer's number, and its label.
    pub writer: usize,
    /// (time, series) -> value and fate.
    samples: BTreeMap<(i64, u64), (f64, Fate)>,
    /// The time of the next request.
    pub next_time: i64,
    round_start: i64,
}

impl Journal {
    /// Empty journals, one a writer.
    pub fn for_writers(count: usize, first_time: i64) -> Vec<Journal> {
        let journal = |writer| Journal {
            writer,
            samples: BTreeMap::new(),
            next_time: first_time,
            round_start: first_time,
        };
        (0..count).map(journal).collect()
    }

    /// From here on a check that is not full looks at new samples only.
    pub fn start_round(&mut self) {
        self.round_start = self.next_time;
    }

    /// Samples that the server acknowledged.
    pub fn acked_count(&self) -> usize {
        self.samples
            .values()
            .filter(|(_, fate)| *fate == Fate::Acked)
            .count()
    }

    /// Notes the samples of the request at `next_time` and moves on.
    pub fn note(&mut self, samples: &[(u64, f64)], is_acked: bool) {
        let fate = if is_acked { Fate::Acked } else { Fate::Unknown };
        for (series, value) in samples {
            self.samples
                .insert((self.next_time, *series), (*value, fate));
        }
        self.next_time += STEP_MS;
    }

    /// Compares what the server holds with the journal; returns what is wrong.
    pub fn check(&mut self, http: &Http, is_full: bool) -> Vec<String> {
        let first = self
            .samples
            .keys()
            .next()
            .map_or(self.next_time, |(time, _)| *time);
        let start = if is_full { first } else { self.round_start };
        // A range selector leaves out its left end.
        let span_ms = self.next_time - start + 1;
        let expr = format!("crash{{writer=\"{}\"}}[{span_ms}ms]", self.writer);
        let result = http.query(&expr, self.next_time);
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
                    // A reader has seen it: from here on it may not vanish.
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
