//! The samples that a writer sent, with their fates, and the comparison with the answers of nodes.
//!
//! Several threads use a ledger while a cluster fails over. Invariant of the comparison: an answer
//! contains every sample that was acknowledged, or shown to a reader, before its request was sent.

use super::http::Http;
use super::server::{Server, wait_for};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard};

/// Maximum number of findings that are kept as text.
const TEXTS_MAX: usize = 20;

/// The time of a sample in milliseconds, and the number of its series.
pub type SampleKey = (i64, u64);

/// The history of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SampleFate {
    /// A request with the sample was sent. It may be stored or not.
    Sent,
    /// A node answered a query with it, so that it must not disappear.
    Seen,
    /// A node answered the write with 204.
    Acked,
}

#[derive(Clone, Copy, Debug)]
struct LedgerEntry {
    value: f64,
    fate: SampleFate,
}

/// The samples of one writer.
pub struct SampleLedger {
    writer: usize,
    entries: Mutex<BTreeMap<SampleKey, LedgerEntry>>,
}

/// Differences between answers and ledgers, counted by kind.
#[derive(Default)]
pub struct Findings(Mutex<FoundDifferences>);

#[derive(Default)]
struct FoundDifferences {
    counts: BTreeMap<&'static str, u64>,
    texts: Vec<String>,
}

impl Findings {
    /// Adds a difference.
    pub fn add(&self, kind: &'static str, text: &str) {
        let mut found = self.0.lock().unwrap();
        *found.counts.entry(kind).or_default() += 1;
        if found.texts.len() < TEXTS_MAX {
            found.texts.push(format!("{kind}: {text}"));
        }
    }

    /// Panics if there is any difference.
    pub fn assert_none(&self, when: &str) {
        let is_empty = self.0.lock().unwrap().counts.is_empty();
        assert!(is_empty, "{when}: {self}");
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALWAYS: [&str; 4] = ["lost", "duplicated", "altered", "incomplete"];
        let found = self.0.lock().unwrap();
        let count = |kind: &str| found.counts.get(kind).copied().unwrap_or(0);
        let always = ALWAYS.map(|kind| format!("{kind} {}", count(kind)));
        write!(f, "{}", always.join(", "))?;
        for (kind, count) in found
            .counts
            .iter()
            .filter(|(kind, _)| !ALWAYS.contains(kind))
        {
            write!(f, ", {kind} {count}")?;
        }
        found
            .texts
            .iter()
            .try_for_each(|text| write!(f, "\n{text}"))
    }
}

impl SampleLedger {
    /// Creates the empty ledger of the writer with this number.
    pub fn new(writer: usize) -> Self {
        Self {
            writer,
            entries: Mutex::default(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<SampleKey, LedgerEntry>> {
        self.entries.lock().unwrap()
    }

    /// Adds samples that are about to be sent.
    pub fn note_sent(&self, samples: &[(SampleKey, f64)]) {
        let fate = SampleFate::Sent;
        let entries = samples.iter();
        let entries = entries.map(|(key, value)| {
            (
                *key,
                LedgerEntry {
                    value: *value,
                    fate,
                },
            )
        });
        self.entries().extend(entries);
    }

    /// Notes that a node acknowledged samples.
    pub fn note_acked(&self, samples: &[(SampleKey, f64)]) {
        let mut entries = self.entries();
        for (key, _) in samples {
            entries.get_mut(key).expect("a sent sample").fate = SampleFate::Acked;
        }
    }

    /// Returns the number of acknowledged samples.
    pub fn acked_count(&self) -> usize {
        let entries = self.entries();
        let acked = entries.values();
        acked.filter(|e| e.fate == SampleFate::Acked).count()
    }

    /// Returns the samples from a time on that must be in every answer from now on.
    fn due_from(&self, from_ms: i64) -> Vec<(SampleKey, LedgerEntry)> {
        let entries = self.entries();
        let from = entries.range((from_ms, 0)..);
        let due = from.filter(|(_, entry)| entry.fate != SampleFate::Sent);
        due.map(|(key, entry)| (*key, *entry)).collect()
    }

    /// Compares the list of series of a node with the samples from `from_ms` on, like
    /// [`SampleLedger::check`].
    pub fn check_series(
        &self,
        http: &Http,
        from_ms: i64,
        missing: &'static str,
        findings: &Findings,
    ) -> u16 {
        let due = self.due_from(from_ms);
        let (Some(((first_ms, _), _)), Some(((last_ms, _), _))) = (due.first(), due.last()) else {
            return 200;
        };
        let (start, end) = (*first_ms as f64 / 1e3, *last_ms as f64 / 1e3);
        let selector = format!("load{{writer=\"{}\"}}", self.writer);
        let (start, end) = (start.to_string(), end.to_string());
        let form = [("match[]", &*selector), ("start", &*start), ("end", &*end)];
        let answer = http.post("/api/v1/series", &form);
        if answer.status != 200 {
            return answer.status;
        }
        let document = answer.json();
        let listed = document["data"].as_array().into_iter().flatten();
        let listed = listed.filter_map(|labels| labels["series"].as_str()?.parse().ok());
        let listed: Vec<u64> = listed.collect();
        let found: BTreeSet<u64> = listed.iter().copied().collect();
        if found.len() < listed.len() {
            findings.add("duplicated", &format!("a list of series: {listed:?}"));
        }
        let expected: BTreeSet<u64> = due.iter().map(|((_, series), _)| *series).collect();
        let absent: Vec<&u64> = expected.difference(&found).collect();
        if !absent.is_empty() {
            let writer = self.writer;
            findings.add(
                missing,
                &format!("writer {writer} series {absent:?} in a list"),
            );
        }
        200
    }

    /// Compares the answer of a node with the samples from `from_ms` on, and returns its status.
    /// Samples that the answer lacks are findings of the kind `missing`. An answer with another
    /// status than 200 is not compared.
    pub fn check(
        &self,
        http: &Http,
        from_ms: i64,
        missing: &'static str,
        findings: &Findings,
    ) -> u16 {
        let due = self.due_from(from_ms);
        let (Some(((first_ms, _), _)), Some(((to_ms, _), _))) = (due.first(), due.last()) else {
            return 200;
        };
        let from_ms = from_ms.max(*first_ms);
        // A range selector excludes its left end.
        let (writer, span_ms) = (self.writer, to_ms - from_ms + 1);
        let expr = format!("load{{writer=\"{writer}\"}}[{span_ms}ms]");
        let time = format!("{}", *to_ms as f64 / 1e3);
        let answer = http.post("/api/v1/query", &[("query", &expr), ("time", &time)]);
        if answer.status != 200 {
            return answer.status;
        }
        let document = answer.json();
        if let Some(warnings) = document.get("warnings") {
            findings.add("warned", &warnings.to_string());
        }
        let mut found = BTreeMap::new();
        let series = document["data"]["result"].as_array();
        for one in series.into_iter().flatten() {
            self.read_series(one, &mut found, findings);
        }
        self.find_missing(&due, &found, missing, findings);
        self.find_altered(&found, findings);
        200
    }

    /// Adds the samples of one series of a matrix to `found`.
    fn read_series(
        &self,
        series: &Value,
        found: &mut BTreeMap<SampleKey, f64>,
        findings: &Findings,
    ) {
        let number = series["metric"]["series"].as_str();
        let number: u64 = number.and_then(|n| n.parse().ok()).expect("a number");
        for pair in series["values"].as_array().into_iter().flatten() {
            let seconds = pair[0].as_f64().expect("a time");
            let value = pair[1].as_str().and_then(|text| text.parse().ok());
            let time = (seconds * 1e3).round() as i64;
            if found
                .insert((time, number), value.expect("a value"))
                .is_some()
            {
                let writer = self.writer;
                let text = format!("writer {writer} series {number} time {time}");
                findings.add("duplicated", &text);
            }
        }
    }

    fn find_missing(
        &self,
        due: &[(SampleKey, LedgerEntry)],
        found: &BTreeMap<SampleKey, f64>,
        missing: &'static str,
        findings: &Findings,
    ) {
        let absent: Vec<_> = due
            .iter()
            .filter(|(key, _)| !found.contains_key(key))
            .collect();
        let series: BTreeSet<u64> = absent.iter().map(|((_, series), _)| *series).collect();
        for ((time, number), entry) in &absent {
            let text = format!(
                "writer {} series {number} time {time}, {:?}; {} of {} samples, of series {series:?}",
                self.writer,
                entry.fate,
                absent.len(),
                due.len(),
            );
            findings.add(missing, &text);
        }
    }

    /// Compares the values, and notes that the samples were seen.
    fn find_altered(&self, found: &BTreeMap<SampleKey, f64>, findings: &Findings) {
        let mut entries = self.entries();
        for (key, value) in found {
            let sample = || format!("writer {} series {} time {}", self.writer, key.1, key.0);
            match entries.get_mut(key) {
                None => findings.add("invented", &sample()),
                Some(entry) if entry.value.to_bits() != value.to_bits() => {
                    let text = format!("{}: {} is {value}", sample(), entry.value);
                    findings.add("altered", &text);
                }
                Some(entry) if entry.fate == SampleFate::Sent => entry.fate = SampleFate::Seen,
                Some(_) => {}
            }
        }
    }
}

/// Compares the answers of all `servers` with all `ledgers`, and repeats requests that are rejected
/// meanwhile. Samples that an answer lacks are findings of the kind `lost`.
pub fn check_everywhere(
    servers: &[&Server],
    ledgers: &[SampleLedger],
    from_ms: i64,
    findings: &Findings,
) {
    for server in servers {
        let http = server.http();
        for ledger in ledgers {
            wait_for("samples", || {
                ledger.check(&http, from_ms, "lost", findings) == 200
            });
            wait_for("series", || {
                ledger.check_series(&http, from_ms, "lost", findings) == 200
            });
        }
    }
}
