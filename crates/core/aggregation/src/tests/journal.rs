//! Tests the journal: its size, the effects of damage, and that no bytes make a start panic.

use super::*;
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::log::JournalRecord;

/// Processes counters of two jobs for some rounds; returns the journal records.
fn feed(machine: &mut AggregationState, rounds: std::ops::Range<i64>) -> Vec<JournalRecord> {
    let mut records = Vec::new();
    for round in rounds {
        let mut all = Batch::default();
        for pod in 0..50 {
            let number = pod.to_string();
            let job = if pod % 2 == 0 { "a" } else { "b" };
            let pairs = [("__name__", "a_total"), ("job", job), ("pod", &number)];
            let value = (1000 * pod + round * 7) as f64;
            all.push_series(
                Labels::from_pairs(pairs).as_ref(),
                &[(round * 5_000, value)],
            );
        }
        records.push(
            machine
                .aggregate_batch(&mut &all, i64::MAX)
                .unwrap()
                .journal,
        );
    }
    records
}

fn restored(records: &[Vec<u8>]) -> (AggregationState, usize) {
    let mut machine = AggregationState::new(hashing(7), usize::MAX, Arc::new(|_| None));
    let lost = machine.restore(records);
    machine.configure(&group(&[rule(AggregationOp::Sum, "a_total")]));
    (machine, lost)
}

fn results(
    machine: &mut AggregationState,
    rounds: std::ops::Range<i64>,
) -> BTreeMap<String, Vec<(i64, f64)>> {
    let mut found = BTreeMap::new();
    for round in rounds {
        let mut all = Batch::default();
        for pod in 0..50 {
            let number = pod.to_string();
            let job = if pod % 2 == 0 { "a" } else { "b" };
            let pairs = [("__name__", "a_total"), ("job", job), ("pod", &number)];
            let value = (1000 * pod + round * 7) as f64;
            all.push_series(
                Labels::from_pairs(pairs).as_ref(),
                &[(round * 5_000, value)],
            );
        }
        read(
            &machine
                .aggregate_batch(&mut &all, i64::MAX)
                .unwrap()
                .results,
            &mut found,
        );
    }
    found
}

#[test]
fn sample_of_a_known_counter_takes_three_bytes_of_the_journal() {
    let mut machine = machine(&group(&[rule(AggregationOp::Sum, "a_total")]));
    machine.encode_whole_state();
    feed(&mut machine, 1..10);
    let bytes: usize = feed(&mut machine, 10..20)
        .iter()
        .map(|j| j.bytes.len())
        .sum();
    // Fifty samples share the headers and interval ends.
    assert!(bytes < 10 * 50 * 5, "{bytes} bytes");
}

#[test]
fn damage_of_the_journal_costs_increments_of_its_lanes_and_no_total() {
    let mut machine = machine(&group(&[rule(AggregationOp::Sum, "a_total")]));
    let mut records: Vec<Vec<u8>> = machine
        .encode_whole_state()
        .into_iter()
        .map(|j| j.bytes)
        .collect();
    records.extend(feed(&mut machine, 1..20).into_iter().map(|j| j.bytes));
    let (mut sound, lost) = restored(&records);
    assert_eq!(lost, 0);
    let expected = results(&mut sound, 20..30);
    let mut gap = records.clone();
    gap.remove(10);
    let mut flipped = records.clone();
    let last = flipped[10].len() - 1;
    flipped[10].truncate(last);
    for damaged in [gap, flipped] {
        let (mut machine, lost) = restored(&damaged);
        assert!(lost > 0);
        let found = results(&mut machine, 20..30);
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>()
        );
        for (labels, row) in &found {
            // The total continues from the restored value and grows by later increments.
            let steps: Vec<f64> = row.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
            let last = expected[labels].windows(2).last().unwrap();
            assert_eq!(
                steps.last().copied(),
                Some(last[1].1 - last[0].1),
                "{labels}"
            );
            assert!(
                row[0].1 > 0.0 && row[0].1 <= expected[labels][0].1,
                "{labels}: {row:?}"
            );
        }
    }
}

#[test]
fn state_goes_on_with_the_hash_that_it_began_with() {
    let keys =
        |kind| SourceHashing::Keys(Arc::new(HashKeys::from_seed(kind, FingerprintSeed([3, 4]))));
    let mut expected = None;
    for hashing in [
        keys(HashKind::Aes),
        keys(HashKind::Nh),
        SourceHashing::Xxh3(9),
    ] {
        let mut machine = AggregationState::new(hashing.clone(), usize::MAX, Arc::new(|_| None));
        machine.configure(&group(&[rule(AggregationOp::Sum, "a_total")]));
        let mut records: Vec<Vec<u8>> = machine
            .encode_whole_state()
            .into_iter()
            .map(|j| j.bytes)
            .collect();
        records.extend(feed(&mut machine, 1..20).into_iter().map(|j| j.bytes));
        // Restored by a machine that would start with other keys.
        let (mut restored, lost) = restored(&records);
        assert_eq!(lost, 0, "{hashing:?}");
        let found = results(&mut restored, 20..30);
        assert_eq!(found, *expected.get_or_insert(found.clone()), "{hashing:?}");
    }
}

#[test]
fn restore_of_any_bytes_does_not_panic() {
    let mut machine = machine(&group(&[
        rule(AggregationOp::Sum, "a_total"),
        rule(AggregationOp::Max, "a_total"),
    ]));
    let mut records: Vec<Vec<u8>> = machine
        .encode_whole_state()
        .into_iter()
        .map(|j| j.bytes)
        .collect();
    records.extend(feed(&mut machine, 1..8).into_iter().map(|j| j.bytes));
    for seed in 0..2_000 {
        let rng = SimRng::new(seed);
        let mut records = records.clone();
        for _ in 0..=rng.next_below(3) {
            let record = rng.next_below(records.len() as u64) as usize;
            let record = &mut records[record];
            let at = rng.next_below(record.len() as u64) as usize;
            match rng.next_below(3) {
                0 => record.truncate(at.max(1)),
                _ => record[at] = rng.next_u64() as u8,
            }
        }
        let (mut machine, _) = restored(&records);
        results(&mut machine, 8..12);
        assert!(!machine.encode_whole_state().is_empty());
    }
}
