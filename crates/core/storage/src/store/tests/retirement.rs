//! Tests of eviction: silent series leave the head, are still found, and are restored.

use super::*;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

fn short() -> StoreOptions {
    StoreOptions {
        retention_ms: 10 * HOUR,
        cut_ms: 1_000 * HOUR,
        ..options()
    }
}

/// Sends samples of `name` every ten minutes in `first..end`, with ticks after each.
fn send(store: &Arc<Store>, name: &str, first: i64, end: i64) {
    for time in (first..end).step_by(10 * MINUTE as usize) {
        append(store, &batch(&[(name, &[(time, time as f64)])]), ALWAYS);
        for _ in 0..8 {
            store.tick();
        }
    }
}

fn times(store: &Store, name: &str) -> Vec<i64> {
    let all = contents(store, TimeRange::ALL);
    let of_name = all.into_iter().filter(|(n, _)| n == name);
    let samples: Vec<_> = of_name.map(|(_, samples)| samples).collect();
    assert!(samples.len() <= 1, "{name} is there twice");
    samples.into_iter().flatten().map(|(t, _)| t).collect()
}

fn head_and_index(store: &Store) -> (u64, usize) {
    (store.stats(0).series, store.parts.head.index.series_count())
}

#[test]
fn silent_series_leaves_the_head_is_still_found_and_takes_its_slot_back() {
    let sim = sim::sim_env(1);
    let store = open(&sim, short());
    send(&store, "old", 0, HOUR);
    send(&store, "new", HOUR, 4 * HOUR);
    assert_eq!(head_and_index(&store), (1, 2));
    assert_eq!(
        times(&store, "old"),
        [0, 10, 20, 30, 40, 50].map(|m| m * MINUTE)
    );
    let refused = append(&store, &batch(&[("old", &[(HOUR, 1.0)])]), ALWAYS);
    assert_eq!(
        rejections(&refused),
        [(SampleRejection::OutOfBounds, 1, HOUR)]
    );
    assert_eq!(
        head_and_index(&store),
        (1, 2),
        "what is refused brings nobody back"
    );
    send(&store, "old", 4 * HOUR, 4 * HOUR + 1);
    assert_eq!(head_and_index(&store), (2, 2));
    assert_eq!(times(&store, "old").len(), 7);
    // A series with some of the same labels is a different one.
    send(&store, "other", 4 * HOUR, 4 * HOUR + 1);
    assert_eq!(head_and_index(&store), (3, 3));
    drop(store);
    sim.disk.crash();
    let store = open(&sim, short());
    assert_eq!(times(&store, "old").len(), 7);
    assert_eq!(times(&store, "new").len(), 18);
}

#[test]
fn series_that_take_more_memory_than_there_is_are_an_error_at_a_start_and_stay_stored() {
    let sim = sim::sim_env(1);
    let store = open(&sim, short());
    let names: Vec<String> = (0..2_000).map(|number| format!("n{number}")).collect();
    let series: Vec<_> = names
        .iter()
        .map(|name| (&**name, &[(0, 1.0)][..]))
        .collect();
    append(&store, &batch(&series), ALWAYS);
    send(&store, "new", HOUR, 4 * HOUR);
    assert_eq!(head_and_index(&store), (1, 2_001));
    store.close().unwrap();
    drop(store);
    let small = StoreOptions {
        memory_max: 100_000,
        ..short()
    };
    let refused = Store::open(sim.env.clone(), small);
    let refused = refused.map(|_| ()).unwrap_err();
    let text = refused.to_string();
    assert_eq!(refused.kind, ErrorKind::Limited);
    assert!(text.contains("the labels of 2001 series need "), "{text}");
    assert!(text.contains(" bytes of memory, limit 100000; "), "{text}");
    let store = open(&sim, short());
    assert_eq!(contents(&store, TimeRange::ALL).len(), 2_001);
}

#[test]
fn silent_series_is_removed_when_its_pages_left_the_retention() {
    let sim = sim::sim_env(1);
    let store = open(&sim, short());
    send(&store, "old", 0, HOUR);
    send(&store, "new", HOUR, 14 * HOUR);
    assert_eq!(head_and_index(&store), (1, 1));
    assert_eq!(times(&store, "old"), [0i64; 0]);
    send(&store, "old", 14 * HOUR, 14 * HOUR + 1);
    assert_eq!(times(&store, "old"), [14 * HOUR]);
    store.close().unwrap();
    drop(store);
    let store = open(&sim, short());
    assert_eq!(times(&store, "old"), [14 * HOUR]);
    assert_eq!(head_and_index(&store), (2, 2));
}
