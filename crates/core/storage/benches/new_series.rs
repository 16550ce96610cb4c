//! Benchmark of creating series: new series with their first sample, and evicted series that
//! return.
//!
//! ```text
//! cargo bench -p firn-storage --bench new_series -- [pods] [senders]
//!     default: 2,660 pods (a million series), 4 senders
//! ```
//!
//! The fleet is that of the other benchmarks, distributed to senders one series after the other, as
//! real senders do. Labels are undecoded as a decoder leaves them. Only the calls into the store
//! are timed, as CPU time of this thread. The benchmark prints figures without a verdict.

mod fleet;

use firn_model::env::real;
use firn_storage::store::{Store, StoreOptions, StoreSyncMode};
use fleet::{BATCH, Member, Request, fleet, peak_bytes, resident_bytes};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Number of rounds of 15 s after which a silent series has been evicted: more than an hour.
const SILENCE: usize = 400;

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sends one sample of every series and prints the cost.
fn send(what: &str, store: &Arc<Store>, fleet: &[Member], round: usize) {
    let mut spent = Duration::ZERO;
    let mut waits = Vec::new();
    let mut request = Request::default();
    for (number, members) in fleet.chunks(BATCH).enumerate() {
        request.fill(members, number * BATCH, round);
        let (began, before) = (Instant::now(), cpu());
        let ticket = request.append(store);
        spent += cpu() - before;
        waits.push(began.elapsed());
        let appended = ticket.wait().expect("the folder can be written");
        assert_eq!(appended.stored, members.len());
    }
    waits.sort_unstable();
    let nanos = spent.as_nanos() as f64 / fleet.len().max(1) as f64;
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    // A closed pipe needs no more figures.
    let _ = writeln!(
        std::io::stdout(),
        "{what:<26} {nanos:.0} ns; a batch {median:.1?}, the longest {longest:.1?}; {} MB, {} at most",
        resident_bytes() >> 20,
        peak_bytes() >> 20
    );
}

/// Distributes the series to senders, whose requests take turns.
fn deal(fleet: Vec<Member>, senders: usize) -> Vec<Member> {
    let mut queues: Vec<Vec<Member>> = (0..senders).map(|_| Vec::new()).collect();
    let mut dealt = Vec::with_capacity(fleet.len());
    for (i, member) in fleet.into_iter().enumerate() {
        let queue = &mut queues[i % senders];
        queue.push(member);
        if queue.len() == BATCH {
            dealt.append(queue);
        }
    }
    dealt.extend(queues.into_iter().flatten());
    dealt
}

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let pods = numbers.first().copied().unwrap_or(2_660);
    let senders = numbers.get(1).copied().unwrap_or(4).max(1);
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-series");
    let _ = std::fs::remove_dir_all(&dir);
    let env = real::system_env().expect("threads can be started");
    let options = StoreOptions {
        sync: StoreSyncMode::None,
        ..StoreOptions::new(&dir)
    };
    let fleet = deal(fleet(pods), senders);
    let store = Store::open(env, options).expect("the folder can be opened");
    send("creation with a first sample", &store, &fleet, 0);
    send("second sample", &store, &fleet, 1);
    let (silent, lively) = fleet.split_at(fleet.len() / 2);
    let mut round = 1;
    // Sealing and the sweep progress with data time.
    while store.stats(0).series > lively.len() as u64 && round < 4 * SILENCE {
        round += SILENCE / 40;
        let mut request = Request::default();
        request.fill(&lively[..1], silent.len(), round);
        let stored = request.append(&store).wait();
        stored.expect("the folder can be written");
        store.tick();
        std::thread::sleep(Duration::from_millis(20));
    }
    send("sample of a returning series", &store, silent, round + 1);
    drop(store);
    let _ = std::fs::remove_dir_all(&dir);
}
