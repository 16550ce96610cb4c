//! Compares the table of late rows with a model of plain maps.

use super::*;
use firn_model::env::sim::SimRng;
use std::collections::BTreeMap;

/// The rows of all series: (local, time, sequence) -> (start, bits).
type Model = BTreeMap<(u32, i64, u64), Vec<(i64, u64)>>;

fn contents(table: &LateTable) -> Model {
    let mut found = Model::new();
    for (local, series) in table.iter() {
        for (row, start) in series.rows(TimeRange::ALL) {
            let ChunkSample::Float(value) = row.value else {
                panic!("only floats were sent");
            };
            let key = (local.0, row.time, row.sequence);
            found.entry(key).or_default().push((start, value.to_bits()));
        }
    }
    found
}

fn row(time: i64, sequence: u64, value: f64) -> LateRow {
    LateRow {
        time,
        sequence,
        value: ChunkSample::Float(value),
    }
}

#[test]
fn late_table_of_random_rows_holds_what_maps_hold() {
    for seed in 0..300 {
        let rng = SimRng::new(seed);
        let (mut table, mut model) = (LateTable::default(), Model::new());
        let mut held: Vec<LateSeries> = Vec::new();
        for step in 0..rng.next_below(200) {
            let sequence = step / 3;
            let (local, time) = (rng.next_below(3) as u32, rng.next_below(40) as i64);
            let start = if rng.one_in(5) { 7 } else { START_UNKNOWN };
            table.insert(ShardLocalId(local), row(time, sequence, step as f64), start);
            let at = model.entry((local, time, sequence)).or_default();
            at.push((start, (step as f64).to_bits()));
            if rng.one_in(9) {
                held.extend(table.get(ShardLocalId(local)).cloned());
            }
            if rng.one_in(40) {
                let through = sequence.saturating_sub(rng.next_below(20));
                (0..3).for_each(|local| {
                    table.drop_rows(ShardLocalId(local), |row| row.sequence <= through)
                });
                table.settle();
                model.retain(|(.., of), _| *of > through);
            }
            let oldest = model.keys().map(|(.., sequence)| *sequence).min();
            assert_eq!(table.oldest(), oldest, "seed {seed}");
            assert_eq!(table.is_empty(), model.is_empty(), "seed {seed}");
        }
        assert_eq!(contents(&table), model, "seed {seed}");
        (0..3).for_each(|local| table.drop_rows(ShardLocalId(local), |_| true));
        assert_eq!((table.memory_bytes(), table.is_empty()), (0, true));
    }
}

#[test]
fn late_table_counts_the_bytes_that_its_leaves_have() {
    for seed in 0..100 {
        let rng = SimRng::new(seed);
        let mut table = LateTable::default();
        let mut held = Vec::new();
        for step in 0..200 {
            let (local, time) = (
                ShardLocalId(rng.next_below(3) as u32),
                rng.next_below(1_000) as i64,
            );
            table.insert(local, row(time, step, 1.0), START_UNKNOWN);
            if rng.one_in(4) {
                held.extend(table.get(local).cloned());
            }
            let series = table.iter().map(|(_, s)| SERIES_BYTES + s.memory_bytes());
            assert_eq!(table.memory_bytes(), series.sum::<usize>(), "seed {seed}");
        }
    }
}

#[test]
fn late_rows_that_a_reader_holds_do_not_change() {
    let mut table = LateTable::default();
    for time in 0..20 {
        table.insert(ShardLocalId(1), row(time, 1, 1.0), START_UNKNOWN);
    }
    let series = table.get(ShardLocalId(1)).expect("it was added");
    let shared = series.share(TimeRange::new(5, 9), 1).expect("rows in it");
    table.insert(ShardLocalId(1), row(7, 2, 2.0), START_UNKNOWN);
    table.drop_rows(ShardLocalId(1), |row| row.sequence <= 2);
    let times: Vec<i64> = shared
        .rows(TimeRange::new(5, 9))
        .map(|(row, _)| row.time)
        .collect();
    assert_eq!(times, [5, 6, 7, 8, 9]);
}

#[test]
fn late_series_shares_only_what_a_reader_needs() {
    let mut table = LateTable::default();
    table.insert(ShardLocalId(1), row(10, 3, 1.0), START_UNKNOWN);
    let series = table.get(ShardLocalId(1)).expect("it was added");
    let cases = [
        (TimeRange::new(0, 20), 3, true),
        (TimeRange::new(0, 20), 2, false),
        (TimeRange::new(0, 9), 3, false),
        (TimeRange::new(11, 20), 3, false),
    ];
    for (range, watermark, expected) in cases {
        let shared = series.share(range, watermark);
        assert_eq!(shared.is_some(), expected, "{range:?} at {watermark}");
    }
}

#[test]
fn late_row_at_a_known_time_is_admitted_as_the_rule_says() {
    use LateAdmission::{Known, New, Replacing};
    let cases = [
        (DuplicatePolicy::KeepFirst, [New, Known, Known, Known]),
        (
            DuplicatePolicy::KeepLast,
            [New, Known, Replacing, Replacing],
        ),
        (DuplicatePolicy::Max, [New, Known, Replacing, Known]),
    ];
    for (duplicates, expected) in cases {
        let mut table = LateTable::default();
        let values = [1.0, 1.0, 2.0, 1.5];
        let admitted = [1, 2, 3, 4].map(|sequence| {
            let row = row(5, sequence, values[sequence as usize - 1]);
            table.add_unless_duplicate(ShardLocalId(1), row, START_UNKNOWN, duplicates)
        });
        assert_eq!(admitted, expected, "{duplicates:?}");
    }
}
