//! Writers and readers of a cluster while its nodes end, stop and start.
//!
//! Writers send each request to one node after another until one acknowledges it, as senders do.
//! Readers compare the answers of all nodes with the ledgers of the writers.

use super::choices::Choices;
use super::http::Http;
use super::ledger::{Findings, SampleKey, SampleLedger};
use super::write::{Series, body};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Series of each request that exist from the start: enough that all partitions have some.
const OLD_SERIES: u64 = 12;

/// Pause of a writer between two requests, and of a reader.
const PAUSE: Duration = Duration::from_millis(10);

/// The newest samples that readers ask for.
const READ_BACK_MS: i64 = 15_000;

/// The addresses of the nodes that clients use, by the index of the node.
#[derive(Default)]
pub struct NodeDoors(Mutex<BTreeMap<usize, String>>);

impl NodeDoors {
    /// Sends clients to a node, instead of an earlier process of it.
    pub fn open(&self, index: usize, address: &str) {
        self.0.lock().unwrap().insert(index, address.to_owned());
    }

    /// Sends no more clients to a node.
    pub fn close(&self, index: usize) {
        self.0.lock().unwrap().remove(&index);
    }

    fn pick(&self, turn: usize) -> Option<String> {
        let doors = self.0.lock().unwrap();
        doors.values().nth(turn % doors.len().max(1)).cloned()
    }
}

/// Settings of a load.
#[derive(Clone, Copy)]
pub struct LoadOptions {
    /// Number of threads that read.
    pub readers: usize,
    /// The first series that exist in this load only, and their number.
    pub new_series: (u64, u64),
    /// Age of an additional sample of each request that is late, if any.
    pub late_ms: Option<i64>,
    /// Difference in milliseconds of the times of samples from the wall clock.
    pub ahead_ms: i64,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            readers: 2,
            new_series: (OLD_SERIES, 0),
            late_ms: None,
            ahead_ms: 0,
        }
    }
}

/// Counts of the answers to a load.
#[derive(Debug, Default)]
pub struct LoadCounts {
    /// Acknowledged requests with samples.
    pub writes: AtomicU64,
    /// Requests with samples that were rejected with 503 or got no answer.
    pub refused_writes: AtomicU64,
    /// Queries with an answer.
    pub reads: AtomicU64,
    /// Queries that were rejected with 503 or got no answer.
    pub refused_reads: AtomicU64,
    /// The longest time from the first attempt of a request with samples to its acknowledgement.
    slowest_ack_ms: AtomicU64,
}

impl LoadCounts {
    /// Returns the longest time from the first attempt of a write to its acknowledgement.
    pub fn slowest_ack(&self) -> Duration {
        Duration::from_millis(self.slowest_ack_ms.load(Ordering::Relaxed))
    }

    /// Returns the number of acknowledged writes.
    pub fn write_count(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}

impl fmt::Display for LoadCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        write!(
            f,
            "{} writes acked ({} attempts failed), {} reads ({} failed), slowest ack {:?}",
            read(&self.writes),
            read(&self.refused_writes),
            read(&self.reads),
            read(&self.refused_reads),
            self.slowest_ack()
        )
    }
}

/// Parts of a load that all its threads use.
pub struct LoadParts {
    /// One ledger for each writer.
    pub ledgers: Vec<SampleLedger>,
    /// The nodes that the clients use.
    pub doors: NodeDoors,
    /// Differences between the answers and the ledgers.
    pub findings: Findings,
    /// Counts of the answers.
    pub counts: LoadCounts,
}

impl LoadParts {
    /// Creates the parts of a load with a number of writers.
    pub fn new(writers: usize) -> Arc<Self> {
        Arc::new(Self {
            ledgers: (0..writers).map(SampleLedger::new).collect(),
            doors: NodeDoors::default(),
            findings: Findings::default(),
            counts: LoadCounts::default(),
        })
    }

    /// Returns the number of acknowledged samples.
    pub fn acked_count(&self) -> usize {
        self.ledgers.iter().map(SampleLedger::acked_count).sum()
    }
}

/// A load, which ends when it is dropped.
pub struct ClusterLoad {
    is_stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl ClusterLoad {
    /// Starts one writer for each ledger, and readers.
    pub fn start(parts: &Arc<LoadParts>, options: LoadOptions) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let client = |turn| LoadClient {
            parts: parts.clone(),
            options,
            is_stopped: is_stopped.clone(),
            nodes: BTreeMap::new(),
            turn,
        };
        let writers = (0..parts.ledgers.len()).map(|writer| {
            let mut client = client(writer);
            std::thread::spawn(move || client.write(writer))
        });
        let readers = (0..options.readers).map(|reader| {
            let mut client = client(reader);
            std::thread::spawn(move || client.read())
        });
        Self {
            threads: writers.chain(readers).collect(),
            is_stopped: is_stopped.clone(),
        }
    }

    /// Ends the load after the requests under way.
    pub fn stop(mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a client ends");
        }
    }
}

impl Drop for ClusterLoad {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// Returns the time of the wall clock in milliseconds.
pub fn wall_clock_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock after 1970").as_millis() as i64
}

/// A writer or a reader.
struct LoadClient {
    parts: Arc<LoadParts>,
    options: LoadOptions,
    is_stopped: Arc<AtomicBool>,
    nodes: BTreeMap<String, Http>,
    turn: usize,
}

impl LoadClient {
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn now_ms(&self) -> i64 {
        wall_clock_ms() + self.options.ahead_ms
    }

    /// Returns a client of the next node, if there is one.
    fn next_node(&mut self) -> Option<Http> {
        self.turn += 1;
        let address = self.parts.doors.pick(self.turn)?;
        let node = self.nodes.entry(address.clone());
        Some(node.or_insert_with(|| Http::new(&address)).clone())
    }

    fn write(&mut self, writer: usize) {
        let mut time = 0;
        while !self.is_stopped() {
            // Times of samples in order are even.
            time = (self.now_ms() & !1).max(time + 2);
            let samples = self.samples(writer, time);
            let parts = self.parts.clone();
            parts.ledgers[writer].note_sent(&samples);
            let begin = Instant::now();
            if self.send_until_acked(&encode(writer, &samples)) {
                parts.ledgers[writer].note_acked(&samples);
                parts.counts.writes.fetch_add(1, Ordering::Relaxed);
                let ms = begin.elapsed().as_millis() as u64;
                parts.counts.slowest_ack_ms.fetch_max(ms, Ordering::Relaxed);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn samples(&self, writer: usize, time: i64) -> Vec<(SampleKey, f64)> {
        let mut choices = Choices::new(time as u64 ^ (writer as u64) << 56);
        let (first, count) = self.options.new_series;
        let series = (0..OLD_SERIES).chain(first..first + count);
        let mut samples: Vec<_> = series
            .map(|series| ((time, series), choices.value()))
            .collect();
        if let Some(late_ms) = self.options.late_ms {
            // An odd time, which no other sample has.
            let series = choices.below(OLD_SERIES);
            samples.push(((time - (late_ms | 1), series), choices.value()));
        }
        samples
    }

    /// Sends a request to one node after another until one acknowledges it. Returns false if the
    /// load ends before.
    fn send_until_acked(&mut self, body: &[u8]) -> bool {
        loop {
            if let Some(node) = self.next_node() {
                let answer = node.write(body);
                match answer.status {
                    204 => return true,
                    0 => {}
                    503 if !answer.header("retry-after").is_empty() => {}
                    status => {
                        let text = format!("a write has status {status}: {}", answer.body);
                        self.parts.findings.add("failed", &text);
                    }
                }
                let refused = &self.parts.counts.refused_writes;
                refused.fetch_add(1, Ordering::Relaxed);
            }
            if self.is_stopped() {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn read(&mut self) {
        while !self.is_stopped() {
            std::thread::sleep(PAUSE);
            let Some(node) = self.next_node() else {
                continue;
            };
            let parts = &self.parts;
            let ledger = &parts.ledgers[self.turn / 3 % parts.ledgers.len()];
            let from = self.now_ms() - READ_BACK_MS;
            let status = if self.turn.is_multiple_of(4) {
                ledger.check_series(&node, from, "incomplete", &parts.findings)
            } else {
                ledger.check(&node, from, "incomplete", &parts.findings)
            };
            let count = match status {
                200 => &parts.counts.reads,
                0 | 503 => &parts.counts.refused_reads,
                status => {
                    let text = format!("a query has status {status}");
                    parts.findings.add("failed", &text);
                    &parts.counts.refused_reads
                }
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn encode(writer: usize, samples: &[(SampleKey, f64)]) -> Vec<u8> {
    let writer = writer.to_string();
    let series = samples.iter().map(|((time, number), value)| {
        let number = number.to_string();
        let labels = [
            ("__name__", "load"),
            ("series", &*number),
            ("writer", &*writer),
        ];
        Series::new(&labels, &[(*time, *value)])
    });
    body(&series.collect::<Vec<_>>())
}
