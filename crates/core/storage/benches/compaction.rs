//! Benchmark of compacting a day: memory in addition to that of the idle store, and samples per
//! second of a core.
//!
//! ```text
//! cargo bench -p firn-storage --bench compaction -- [pods] [samples]
//!     default: 266 pods of 376 series, 48 samples in each two hours; 2660 8 is a million series
//! ```
//!
//! A child process writes twelve blocks of two hours, and one of a single series after the end of
//! the window of 32 hours. Another process opens the folder and ticks until they are one block, so
//! each sample is merged twice. The benchmark prints figures without a verdict.

// Batches are only used by the benchmarks that append.
#[allow(dead_code)]
mod fleet;

use firn_model::env::{Env, real};
use firn_model::sample::TimeRange;
use firn_storage::block::{BlockId, BlockSpec, BlockWriter, compare_block_order};
use firn_storage::page::SampleColumns;
use firn_storage::store::{Store, StoreOptions, StoreSyncMode};
use fleet::{Member, fleet, peak_bytes, resident_bytes, value};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const HOUR_MS: i64 = 3_600_000;
const BLOCK_MS: i64 = 2 * HOUR_MS;
const BLOCKS: usize = 12;

/// The start of a window of 32 hours.
const START_MS: i64 = 15_312 * 32 * HOUR_MS;

/// Number of merges of each sample: into a block of eight hours, and into one of 32.
const MERGES: usize = 2;

fn options(dir: &Path) -> StoreOptions {
    StoreOptions {
        sync: StoreSyncMode::None,
        ..StoreOptions::new(dir)
    }
}

/// Writes the block that begins at `start`, with `samples` samples of each series.
fn write(env: &Env, dir: &Path, series: &[(usize, &Member)], start: i64, samples: usize) {
    let id = BlockId::new(start + BLOCK_MS, 1);
    let source = BlockSpec {
        id,
        is_late: false,
        level: 1,
        sources: vec![id],
        range: Some(TimeRange::new(start, start + BLOCK_MS - 1)),
    };
    let folder = dir.join("blocks").join(id.to_string());
    let mut writer = BlockWriter::create(env, &folder, source).expect("the folder can be made");
    let interval = BLOCK_MS / samples as i64;
    let before = ((start - START_MS) / interval) as usize;
    let mut columns = SampleColumns::default();
    for (number, member) in series {
        columns.clear();
        let late = (number / 376 * 37) as i64 % interval;
        for i in 0..samples {
            columns.times.push(start + i as i64 * interval + late);
            columns.values.push(value(member, *number, before + i));
        }
        let pushed = writer.push(member.labels.as_ref(), &columns);
        pushed.expect("the folder can be written");
    }
    writer.finish().expect("the folder can be written");
}

fn fill(dir: &Path, pods: usize, samples: usize) {
    let env = real::system_env().expect("threads can be started");
    let store = Store::open(env.clone(), options(dir)).expect("the folder can be opened");
    store.close().expect("the folder can be written");
    drop(store);
    let fleet = fleet(pods);
    let mut series: Vec<(usize, &Member)> = fleet.iter().enumerate().collect();
    series.sort_by(|a, b| compare_block_order(a.1.labels.as_ref(), b.1.labels.as_ref()));
    for block in 0..BLOCKS {
        let start = START_MS + block as i64 * BLOCK_MS;
        write(&env, dir, &series, start, samples);
    }
    write(&env, dir, &series[..1], START_MS + 15 * BLOCK_MS, 1);
}

/// Returns the CPU time of all threads.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn compact(dir: &Path, samples: usize) {
    let env = real::system_env().expect("threads can be started");
    let store = Store::open(env, options(dir)).expect("the folder can be opened");
    let idle = resident_bytes();
    peak_bytes();
    let (start, cpu_before) = (Instant::now(), cpu());
    while store.block_stats().blocks.len() > 1 {
        store.tick();
        std::thread::sleep(Duration::from_millis(1));
    }
    let (took, cpu) = (start.elapsed(), cpu() - cpu_before);
    let (peak, stats) = (peak_bytes(), store.block_stats());
    let merged = samples * MERGES;
    let _ = writeln!(
        std::io::stdout(),
        "{} series, {samples} samples, {} bytes: {took:.2?}, {cpu:.2?} of CPU, {:.1} M samples a \
         second and core; {} MB idle, {} MB above that at most",
        stats.blocks[0].series,
        stats.blocks[0].bytes,
        merged as f64 / cpu.as_secs_f64() / 1e6,
        idle >> 20,
        peak.saturating_sub(idle) >> 20,
    );
}

fn main() {
    let said = |word: &str| std::env::args().any(|a| a == word);
    let numbers: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let pods = numbers.first().copied().unwrap_or(266);
    let samples = numbers.get(1).copied().unwrap_or(48);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compaction");
    if said("fill") {
        return fill(&dir, pods, samples);
    }
    if said("compact") {
        return compact(&dir, pods * 376 * samples * BLOCKS);
    }
    let program = std::env::current_exe().expect("this program has a path");
    let run = |what: &str| {
        let numbers = [pods, samples].map(|n| n.to_string());
        let ran = Command::new(&program).arg(what).args(numbers).status();
        ran.expect("this program can be started again");
    };
    let _ = std::fs::remove_dir_all(&dir);
    run("fill");
    run("compact");
    let _ = std::fs::remove_dir_all(&dir);
}
