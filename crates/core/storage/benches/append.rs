//! Benchmark of the store: new series, later samples, sealing, decoding, restart, memory and bytes
//! written.
//!
//! ```text
//! cargo bench -p firn-storage --bench append -- [pods] [samples]     default: 256 pods, 60 samples
//! ```
//!
//! The fleet consists of pods with 376 series each: 11 labels with about 281 bytes, 2,000 samples
//! per batch, most values constant or counting, and labels undecoded as a decoder leaves them. Only
//! the calls into the store are timed, as CPU time of this thread; writes of the WAL and sealing
//! run on other threads, with one tick per round. One figure is the number of samples per second of
//! wall time with two threads that append concurrently. The benchmark prints figures without a
//! verdict. `unjittered` and `with-writes` show the effect of the phases of targets and of
//! background work on the slowest batch.

mod fleet;

use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::SeriesBatch;
use firn_model::env::real;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::metrics::{Collect, MetricSink, MetricValue};
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{Select, SelectRequest, Ticket};
use firn_model::tenant::TenantId;
use firn_storage::store::{SealingThread, Store, StoreOptions, StoreSyncMode};
use fleet::{BATCH, Member, Request, fleet, peak_bytes, resident_bytes};
use std::fmt::Display;
use std::io::Write;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Number of threads that append concurrently for one figure, and the number of rounds that they
/// send.
const THREADS: usize = 2;
const THREAD_ROUNDS: usize = 20;

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sums the counters of bytes written.
#[derive(Default)]
struct Written(f64);

impl MetricSink for Written {
    fn metric(
        &mut self,
        name: &str,
        _help: &str,
        _labels: &[(&str, &str)],
        value: MetricValue<'_>,
    ) {
        if let MetricValue::Counter(bytes) = value
            && name.ends_with("_written_bytes_total")
        {
            line(name, bytes);
            self.0 += bytes;
        }
    }
}

fn line(what: &str, figure: impl Display) {
    // A closed pipe needs no more figures.
    let _ = writeln!(std::io::stdout(), "{what:<34} {figure}");
}

fn nanos(time: Duration, per: usize) -> String {
    format!("{:.1} ns", time.as_nanos() as f64 / per.max(1) as f64)
}

/// Sends one sample of every series. Returns the time spent in the store and the longest time of a
/// batch.
fn round(store: &Arc<Store>, fleet: &[Member], round: usize) -> (Duration, Duration) {
    store.tick();
    let mut longest = Duration::ZERO;
    let mut spent = Duration::ZERO;
    let mut request = Request {
        batch: Batch::default(),
        members: &[],
    };
    for (number, members) in fleet.chunks(BATCH).enumerate() {
        request.fill(members, number * BATCH, round);
        let began = Instant::now();
        let start = cpu();
        let ticket = request.append(store);
        spent += cpu() - start;
        let appended = ticket.wait().expect("the folder can be written");
        longest = longest.max(began.elapsed());
        assert_eq!(appended.stored, members.len());
    }
    (spent, longest)
}

/// Returns the samples per second while `THREADS` threads concurrently append rounds of the fleet.
/// Each thread sends its share of every round and waits until all of it is stored.
fn samples_per_second(store: &Store, fleet: &[Member], rounds: std::ops::Range<usize>) -> f64 {
    let barrier = Barrier::new(THREADS + 1);
    let share = fleet.len().div_ceil(THREADS).next_multiple_of(BATCH);
    let mut spent = Duration::ZERO;
    std::thread::scope(|scope| {
        for (thread, members) in fleet.chunks(share).enumerate() {
            let (barrier, rounds) = (&barrier, rounds.clone());
            scope.spawn(move || {
                for round in rounds {
                    let mut requests = Vec::new();
                    for (number, members) in members.chunks(BATCH).enumerate() {
                        let mut request = Request {
                            batch: Batch::default(),
                            members,
                        };
                        request.fill(members, thread * share + number * BATCH, round);
                        requests.push(request);
                    }
                    barrier.wait();
                    let tickets: Vec<Ticket> =
                        requests.iter_mut().map(|r| r.append(store)).collect();
                    for ticket in tickets {
                        ticket.wait().expect("the folder can be written");
                    }
                    barrier.wait();
                }
            });
        }
        for _ in rounds.clone() {
            barrier.wait();
            let start = Instant::now();
            barrier.wait();
            spent += start.elapsed();
        }
    });
    (rounds.len() * fleet.len()) as f64 / spent.as_secs_f64()
}

fn read_all(store: &Store, matcher: Option<&Matcher>) -> (Duration, Duration, usize) {
    let start = cpu();
    let request = SelectRequest {
        tenant: &TenantId::anonymous(),
        matchers: matcher.map_or(&[], std::slice::from_ref),
        range: TimeRange::ALL,
        newest_only: false,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
        series: &SeriesLimit::unlimited(),
        span: None,
    };
    let selection = store.select(request).expect("nothing cancels");
    let selected = cpu();
    let mut columns = SeriesBatch::default();
    let mut samples = 0;
    for first in (0..selection.len()).step_by(256) {
        columns.clear();
        let last = selection.len().min(first + 256);
        selection
            .read(first..last, &mut columns)
            .expect("chunks are sound");
        samples += columns.sample_count();
    }
    (selected - start, cpu() - selected, samples)
}

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let pods = numbers.first().copied().unwrap_or(256);
    let rounds = numbers.get(1).copied().unwrap_or(60);
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("append");
    let _ = std::fs::remove_dir_all(&dir);
    let env = real::system_env().expect("threads can be started");
    let said = |word: &str| std::env::args().any(|a| a == word);
    let options = StoreOptions {
        sync: StoreSyncMode::None,
        is_jittered: !said("unjittered"),
        sealing: if said("with-writes") {
            SealingThread::WithWrites
        } else {
            SealingThread::Background
        },
        ..StoreOptions::new(&dir)
    };
    let fleet = fleet(pods);
    let label_bytes: usize = fleet.iter().map(|m| m.labels.as_bytes().len()).sum();
    line("series", fleet.len());
    line("label bytes a series", label_bytes / fleet.len());
    let store = Store::open(env.clone(), options.clone()).expect("the folder can be opened");
    round(&store, &fleet[..1], 0);
    let before = resident_bytes();
    let (created, _) = round(&store, &fleet[1..], 1);
    line("creation with a first sample", nanos(created, fleet.len()));
    let (mut later, mut longest) = (Duration::ZERO, Duration::ZERO);
    let mut best = Duration::MAX;
    for number in 2..=rounds {
        let (spent, slowest) = round(&store, &fleet, number);
        later += spent;
        best = best.min(spent);
        longest = longest.max(slowest);
    }
    line("later sample", nanos(later, (rounds - 1) * fleet.len()));
    // Rounds slower than the best were slowed down by the machine or by concurrent sealing.
    line("later sample, best round", nanos(best, fleet.len()));
    line("slowest batch", format!("{longest:.1?}"));
    let held = resident_bytes().saturating_sub(before);
    line("resident bytes a series", held / fleet.len());
    line(
        "resident bytes a sample",
        format!("{:.2}", held as f64 / (rounds * fleet.len()) as f64),
    );
    line("peak resident bytes", peak_bytes());
    let threads = samples_per_second(&store, &fleet, rounds + 1..rounds + 1 + THREAD_ROUNDS);
    line(
        "two threads, samples a second",
        format!("{:.1} M", threads / 1e6),
    );
    read_figures(&store);
    let samples = (rounds + THREAD_ROUNDS) * fleet.len();
    restart(store, &env, &options, samples);
    let _ = std::fs::remove_dir_all(&dir);
}

fn read_figures(store: &Store) {
    let name = b"http_server_request_duration_seconds_7";
    let one = Matcher::new("__name__", MatchOp::Equal, name).expect("not a regex");
    for (what, matcher) in [("one metric", Some(&one)), ("everything", None)] {
        let (select, read, samples) = read_all(store, matcher);
        line(&format!("select {what}"), format!("{select:.1?}"));
        line(&format!("read {what}, a sample"), nanos(read, samples));
    }
}

/// Drops the store like a process that ends without a clean stop.
fn restart(store: Arc<Store>, env: &firn_model::env::Env, options: &StoreOptions, samples: usize) {
    let series = store.stats(0).series;
    let mut written = Written::default();
    store.collect(&mut written);
    line(
        "bytes written a sample",
        format!("{:.2}", written.0 / samples as f64),
    );
    drop(store);
    peak_bytes();
    let start = Instant::now();
    let store = Store::open(env.clone(), options.clone()).expect("the folder can be opened");
    line(
        "open without a clean stop",
        format!("{:.2?}", start.elapsed()),
    );
    line("peak resident bytes of open", peak_bytes());
    line("resident bytes after open", resident_bytes());
    assert_eq!(store.stats(0).series, series);
    let start = Instant::now();
    store.close().expect("the folder can be written");
    line("clean stop", format!("{:.2?}", start.elapsed()));
    drop(store);
    let start = Instant::now();
    let store = Store::open(env.clone(), options.clone()).expect("the folder can be opened");
    line(
        "open after a clean stop",
        format!("{:.2?}", start.elapsed()),
    );
    assert_eq!(store.stats(0).series, series);
}
