//! Tests of a store whose log is elsewhere: a store on the same log and an empty folder has
//! everything that was acked.

mod home;
mod memory_home;
mod memory_log;

use super::exemplars::{add_exemplars, all as all_exemplars};
use super::*;
use crate::seeds::seeds;
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::error::ErrorKind;
use firn_model::fingerprint::{FingerprintSeed, HashKind};
use firn_model::histogram::Histogram;
use firn_model::log::{JournalMark, JournalRecord};
use memory_log::RecordShelf;
use std::collections::BTreeMap;
use std::path::Path;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// Number of random histories of an ordinary run.
const SEEDS: u64 = 12;

/// Options with which samples soon are in pages, blocks and late blocks.
fn busy() -> StoreOptions {
    StoreOptions {
        window_ms: 5 * MINUTE,
        cut_ms: 20 * MINUTE,
        lateness_max_ms: 10 * MINUTE,
        late_window_ms: 6 * HOUR,
        exemplars_max: 1_000,
        page_segment_bytes: 4 << 10,
        ..options()
    }
}

fn keys() -> HashKeys {
    HashKeys::from_seed(HashKind::Nh, FingerprintSeed([5, 6]))
}

fn try_open(sim: &SimEnv, shelf: &RecordShelf, options: StoreOptions) -> Result<Arc<Store>, Error> {
    Store::open_with_log(sim.env.clone(), options, Box::new(shelf.open()), keys())
}

fn open_on(sim: &SimEnv, shelf: &RecordShelf, options: StoreOptions) -> Arc<Store> {
    try_open(sim, shelf, options).unwrap()
}

fn tick(store: &Store, times: usize) {
    for _ in 0..times {
        store.tick();
    }
}

/// Returns all samples as text, a line per sample. Hints of histograms depend on the layout.
fn dump(store: &Store) -> Vec<String> {
    let selection = select(store, &[], TimeRange::ALL);
    let mut columns = SeriesBatch::default();
    selection.read(0..selection.len(), &mut columns).unwrap();
    let mut lines = Vec::new();
    for i in 0..selection.len() {
        let series = columns.series(i);
        let name = String::from_utf8_lossy(selection.labels(i).get("__name__")).into_owned();
        for (at, time) in series.times.iter().enumerate() {
            let start = series.start_times.get(at).copied().unwrap_or(0);
            let histogram = series.histograms.iter().find(|(h, _)| *h as usize == at);
            let value = match histogram {
                Some((_, histogram)) => {
                    let mut histogram = Histogram::clone(histogram);
                    histogram.reset_hint = Default::default();
                    format!("{histogram:?}")
                }
                None => format!("{:x}", series.values[at].to_bits()),
            };
            lines.push(format!("{name} {time} {start} {value}"));
        }
    }
    lines.sort();
    lines
}

#[test]
fn everything_acked_is_back_without_the_folder() {
    let shelf = RecordShelf::default();
    let sim = sim::sim_env(1);
    let store = open_on(&sim, &shelf, busy());
    for minute in 0..240 {
        let time = minute * MINUTE;
        let mut sent = batch(&[("a", &[(time, minute as f64)]), ("b", &[(time, 0.5)])]);
        add_exemplars(&mut sent, "b", &[(0.5, time)]);
        assert_eq!(append(&store, &sent, ALWAYS).stored, 2);
        assert_eq!(append(&store, &histogram_at(time), ALWAYS).stored, 1);
        if minute % 16 == 15 {
            let late = time - 14 * MINUTE + 1;
            let sent = batch(&[("a", &[(late, -1.0)]), ("only late", &[(late, 2.0)])]);
            assert_eq!(append(&store, &sent, ALWAYS).stored, 2);
        }
        tick(&store, 2);
    }
    let mut journal = batch(&[("a", &[(240 * MINUTE, 1.0)])]);
    let (mark, bytes) = (JournalMark::Whole, vec![7, 8]);
    journal.set_journal(JournalRecord { mark, bytes });
    append(&store, &journal, ALWAYS);
    let metrics = &store.parts.metrics;
    assert!(metrics.sealed_samples.get() > 400, "samples are in pages");
    assert!(
        metrics.flushed_samples.get() > 10,
        "late samples are in blocks"
    );
    assert!(store.parts.blocks.list().blocks.len() > 2);
    let (before, exemplars) = (dump(&store), all_exemplars(&store));
    assert_eq!(before.len(), 240 * 3 + 1 + 30);
    drop(store);
    // The folder remains in the first case, and is lost in the second one.
    for sim in [sim, sim::sim_env(2)] {
        let store = open_on(&sim, &shelf, busy());
        assert_eq!(dump(&store), before);
        assert_eq!(all_exemplars(&store), exemplars);
        assert_eq!(store.take_journal(), [[7, 8]]);
        assert_eq!(store.damages(), []);
        let hash = store.series_hash().unwrap();
        let key = b"any";
        assert_eq!(hash.keys.fingerprint(key), keys().fingerprint(key));
        tick(&store, 100);
        assert_eq!(dump(&store), before, "after sealing again");
    }
}

#[test]
fn series_that_returns_after_its_samples_went_to_blocks_keeps_them_without_the_folder() {
    let shelf = RecordShelf::default();
    let sim = sim::sim_env(1);
    let store = open_on(&sim, &shelf, busy());
    append(&store, &batch(&[("old", &[(0, 1.0)])]), ALWAYS);
    for minute in 1..400 {
        append(
            &store,
            &batch(&[("new", &[(minute * MINUTE, 1.0)])]),
            ALWAYS,
        );
        tick(&store, 4);
    }
    assert_eq!(store.stats(0).series, 1, "the old series left the head");
    append(&store, &batch(&[("old", &[(400 * MINUTE, 2.0)])]), ALWAYS);
    let before = dump(&store);
    assert_eq!(before.len(), 401);
    drop(store);
    let store = open_on(&sim::sim_env(2), &shelf, busy());
    assert_eq!(dump(&store), before);
}

#[test]
fn log_that_keeps_its_records_refuses_no_write_for_their_number() {
    let shelf = RecordShelf::default();
    let sim = sim::sim_env(1);
    let small = StoreOptions {
        backlog_bytes_max: 2_000,
        ..busy()
    };
    let store = open_on(&sim, &shelf, small.clone());
    for minute in 0..400 {
        let sent = batch(&[("a", &[(minute * MINUTE, 1.0)])]);
        assert_eq!(append(&store, &sent, ALWAYS).stored, 1);
        store.tick();
    }
    let pressure = store.parts.log.pressure();
    assert!(pressure.kept_bytes > 4_000, "{pressure:?}");
    assert!(pressure.unsealed_bytes < 2_000, "{pressure:?}");
    // Unsealed records still have a limit. A stopped store seals nothing.
    store.maintenance.stop();
    let refused = (400..4_000).find_map(|minute| {
        let sent = batch(&[("a", &[(minute * MINUTE, 1.0)])]);
        let ticket = store.append(&TenantId::anonymous(), &sent, ALWAYS);
        ticket.wait().err()
    });
    let refused = refused.expect("the backlog is limited");
    assert!(
        refused.message.starts_with("sealing is behind: "),
        "{refused}"
    );
}

#[test]
fn store_that_is_handed_off_or_abandoned_writes_nothing_more() {
    for is_handed_off in [true, false] {
        let shelf = RecordShelf::default();
        let sim = sim::sim_env(1);
        let store = open_on(&sim, &shelf, busy());
        append(&store, &batch(&[("a", &[(1, 1.0)])]), ALWAYS);
        if is_handed_off {
            store.hand_off().unwrap()
        } else {
            store.abandon()
        }
        let written = shelf.records();
        let more = batch(&[("a", &[(2, 2.0)])]);
        let refused = store.append(&TenantId::anonymous(), &more, ALWAYS).wait();
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Unavailable);
        let files = || sim.env.disk.list(Path::new("/data/pages")).unwrap();
        let before = files();
        store.parts.head.newest.store(10 * HOUR, Ordering::Relaxed);
        tick(&store, 20);
        assert_eq!((shelf.records(), files()), (written, before));
        assert_eq!(dump(&store).len(), 1, "it can still be read");
        drop(store);
        let store = open_on(&sim::sim_env(2), &shelf, busy());
        assert_eq!(dump(&store).len(), 1);
        append(&store, &more, ALWAYS);
        store.close().unwrap();
        assert_eq!(shelf.records().len(), 2, "a close keeps the log");
    }
}

#[test]
fn operations_that_need_all_samples_in_the_folder_are_refused() {
    let sim = sim::sim_env(1);
    let store = open_on(&sim, &RecordShelf::default(), busy());
    let check = |refused: Result<(), Error>, operation: &str| {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid);
        let end = "is not supported: the log of this store is not in its data folder";
        assert_eq!(refused.message, format!("{operation} {end}"));
    };
    let name = "20060102T150405Z-0123456789abcdef";
    check(store.snapshot(name, true), "a snapshot");
    check(store.import_target().map(drop), "an import");
}

#[test]
fn folder_with_data_of_its_own_is_never_emptied_and_scratch_is_never_taken_for_data() {
    let sim = sim::sim_env(1);
    let store = open(&sim, busy());
    append(&store, &batch(&[("a", &[(1, 1.0)])]), ALWAYS);
    drop(store);
    let shelf = RecordShelf::default();
    let refused = try_open(&sim, &shelf, busy()).map(drop).unwrap_err();
    let text = "folder /data contains the data of a store with a local log; a store whose log is \
                elsewhere empties its folder, so it needs another one";
    assert_eq!(
        (refused.kind, &*refused.message),
        (ErrorKind::Invalid, text)
    );
    assert_eq!(dump(&open(&sim, busy())).len(), 1);
    let other = || StoreOptions {
        dir: "/scratch".into(),
        ..busy()
    };
    drop(open_on(&sim, &shelf, other()));
    let refused = Store::open(sim.env.clone(), other()).map(drop).unwrap_err();
    let text = "folder /scratch is the scratch folder of a store whose log is elsewhere: its files \
                do not contain all samples";
    assert_eq!(
        (refused.kind, &*refused.message),
        (ErrorKind::Invalid, text)
    );
    sim.env.disk.create_dir_all(Path::new("/other")).unwrap();
    sim.disk.overwrite(Path::new("/other/mine"), b"1");
    let foreign = StoreOptions {
        dir: "/other".into(),
        ..busy()
    };
    let refused = try_open(&sim, &shelf, foreign).map(drop).unwrap_err();
    assert!(refused.message.ends_with("it contains mine"), "{refused}");
}

#[test]
fn scratch_folder_cut_off_by_power_loss_anywhere_opens_afterwards() {
    let shelf = RecordShelf::default();
    let sim = sim::sim_env(1);
    let store = open_on(&sim, &shelf, busy());
    for minute in 0..60 {
        append(&store, &batch(&[("a", &[(minute * MINUTE, 1.0)])]), ALWAYS);
        tick(&store, 4);
    }
    drop(store);
    for changes in 0..60 {
        sim.disk.power_off_after(changes);
        drop(try_open(&sim, &shelf, busy()));
        sim.disk.crash();
        let store = open_on(&sim, &shelf, busy());
        assert_eq!(dump(&store).len(), 60, "after {changes} changes");
        tick(&store, 20);
    }
}

/// The samples by series and time that a random history acked.
type Acked = BTreeMap<(String, i64), u64>;

/// Sends a batch with samples of a few series, now or late, and records the acked samples.
fn send_random(rng: &SimRng, store: &Store, now: i64, acked: &mut Acked) {
    let name = format!("n{}", rng.next_u64() % 12);
    let age = match rng.next_u64() % 6 {
        0 => (rng.next_u64() % 300) as i64 * MINUTE + 1,
        _ => 0,
    };
    let sample = (now - age, (rng.next_u64() % 1_000) as f64);
    if acked.contains_key(&(name.clone(), sample.0)) {
        return;
    }
    let appended = append(store, &batch(&[(&name, &[sample])]), ALWAYS);
    if appended.stored == 1 {
        acked.insert((name, sample.0), sample.1.to_bits());
    }
}

/// Returns the samples of a store by series and time.
fn held(store: &Store) -> Acked {
    let series = contents(store, TimeRange::ALL).into_iter();
    let samples = series.flat_map(|(name, samples)| {
        let key = move |(time, value): (i64, f64)| ((name.clone(), time), value.to_bits());
        samples.into_iter().map(key)
    });
    samples.collect()
}

#[test]
fn random_histories_of_stores_on_one_log_lose_and_repeat_no_sample() {
    for seed in seeds(SEEDS) {
        let rng = SimRng::new(seed);
        let shelf = RecordShelf::default();
        let mut sim = sim::sim_env(seed);
        let mut store = open_on(&sim, &shelf, busy());
        let (mut now, mut acked) = (0, Acked::new());
        for _ in 0..400 {
            match rng.next_u64() % 60 {
                0 => {
                    if rng.next_u64().is_multiple_of(3) {
                        store.hand_off().unwrap();
                    }
                    drop(store);
                    sim = match rng.next_u64() % 2 {
                        0 => sim::sim_env(rng.next_u64()),
                        _ => sim,
                    };
                    store = open_on(&sim, &shelf, busy());
                }
                1 => now += (rng.next_u64() % 120) as i64 * MINUTE,
                2..20 => tick(&store, 1 + (rng.next_u64() % 8) as usize),
                _ => {
                    now += MINUTE;
                    send_random(&rng, &store, now, &mut acked);
                }
            }
        }
        assert_eq!(held(&store), acked, "FIRN_SEED={seed}");
    }
}
