//! Benchmark of appending native histograms: CPU time of this thread and allocated bytes.
//!
//! ```text
//! cargo bench -p firn-storage --bench histograms -- [series] [rounds]
//!     default: 4,000 series, 60 rounds
//! ```
//!
//! The histograms have 40 integer buckets in two spans and growing counts. As clients send them,
//! they have an unknown counter reset hint. The benchmark prints figures without a verdict.

use firn_model::batch::{Batch, HistogramSample};
use firn_model::env::real;
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use firn_model::labels::Labels;
use firn_model::sample::START_UNKNOWN;
use firn_model::store::{Append, AppendBounds};
use firn_model::tenant::TenantId;
use firn_storage::store::{Store, StoreOptions, StoreSyncMode};
use std::io::Write;
use std::time::Duration;
use tikv_jemalloc_ctl::thread::allocatedp;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const BATCH: usize = 500;
const BUCKETS: usize = 40;
const INTERVAL_MS: i64 = 15_000;
const START_MS: i64 = 1_763_000_000_000;

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn histogram(series: usize, round: usize) -> Histogram {
    let counts = (0..BUCKETS).map(|bucket| (series % 7 + bucket % 5 * round) as i64);
    let counts: Vec<i64> = counts.collect();
    let before = |bucket: usize| bucket.checked_sub(1).map_or(0, |b| counts[b]);
    let deltas = (0..BUCKETS).map(|bucket| counts[bucket] - before(bucket));
    let span = |offset| BucketSpan {
        offset,
        length: BUCKETS as u32 / 2,
    };
    Histogram {
        reset_hint: ResetHint::Unknown,
        schema: 3,
        zero_threshold: 1e-128,
        sum: (series + round) as f64 * 0.37,
        positive_spans: vec![span(-12), span(3)],
        negative_spans: Vec::new(),
        custom_values: Vec::new(),
        counts: HistogramCounts::Integer {
            count: counts.iter().sum::<i64>() as u64,
            zero_count: 0,
            positive: deltas.collect(),
            negative: Vec::new(),
        },
    }
}

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let series = numbers.first().copied().unwrap_or(4_000).max(1);
    let rounds = numbers.get(1).copied().unwrap_or(60).max(1);
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("histograms");
    let _ = std::fs::remove_dir_all(&dir);
    let env = real::system_env().expect("threads can be started");
    let options = StoreOptions {
        sync: StoreSyncMode::None,
        ..StoreOptions::new(&dir)
    };
    let store = Store::open(env, options).expect("the folder can be opened");
    let allocated = allocatedp::read().expect("the allocator counts");
    let (mut spent, mut bytes) = (Duration::ZERO, 0);
    for round in 0..=rounds {
        for first in (0..series).step_by(BATCH) {
            let mut batch = Batch::default();
            for one in first..series.min(first + BATCH) {
                let labels = [("__name__", "h".to_owned()), ("id", one.to_string())];
                let labels = Labels::from_pairs(labels);
                batch.label_bytes().extend_from_slice(labels.as_bytes());
                batch.push_histogram(HistogramSample {
                    time: START_MS + round as i64 * INTERVAL_MS,
                    start_time: START_UNKNOWN,
                    histogram: histogram(one, round),
                });
                batch.end_series();
            }
            let bounds = AppendBounds::up_to(i64::MAX);
            let (began, before) = (cpu(), allocated.get());
            let ticket = store.append(&TenantId::anonymous(), &batch, bounds);
            // The first round creates the series.
            if round > 0 {
                spent += cpu() - began;
                bytes += allocated.get() - before;
            }
            let appended = ticket.wait().expect("the folder can be written");
            assert_eq!(appended.rejected.len(), 0);
        }
    }
    let samples = series * rounds;
    let nanos = spent.as_nanos() as f64 / samples as f64;
    let each = bytes as f64 / samples as f64;
    // A closed pipe needs no more figures.
    let _ = writeln!(
        std::io::stdout(),
        "a histogram of {BUCKETS} buckets: {nanos:.0} ns, {each:.0} bytes allocated"
    );
    drop(store);
    let _ = std::fs::remove_dir_all(&dir);
}
