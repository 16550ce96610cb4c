//! Readers of the index concurrent with creation, removal and sweeping.

use super::check;
use crate::failpoints::StoreFlaw;
use crate::ids::SeriesRef;
use crate::index::{HeadSeriesPlace, Index, epoch_from_time};
use firn_model::cancel::CancelToken;
use firn_model::env::sim::SimRng;
use firn_model::fingerprint::HashKeys;
use firn_model::labels::Labels;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimeRange;
use shuttle::thread::{spawn, yield_now};
use std::sync::Arc;

fn labels(instance: u32) -> Labels {
    let instance = instance.to_string();
    Labels::from_pairs([("__name__", "m"), ("instance", instance.as_str())])
}

fn create(index: &Index, instances: std::ops::Range<u32>) {
    let mut creation = index.create_series();
    for instance in instances {
        let slot = creation
            .add_series(labels(instance).as_ref(), HeadSeriesPlace(instance))
            .unwrap();
        index.mark_sample(slot, epoch_from_time(0));
    }
}

/// Reads the index. A reader may access a series it found at any later time: each series must have
/// the labels by which it was found, and a batch of new series must be found in full or not at all.
fn read(index: &Index) {
    let generation = index.generation();
    let matcher = Matcher::new("__name__", MatchOp::Equal, b"m").unwrap();
    let found = index
        .lookup(&[matcher], TimeRange::ALL, &CancelToken::new())
        .unwrap();
    let slots: Vec<SeriesRef> = found.slots().collect();
    let created = slots.iter().filter(|slot| (4..8).contains(&slot.0)).count();
    assert!(created == 0 || created == 4, "half of a batch: {slots:?}");
    yield_now();
    for slot in slots {
        assert_eq!(
            index.dictionary.series_labels(slot),
            labels(slot.0),
            "{slot:?}"
        );
    }
    drop(generation);
}

#[test]
fn index_reader_keeps_its_series_while_they_are_removed_and_swept() {
    check(300, &[StoreFlaw::SweepsUnderReaders], || {
        let index = Arc::new(Index::new(Arc::new(HashKeys::new(&SimRng::new(1)))));
        create(&index, 0..4);
        let readers = (0..2).map(|_| {
            let index = index.clone();
            spawn(move || read(&index))
        });
        let remover = {
            let index = index.clone();
            spawn(move || {
                let mut garbage = Some(index.remove_series(&[SeriesRef(0), SeriesRef(2)]));
                while let Some(left) = garbage.take() {
                    garbage = index.free_garbage(left);
                    yield_now();
                }
            })
        };
        let parent = {
            let index = index.clone();
            spawn(move || create(&index, 4..8))
        };
        let threads: Vec<_> = readers.chain([remover, parent]).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let matcher = Matcher::new("__name__", MatchOp::Equal, b"m").unwrap();
        let left = index
            .lookup(&[matcher], TimeRange::ALL, &CancelToken::new())
            .unwrap();
        assert_eq!(
            left.slots().collect::<Vec<_>>(),
            [1, 3, 4, 5, 6, 7].map(SeriesRef)
        );
        assert_eq!(
            index.dictionary.series_labels(SeriesRef(0)),
            Labels::default()
        );
    });
}
