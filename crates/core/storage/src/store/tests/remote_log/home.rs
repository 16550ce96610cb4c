//! Tests of a store whose log and blocks are elsewhere: the log is trimmed by what blocks cover,
//! and a store on the rest and an empty folder has everything that was acked.

use super::memory_home::HomeShelf;
use super::*;

fn open_home(sim: &SimEnv, log: &RecordShelf, home: &HomeShelf) -> Arc<Store> {
    let opened = home.open(&sim.env.disk, log);
    let log = Box::new(log.open());
    Store::open_with_home(sim.env.clone(), busy(), log, opened, keys()).unwrap()
}

/// Sends a sample of `a`, one of a series that lives for an hour, and sometimes a late one.
fn send_minute(store: &Store, minute: i64) {
    let time = minute * MINUTE;
    let pod = format!("pod {}", minute / 60);
    let sent = batch(&[("a", &[(time, minute as f64)]), (&pod, &[(time, 0.5)])]);
    assert_eq!(append(store, &sent, ALWAYS).stored, 2);
    if minute % 16 == 15 {
        let late = time - 14 * MINUTE + 1;
        let sent = batch(&[("a", &[(late, -1.0)]), ("only late", &[(late, 2.0)])]);
        assert_eq!(append(store, &sent, ALWAYS).stored, 2);
    }
    tick(store, 4);
}

#[test]
fn log_is_trimmed_by_blocks_and_everything_acked_is_back_without_the_folder() {
    let (log, home) = (RecordShelf::default(), HomeShelf::default());
    let mut before: Vec<String> = Vec::new();
    for life in 0..6 {
        let sim = sim::sim_env(life + 1);
        let store = open_home(&sim, &log, &home);
        assert_eq!(store.damages(), []);
        assert_eq!(dump(&store), before, "life {life}");
        let first = life as i64 * 300;
        (first..first + 300).for_each(|minute| send_minute(&store, minute));
        before = dump(&store);
    }
    let restored = home.restored();
    assert!(
        restored.blocks.len() > 4,
        "{} blocks",
        restored.blocks.len()
    );
    assert!(
        restored.late_through > LogPosition(1_000),
        "{:?}",
        restored.late_through
    );
    let kept = log.records().len() as u64 - restored.replay_from.0;
    // Window, lateness and cut are 35 minutes of data time together, with three records a minute.
    assert!(kept < 500, "{kept} records are kept");
    assert!(
        restored.cut > 1_700 * MINUTE,
        "cut at {}",
        restored.cut / MINUTE
    );
}

#[test]
fn series_that_left_the_head_are_not_in_later_checkpoints() {
    let (log, home) = (RecordShelf::default(), HomeShelf::default());
    let store = open_home(&sim::sim_env(1), &log, &home);
    for minute in 0..2_400 {
        send_minute(&store, minute);
        tick(&store, 8);
    }
    let series = store.stats(0).series;
    assert!(series < 8, "{series} of 42 series are in the head");
    let before = dump(&store);
    drop(store);
    let store = open_home(&sim::sim_env(2), &log, &home);
    assert!(
        store.stats(0).series < 8,
        "{} series",
        store.stats(0).series
    );
    assert_eq!(dump(&store), before);
}

#[test]
fn home_that_fails_delays_blocks_and_the_trimming_and_loses_nothing() {
    let (log, home) = (RecordShelf::default(), HomeShelf::default());
    let store = open_home(&sim::sim_env(1), &log, &home);
    (0..100).for_each(|minute| send_minute(&store, minute));
    let restored = home.restored();
    home.set_gone(true);
    (100..400).for_each(|minute| send_minute(&store, minute));
    assert_eq!(home.restored(), restored);
    let before = dump(&store);
    drop(store);
    let store = open_home(&sim::sim_env(2), &log, &home);
    assert_eq!(dump(&store), before);
    home.set_gone(false);
    (400..500).for_each(|minute| send_minute(&store, minute));
    let later = home.restored();
    assert!(later.replay_from > restored.replay_from && later.cut > restored.cut);
    let before = dump(&store);
    drop(store);
    assert_eq!(dump(&open_home(&sim::sim_env(3), &log, &home)), before);
}

#[test]
fn home_that_does_not_answer_fails_starts_and_reads_and_no_answer_misses_its_samples() {
    let (log, home) = (RecordShelf::default(), HomeShelf::default());
    let store = open_home(&sim::sim_env(1), &log, &home);
    (0..300).for_each(|minute| send_minute(&store, minute));
    let before = dump(&store);
    drop(store);
    home.set_silent(true);
    let sim = sim::sim_env(2);
    let opened = home.open(&sim.env.disk, &log);
    let log_of = Box::new(log.open());
    let failed = Store::open_with_home(sim.env.clone(), busy(), log_of, opened, keys());
    assert_eq!(
        failed.map(drop).unwrap_err().kind,
        firn_model::error::ErrorKind::Unavailable
    );
    home.set_silent(false);
    let store = open_home(&sim, &log, &home);
    home.set_silent(true);
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| dump(&store)));
    assert!(failed.is_err(), "an answer without the blocks");
    home.set_silent(false);
    assert_eq!(dump(&store), before);
    assert_eq!(store.damages(), []);
}

#[test]
fn random_histories_of_stores_on_one_log_and_one_home_lose_and_repeat_no_sample() {
    for seed in seeds(SEEDS) {
        let rng = SimRng::new(seed);
        let (log, home) = (RecordShelf::default(), HomeShelf::default());
        let mut store = open_home(&sim::sim_env(seed), &log, &home);
        let (mut now, mut acked) = (0, Acked::new());
        for _ in 0..600 {
            match rng.next_u64() % 60 {
                0 => {
                    if rng.next_u64().is_multiple_of(3) {
                        store.hand_off().unwrap();
                    }
                    drop(store);
                    store = open_home(&sim::sim_env(rng.next_u64()), &log, &home);
                }
                1 => now += (rng.next_u64() % 120) as i64 * MINUTE,
                2 => home.set_gone(rng.next_u64().is_multiple_of(4)),
                3..20 => tick(&store, 1 + (rng.next_u64() % 8) as usize),
                _ => {
                    now += MINUTE;
                    send_random(&rng, &store, now, &mut acked);
                }
            }
        }
        assert_eq!(held(&store), acked, "FIRN_SEED={seed}");
    }
}
