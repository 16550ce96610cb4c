//! Slots beyond 32 bits: each start assigns slots of the next era, so that the lower halves of
//! slots repeat. Also a start with slots for few new series.

use super::*;
use crate::failpoints::{InjectedFaults, set_faults};
use crate::ids::SeriesRef;
use firn_model::exemplar::TimedExemplar;
use firn_model::store::ExemplarRequest;

const MINUTE: i64 = 60_000;

fn short() -> StoreOptions {
    StoreOptions {
        window_ms: MINUTE,
        is_jittered: false,
        exemplars_max: 100,
        log_segment_bytes: 500,
        ..options()
    }
}

/// Sends one sample at `time` for each of the series, with an exemplar that names its series.
fn send(store: &Store, names: &[&str], time: i64) -> AppendOutcome {
    let mut batch = Batch::default();
    for name in names {
        let id = Labels::from_pairs([("id", *name)]);
        batch
            .label_bytes()
            .extend_from_slice(labels(name).as_bytes());
        batch.push_float(time, time as f64);
        batch.push_exemplar(TimedExemplar {
            labels: id.as_ref(),
            value: 1.0,
            time,
            has_own_time: true,
        });
        batch.end_series();
    }
    append(store, &batch, ALWAYS)
}

/// Returns the names of the series that have exemplars, with the names in the exemplars.
fn exemplars(store: &Store) -> Vec<(String, String)> {
    let request = ExemplarRequest {
        tenant: &TenantId::anonymous(),
        sets: &[vec![]],
        range: TimeRange::ALL,
        cancel: &CancelToken::new(),
        budget: &Budget::new("query", usize::MAX),
    };
    let text = |labels: &Labels, name| String::from_utf8(labels.get(name).to_vec()).unwrap();
    let mut pairs = Vec::new();
    for found in store.exemplars(request).unwrap() {
        let ids = found.exemplars.iter().map(|e| text(&e.labels, "id"));
        pairs.extend(ids.map(|id| (text(&found.series, "__name__"), id)));
    }
    pairs
}

#[test]
fn store_whose_starts_begin_eras_keeps_the_samples_of_each_series_apart() {
    set_faults(InjectedFaults {
        turns_eras: true,
        ..InjectedFaults::NONE
    });
    let sim = sim::sim_env(1);
    let mut expected: Vec<(String, Vec<(i64, f64)>)> = vec![("always".into(), Vec::new())];
    for era in 0..8i64 {
        let store = open(&sim, short());
        let own = format!("of_{era}");
        let mut of_own = Vec::new();
        for minute in 0..4 {
            let time = (era * 10 + minute) * MINUTE;
            assert_eq!(send(&store, &["always", &own], time).rejected, []);
            expected[0].1.push((time, time as f64));
            of_own.push((time, time as f64));
            (0..3).for_each(|_| store.tick());
        }
        expected.push((own, of_own));
        assert_eq!(contents(&store, TimeRange::ALL), expected, "era {era}");
        let newest = SeriesRef(store.parts.head.index.next_slot() - 1);
        let slot = store.parts.head.numbers.slot(newest);
        assert_eq!(slot.0 >> 32, era as u64 + 1);
        assert!(
            newest.0 < 512 * (era as u32 + 1),
            "numbers follow what there is"
        );
        if era % 3 == 0 {
            store.close().unwrap();
        }
        drop(store);
        sim.disk.crash();
    }
    let store = open(&sim, short());
    assert_eq!(contents(&store, TimeRange::ALL), expected);
    assert!(store.damages().is_empty(), "{:?}", store.damages());
    let found = exemplars(&store);
    assert_eq!(found.len(), 64);
    assert!(found.iter().all(|(series, id)| series == id), "{found:?}");
}

#[test]
fn store_without_numbers_for_new_series_takes_the_others_and_new_ones_after_a_start() {
    set_faults(InjectedFaults {
        new_series_max: Some(3),
        ..InjectedFaults::NONE
    });
    let sim = sim::sim_env(1);
    let store = open(&sim, short());
    assert_eq!(store.parts.head.index.remaining_slots(), 3);
    let names = ["a", "b", "c", "d", "e"];
    let refused = rejections(&send(&store, &names, 0));
    assert_eq!(refused, [(SampleRejection::SeriesLimit, 2, 0)]);
    assert_eq!(send(&store, &names[..3], MINUTE).rejected, []);
    assert_eq!(store.parts.head.index.remaining_slots(), 0);
    drop(store);
    sim.disk.crash();
    let store = open(&sim, short());
    assert_eq!(store.parts.head.index.remaining_slots(), 3);
    assert_eq!(send(&store, &names, 2 * MINUTE).rejected, []);
    assert_eq!(contents(&store, TimeRange::ALL).len(), 5);
}
