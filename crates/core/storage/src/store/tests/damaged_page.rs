//! Pages changed on disk: samples in the damaged bytes are left out and reported, and all others
//! are returned as they were written.

use super::*;
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use std::path::{Path, PathBuf};

const HOUR: i64 = 3_600_000;

/// Series by name, with the bits of their samples.
type Contents = Vec<(String, Vec<(i64, u64)>)>;

/// Options with which no block replaces the pages.
fn uncut() -> StoreOptions {
    StoreOptions {
        cut_ms: 1_000 * HOUR,
        ..options()
    }
}

/// Returns everything in `range`, and the warnings.
fn read(store: &Store, range: TimeRange) -> (Contents, Vec<String>) {
    let selection = select(store, &[], range);
    let mut batch = SeriesBatch::default();
    selection.read(0..selection.len(), &mut batch).unwrap();
    let read = (0..selection.len()).map(|i| {
        let columns = batch.series(i);
        let values = columns.values.iter().map(|value| value.to_bits());
        let samples = columns.times.iter().copied().zip(values).collect();
        let name = selection.labels(i).get("__name__").to_vec();
        (String::from_utf8(name).unwrap(), samples)
    });
    (read.collect(), selection.loss_warnings().texts())
}

/// Creates a store with two segments and stops it. Returns the path of the older segment, whose
/// page contains `series` series with `samples` samples in half an hour.
fn two_segments(sim: &SimEnv, (series, samples): (usize, i64)) -> PathBuf {
    let rng = SimRng::new(7);
    for start in [0, 8 * HOUR] {
        let store = open(sim, uncut());
        let mut batch = Batch::default();
        for number in 0..series {
            // Some share their times, some values are constant, and some are completely random.
            let apart = (number % 3) as i64;
            let value = |_| match number % 4 {
                0 => 1.0,
                _ => f64::from_bits(rng.next_u64() >> 2),
            };
            let times = (0..samples).map(|i| start + i * (HOUR / 2 / samples) + apart);
            let samples: Vec<(i64, f64)> = times.map(|time| (time, value(time))).collect();
            batch.push_series(labels(&format!("m{number}")).as_ref(), &samples);
        }
        append(&store, &batch, ALWAYS);
        store.close().unwrap();
    }
    let names = sim.env.disk.list(Path::new("/data/pages")).unwrap();
    assert_eq!(names.len(), 2);
    Path::new("/data/pages").join(&names[0])
}

/// Reads a store whose older segment has `bytes`, and checks that exactly the lost samples are
/// reported. Returns the number of affected series, or `None` if the store does not open.
fn judge(sim: &SimEnv, (path, bytes): (&Path, &[u8]), whole: &Contents) -> Option<usize> {
    sim.disk.overwrite(path, bytes);
    let store = Store::open(sim.env.clone(), uncut()).ok()?;
    let recent = TimeRange::new(7 * HOUR, 9 * HOUR);
    let (read_recent, losses) = read(&store, recent);
    assert_eq!(losses, Vec::<String>::new());
    for ((name, got), (_, all)) in read_recent.iter().zip(whole) {
        let wanted: Vec<_> = all.iter().filter(|s| recent.contains(s.0)).collect();
        assert!(got.iter().eq(wanted), "{name} of the other segment");
    }
    let before = store.damages().len();
    let (got, losses) = read(&store, TimeRange::ALL);
    assert_eq!(got.len(), whole.len());
    let mut lacking = 0;
    for ((name, got), (_, all)) in got.iter().zip(whole) {
        if got != all {
            lacking += 1;
            // A column is lost as a whole.
            let newer: Vec<_> = all.iter().filter(|s| s.0 >= 8 * HOUR).collect();
            assert!(got.iter().eq(newer), "{name}");
        }
    }
    assert_eq!(lacking > 0, !losses.is_empty(), "{losses:?}");
    if let Some(text) = losses.first() {
        let start = format!("damage: {} is damaged at offset ", path.display());
        assert!(text.starts_with(&start), "{text}");
        let held = format!("it contained samples of {lacking} series");
        assert!(text.contains(&held), "{text}, {lacking} lack something");
        assert!(text.contains(", from "), "{text}");
        // Found again, the damage is reported again and counted once.
        assert_eq!(read(&store, TimeRange::ALL).1, losses);
        let damages = store.damages();
        assert_eq!(damages.len(), before + 1);
        assert_eq!(format!("damage: {}", damages[before]), *text);
    }
    Some(lacking)
}

fn whole_of(sim: &SimEnv) -> Contents {
    read(&open(sim, uncut()), TimeRange::ALL).0
}

#[test]
fn flipped_byte_of_a_page_costs_its_columns_and_the_answer_names_it() {
    let shape = (5, 3);
    let first = sim::sim_env(1);
    let path = two_segments(&first, shape);
    let bytes = first.disk.contents(&path).unwrap();
    let whole = whole_of(&first);
    let mut caught = 0;
    for at in 0..bytes.len() {
        let sim = sim::sim_env(1);
        two_segments(&sim, shape);
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        let lacking = judge(&sim, (&path, &bytes), &whole);
        caught += usize::from(lacking > Some(0));
    }
    assert!(caught > 0, "no byte of the page is read by a query alone");
}

#[test]
fn flipped_byte_of_a_stripe_costs_no_series_of_other_stripes() {
    // About 90 kB of random values, so two stripes.
    let shape = (240, 60);
    let sim = sim::sim_env(1);
    let path = two_segments(&sim, shape);
    let bytes = sim.disk.contents(&path).unwrap();
    assert!(bytes.len() > 75_000, "{}", bytes.len());
    let whole = whole_of(&sim);
    let rng = SimRng::new(3);
    let mut in_part = 0;
    for _ in 0..16 {
        let mut bytes = bytes.clone();
        let at = 64 + rng.next_below(bytes.len() as u64 - 64) as usize;
        bytes[at] ^= 1 << rng.next_below(8);
        let lacking = judge(&sim, (&path, &bytes), &whole);
        in_part += usize::from(lacking.is_some_and(|n| (1..240).contains(&n)));
    }
    assert!(in_part > 8, "{in_part} of 16 cost some series and not all");
}

#[test]
fn query_of_other_series_or_times_says_nothing_of_a_damaged_page() {
    let shape = (5, 3);
    let sim = sim::sim_env(1);
    let path = two_segments(&sim, shape);
    let mut bytes = sim.disk.contents(&path).unwrap();
    let at = bytes.windows(8).position(|w| w == b"FIRNPAGE").unwrap();
    bytes[at] ^= 1;
    sim.disk.overwrite(&path, &bytes);
    let store = open(&sim, uncut());
    let first = TimeRange::new(0, HOUR);
    assert_eq!(read(&store, first).1.len(), 1);
    assert!(
        read(&store, TimeRange::new(8 * HOUR, 9 * HOUR))
            .1
            .is_empty()
    );
    let nobody = Matcher::new("__name__", MatchOp::Equal, b"nobody").unwrap();
    assert!(select(&store, &[nobody], first).loss_warnings().is_empty());
}

#[test]
fn page_of_a_file_that_was_cut_or_removed_is_named_and_others_go_on() {
    for length in [None, Some(0), Some(100)] {
        let sim = sim::sim_env(1);
        let path = two_segments(&sim, (5, 3));
        let store = open(&sim, uncut());
        match length {
            None => sim.env.disk.remove_file(&path).unwrap(),
            Some(length) => {
                let bytes = sim.disk.contents(&path).unwrap();
                sim.disk.overwrite(&path, &bytes[..length]);
            }
        }
        let (held, losses) = read(&store, TimeRange::ALL);
        let newer = |(_, samples): &(String, Vec<(i64, u64)>)| {
            samples.len() == 3 && samples.iter().all(|(time, _)| *time >= 8 * HOUR)
        };
        assert!(held.iter().all(newer), "{length:?}: {held:?}");
        assert_eq!(losses.len(), 1, "{length:?}: {losses:?}");
        let start = format!("damage: {} is damaged", path.display());
        assert!(losses[0].starts_with(&start), "{losses:?}");
        let held = match length {
            None => "cannot be opened: ",
            Some(_) => "it contained samples of 5 series, from 0 to ",
        };
        assert!(losses[0].contains(held), "{losses:?}");
    }
}

#[test]
fn selection_whose_pages_left_the_retention_gives_what_is_left_and_says_nothing() {
    let sim = sim::sim_env(1);
    two_segments(&sim, (5, 3));
    let short = StoreOptions {
        retention_ms: 4 * HOUR,
        page_cache_bytes: 0,
        ..uncut()
    };
    let store = open(&sim, short);
    let before = select(&store, &[], TimeRange::ALL);
    store.tick();
    let names = sim.env.disk.list(Path::new("/data/pages")).unwrap();
    assert_eq!(names.len(), 1);
    let mut batch = SeriesBatch::default();
    before.read(0..before.len(), &mut batch).unwrap();
    assert_eq!(batch.len(), 5);
    assert!((0..5).all(|i| batch.series(i).times.len() == 3));
    assert_eq!(before.loss_warnings().texts(), Vec::<String>::new());
    assert!(store.damages().is_empty());
}
