//! Benchmark of the WAL.
//!
//! ```text
//! cargo bench -p firn-storage --bench log                 batches on a disk in memory
//! cargo bench -p firn-storage --bench log -- FOLDER       appends and syncs on a real disk
//! ```
//!
//! The batches are those of the fleet of the other benchmarks, with 2,000 rows each. It prints the
//! bytes per row in the segments, and the nanoseconds per row to write and to read.
//!
//! On a real disk, for each sync mode and number of records in flight, it prints records and
//! megabytes per second, the number of records that shared a sync, and the latency from append to
//! acknowledgement. The given folder is created and contains the WAL afterwards.
#![allow(clippy::print_stdout)]

#[path = "log/batches.rs"]
mod batches;
// The other benchmarks use it to measure memory and stores.
#[allow(dead_code)]
mod fleet;

use firn_model::env::{Clock, Env, real, sim};
use firn_model::labels::Labels;
use firn_model::log::{DurableCallbacks, DurableLog, LogBatch, LogPosition};
use firn_storage::log::{LocalLog, LogMetrics, LogOptions, LogSyncMode};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Size of the WAL record of a request with 2,000 samples: about 1.5 bytes per sample.
const PAYLOAD_BYTES: usize = 3_000;

/// Duration of each measurement.
const RUN: Duration = Duration::from_secs(3);

/// The number of appended records without an acknowledgement, and the latencies of the acknowledged
/// ones.
#[derive(Default)]
struct Flight {
    state: Mutex<(usize, Vec<Duration>)>,
    landed: Condvar,
}

impl Flight {
    /// Waits until fewer than `limit` records are in flight, and adds one.
    fn take_off(&self, limit: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.0 >= limit {
            let woken = self.landed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.0 += 1;
    }

    fn land(&self, latency: Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 -= 1;
        state.1.push(latency);
        self.landed.notify_one();
    }
}

fn run(env: &Env, dir: &Path, sync: LogSyncMode, in_flight: usize) {
    env.disk.create_dir_all(dir).expect("create the folder");
    let options = LogOptions {
        sync,
        ..LogOptions::default()
    };
    let metrics = Arc::new(LogMetrics::default());
    let log = LocalLog::open(env, dir, options, metrics.clone()).expect("open the log");
    let flight = Arc::new(Flight::default());
    let mut batch = LogBatch::default();
    let labels = Labels::from_pairs([("payload", "7".repeat(PAYLOAD_BYTES))]);
    batch.created.push(0, labels.as_ref());
    let start = env.clock.monotonic();
    while env.clock.monotonic() - start < RUN {
        flight.take_off(in_flight);
        append(&log, &batch, env.clock.clone(), flight.clone());
    }
    log.close().expect("close the log");
    let took = (env.clock.monotonic() - start).as_secs_f64();
    let mut state = flight.state.lock().unwrap_or_else(PoisonError::into_inner);
    state.1.sort();
    let latencies = &state.1;
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    let records = metrics.records.get() as f64;
    println!(
        "{:<18} {in_flight:>4} in flight {:>9.0} records/s {:>7.1} MB/s {:>6.1} records/group  \
         p50 {:>9.1?} p99 {:>9.1?} max {:>9.1?}",
        format!("{sync:?}"),
        records / took,
        metrics.written_bytes.get() as f64 / took / 1e6,
        records / metrics.groups.get() as f64,
        at(0.5),
        at(0.99),
        at(1.0),
    );
    let next = log.positions().last.next();
    log.trim(next).expect("remove full segments");
}

fn append(log: &LocalLog, batch: &LogBatch, clock: Arc<dyn Clock>, flight: Arc<Flight>) {
    let begun = clock.monotonic();
    log.append(
        batch.clone(),
        DurableCallbacks::new(move |outcome| {
            outcome.expect("the disk is sound");
            flight.land(clock.monotonic() - begun);
        }),
    );
}

/// Writes `batches` to a WAL in memory and reads them. Prints the cost of each of their `rows`
/// rows.
fn cost(batches: Vec<LogBatch>, rows: usize) {
    let sim = sim::sim_env(1);
    let (dir, metrics) = (Path::new("wal"), Arc::new(LogMetrics::default()));
    sim.env.disk.create_dir_all(dir).expect("the disk is new");
    let options = LogOptions {
        sync: LogSyncMode::None,
        ..LogOptions::default()
    };
    let log = LocalLog::open(&sim.env, dir, options, metrics.clone()).expect("open the log");
    let begun = Instant::now();
    for batch in batches {
        let done = DurableCallbacks::new(|outcome| {
            outcome.expect("the disk is sound");
        });
        log.append(batch, done);
    }
    let written = begun.elapsed();
    let begun = Instant::now();
    let mut tail = log.read_from(LogPosition(0));
    while let Some(record) = tail.next().expect("the disk is sound") {
        record.expect("the disk is sound");
    }
    let read = begun.elapsed();
    let ns = |time: Duration| time.as_nanos() as f64 / rows as f64;
    println!(
        "{:>6.3} bytes/row  write {:>5.1} ns/row  read {:>5.1} ns/row",
        metrics.written_bytes.get() as f64 / rows as f64,
        ns(written),
        ns(read),
    );
}

/// Measures the cost of the batches several times.
fn cost_of_batches() {
    let (batches, rows) = batches::batches();
    for _ in 0..3 {
        cost(batches.clone(), rows);
    }
}

fn main() {
    // Cargo itself passes `--bench`.
    let folder = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let Some(dir) = folder.map(PathBuf::from) else {
        return cost_of_batches();
    };
    let env = real::system_env().expect("start the threads");
    let interval = LogSyncMode::Interval(Duration::from_millis(200));
    for sync in [LogSyncMode::Always, interval, LogSyncMode::None] {
        for in_flight in [1, 16, 256] {
            run(&env, &dir, sync, in_flight);
        }
    }
}
