//! Benchmark of a start after `kill -9`: time, and memory at its peak and afterwards.
//!
//! ```text
//! cargo bench -p firn-storage --bench restart -- [pods] [samples]
//!     default: 2,660 pods (a million series), 8 samples
//! ```
//!
//! One child process fills the store and others open the folder that it left, so that their memory
//! is only that of the store. All of them end without a clean stop. CPU time is that of all
//! threads, which depends less on the load of the machine than wall time. The benchmark prints
//! figures without a verdict.

mod fleet;

use firn_model::env::real;
use firn_storage::store::{Store, StoreOptions, StoreSyncMode};
use fleet::{BATCH, Request, fleet, peak_bytes, resident_bytes};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Number of times that the store is opened.
const ROUNDS: usize = 3;

fn options(dir: &Path) -> StoreOptions {
    StoreOptions {
        sync: StoreSyncMode::None,
        ..StoreOptions::new(dir)
    }
}

/// Fills the store and ends like a killed process.
fn fill(dir: &Path, pods: usize, rounds: usize) {
    let env = real::system_env().expect("threads can be started");
    let store = Store::open(env, options(dir)).expect("the folder can be opened");
    let fleet = fleet(pods);
    for round in 0..rounds {
        for (number, members) in fleet.chunks(BATCH).enumerate() {
            let mut request = Request::default();
            request.fill(members, number * BATCH, round);
            let appended = request.append(&store).wait();
            appended.expect("the folder can be written");
        }
    }
    std::process::abort();
}

/// Returns the CPU time of all threads.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Opens the store and prints the cost.
fn open(dir: &Path) {
    let env = real::system_env().expect("threads can be started");
    peak_bytes();
    let (start, cpu_before) = (Instant::now(), cpu());
    let store = Store::open(env, options(dir)).expect("the folder can be opened");
    let (took, cpu) = (start.elapsed(), cpu() - cpu_before);
    let (peak, after) = (peak_bytes() >> 20, resident_bytes() >> 20);
    let series = store.stats(0).series;
    // A closed pipe needs no more figures.
    let _ = writeln!(
        std::io::stdout(),
        "{series} series: {took:.2?}, {cpu:.2?} of CPU; {peak} MB at most, {after} MB after"
    );
    std::process::abort();
}

fn main() {
    let said = |word: &str| std::env::args().any(|a| a == word);
    let numbers: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let pods = numbers.first().copied().unwrap_or(2_660);
    let rounds = numbers.get(1).copied().unwrap_or(8);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("restart");
    if said("fill") {
        fill(&dir, pods, rounds);
    }
    if said("open") {
        open(&dir);
    }
    let program = std::env::current_exe().expect("this program has a path");
    let run = |what: &str| {
        let numbers = [pods, rounds].map(|n| n.to_string());
        let ran = Command::new(&program).arg(what).args(numbers).status();
        ran.expect("this program can be started again");
    };
    let _ = std::fs::remove_dir_all(&dir);
    run("fill");
    (0..ROUNDS).for_each(|_| run("open"));
    let _ = std::fs::remove_dir_all(&dir);
}
