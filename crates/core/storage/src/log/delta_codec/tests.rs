//! Tests of delta-coded records: decoding returns the encoded values bit for bit, or an error.

use super::*;
use crate::failpoints::with_flaw;
use crate::log::record::tests::{contents, hint, histogram};
use crate::seeds::seeds;
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::labels::Labels;
use firn_model::log::FloatRow;
use firn_model::sample::stale_nan;

const BYTES_MAX: usize = 1 << 20;

fn row(slot: u64, time: i64, value: f64) -> FloatRow {
    FloatRow {
        slot,
        time,
        start: 0,
        value,
    }
}

fn batch(rows: &[FloatRow]) -> LogBatch {
    let mut batch = LogBatch::default();
    for row in rows {
        batch.floats.push(*row, hint(row.value));
    }
    batch
}

/// Encodes one batch in the current context of `delta`.
fn encode_one(delta: &mut DeltaRecordEncoder, position: u64, batch: &LogBatch) -> Option<Vec<u8>> {
    let (mut record, mut into) = (LogRecordEncoder::default(), Vec::new());
    let position = LogPosition(position);
    let is_coded = delta.encode(position, batch, BYTES_MAX, &mut record, &mut into);
    is_coded.then_some(into)
}

/// Returns the delta-coded records of batches at the positions from 1 on.
fn encode(batches: &[LogBatch]) -> Vec<Vec<u8>> {
    encode_by_writers(batches, |_| false)
}

/// Like `encode`, with several writers: a new one starts wherever `is_new` returns true.
fn encode_by_writers(batches: &[LogBatch], is_new: impl Fn(u64) -> bool) -> Vec<Vec<u8>> {
    let mut delta = DeltaRecordEncoder::default();
    let numbered = batches.iter().zip(1..);
    let encode = |(batch, position)| {
        if is_new(position) {
            delta.begin();
        }
        encode_one(&mut delta, position, batch).unwrap()
    };
    numbered.map(encode).collect()
}

/// Encodes and decodes the batches; returns the size of each record in bytes.
#[track_caller]
fn check(batches: &[LogBatch]) -> Vec<usize> {
    let mut delta = DeltaRecordDecoder::default();
    let records = encode(batches);
    for ((batch, record), position) in batches.iter().zip(&records).zip(1..) {
        let decoded = delta.decode(LogPosition(position), record).unwrap();
        assert_eq!(contents(&decoded), contents(batch), "record {position}");
    }
    records.iter().map(Vec::len).collect()
}

/// Checks one series with one value per record.
#[track_caller]
fn check_values(values: &[f64]) {
    let one = |(value, time): (&f64, i64)| batch(&[row(7, time, *value)]);
    let batches: Vec<_> = values.iter().zip(0..).map(one).collect();
    check(&batches);
}

#[test]
fn delta_coded_values_of_every_kind_return_to_the_bit() {
    let extremes = [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, f64::EPSILON];
    check_values(&extremes);
    check_values(&[0.0, -0.0, 0.0, 1.0, -0.0, -1.0]);
    let nan = f64::from_bits(0x7ff8_dead_beef_0001);
    check_values(&[
        1.0,
        stale_nan(),
        2.0,
        nan,
        f64::INFINITY,
        3.0,
        -f64::INFINITY,
    ]);
    check_values(&[nan, nan, 1.0, 1.5, 0.1, 1.0 / 3.0, 1e300, 0.5, 12.0]);
    let exact = (1u64 << 53) as f64;
    check_values(&[exact, exact - 1.0, exact * 2.0, -exact, exact * 1024.0, 7.0]);
    check_values(&[1e9, 2e9, 3e9, 3e9, 3e9, 4.25e9, -1e9]);
}

fn random_value(rng: &SimRng, kind: u64, round: u64) -> f64 {
    match kind % 8 {
        _ if rng.one_in(40) => f64::from_bits(rng.next_u64()),
        _ if rng.one_in(40) => stale_nan(),
        0 | 1 => kind as f64,
        2 => (round * kind) as f64,
        3 => (round * 1_000_003 * kind + rng.next_below(1_000)) as f64,
        4 => rng.next_below(100_000) as f64 / 1_000.0,
        5 => (round as f64 + kind as f64) / 3.0,
        6 => rng.next_below(4) as f64 * 1e-9,
        _ => rng.next_below(7) as f64,
    }
}

/// Returns rows of records in which series appear and disappear, so that contexts are reset now and
/// then.
fn random_rows(rng: &SimRng) -> Vec<Vec<FloatRow>> {
    let base = match rng.next_below(3) {
        0 => u64::from(u32::MAX) - 300,
        _ => rng.next_below(1_000),
    };
    let series = 1 + rng.next_below(200);
    let rounds = 1 + rng.next_below(90);
    let mut records = Vec::new();
    for round in 0..rounds {
        let first = rng.next_below(series);
        let mut rows: Vec<FloatRow> = (first..=first + rng.next_below(series - first))
            .map(|kind| {
                let time = round as i64 * 15_000 + kind as i64 / 20;
                row(base + kind, time, random_value(rng, kind, round))
            })
            .collect();
        if rng.one_in(4) {
            rows.reverse();
        }
        if rng.one_in(9) {
            rows[0].start = 5;
        }
        records.push(rows);
    }
    records
}

#[test]
fn delta_coded_random_records_read_as_what_was_logged() {
    for seed in seeds(200) {
        println!("FIRN_SEED={seed}");
        let rows = random_rows(&SimRng::new(seed));
        check(&rows.iter().map(|r| batch(r)).collect::<Vec<_>>());
    }
}

/// Drops some records and decodes the others. Returns an error if a record is decoded to other
/// values, or is rejected although no record that it depends on is lost.
fn lose_records(seed: u64) -> Result<(), String> {
    let rng = SimRng::new(seed);
    let rows = random_rows(&rng);
    let batches: Vec<_> = rows.iter().map(|r| batch(r)).collect();
    let mut delta = DeltaRecordDecoder::default();
    let mut lost_slots = std::collections::HashSet::new();
    let mut began = LogPosition(0);
    let records = encode_by_writers(&batches, |_| rng.one_in(20));
    for (i, record) in records.iter().enumerate() {
        let position = LogPosition(i as u64 + 1);
        let back = DecodeCursor::new(record).read_uvarint().unwrap();
        if LogPosition(position.0 - back) != began {
            began = LogPosition(position.0 - back);
            lost_slots.clear();
        }
        let slots = rows[i].iter().map(|r| r.slot);
        if rng.one_in(5) {
            lost_slots.extend(slots);
            continue;
        }
        let needs_lost = slots.clone().any(|slot| lost_slots.contains(&slot));
        match delta.decode(position, record) {
            Ok(decoded) if contents(&decoded) != contents(&batches[i]) => {
                return Err(format!("record {position:?} reads as another"));
            }
            Ok(_) => {}
            Err(e) if !needs_lost => return Err(format!("record {position:?}: {e}")),
            Err(_) => lost_slots.extend(slots),
        }
    }
    Ok(())
}

#[test]
fn delta_coded_records_behind_a_lost_one_are_themselves_or_an_error() {
    for seed in seeds(500) {
        if let Err(trouble) = lose_records(seed) {
            panic!("FIRN_SEED={seed}: {trouble}");
        }
    }
}

#[test]
fn decoder_that_trusts_what_was_lost_is_caught() {
    let outcome = with_flaw(StoreFlaw::TrustsContext, || {
        (0..20).map(lose_records).collect::<Vec<_>>()
    });
    assert!(outcome.iter().any(Result::is_err));
    let outcome = with_flaw(StoreFlaw::MixesContexts, || {
        (0..200).map(lose_records).collect::<Vec<_>>()
    });
    assert!(outcome.iter().any(Result::is_err));
}

#[test]
fn batch_without_floats_or_too_large_is_not_delta_coded() {
    let mut delta = DeltaRecordEncoder::default();
    let mut created = LogBatch::default();
    created
        .created
        .push(3, Labels::from_pairs([("a", "b")]).as_ref());
    for batch in [created, LogBatch::default()] {
        assert_eq!(encode_one(&mut delta, 1, &batch), None);
    }
    let whole = batch(&[row(1, 2, 3.0), row(2, 2, 4.5)]);
    let (mut record, mut into) = (LogRecordEncoder::default(), Vec::new());
    assert!(!delta.encode(LogPosition(1), &whole, 30, &mut record, &mut into));
    // As if no batch had been encoded before.
    let coded = encode_one(&mut delta, 9, &whole);
    assert_eq!(coded.as_ref(), encode(&[whole]).first());
}

#[test]
fn wrong_hint_changes_no_value() {
    let mut wrong = batch(&[row(1, 2, 0.3), row(2, 2, 4.5), row(3, 2, 7.0)]);
    for (hint, code) in wrong.floats.hints.iter_mut().zip([0, 40, 16]) {
        hint.0 = code;
    }
    check(&[wrong.clone(), wrong]);
}

#[test]
fn delta_coded_record_keeps_created_series_and_histograms() {
    let batches = [1, 2, 3].map(|slot| {
        let mut batch = batch(&[row(slot, 5, 0.25)]);
        let labels = Labels::from_pairs([("a", "b")]);
        batch.created.push(slot, labels.as_ref());
        batch.histograms.push(histogram(1));
        batch
    });
    check(&batches);
}

#[test]
fn delta_coded_record_changed_anywhere_is_read_or_refused_without_a_panic() {
    for seed in seeds(300) {
        let rng = SimRng::new(seed);
        let mut delta = DeltaRecordDecoder::default();
        let batches: Vec<_> = random_rows(&rng).iter().map(|r| batch(r)).collect();
        for (record, position) in encode(&batches).iter_mut().zip(1..) {
            let at = rng.next_below(record.len() as u64) as usize;
            match rng.next_below(3) {
                0 => record[at] ^= 1 << rng.next_below(8),
                1 => record.truncate(at),
                _ => {}
            }
            // The bytes are protected by the checksums of their frame.
            let _ = delta.decode(LogPosition(position), record);
        }
    }
}

#[test]
fn encoder_begins_anew_once_series_have_their_rounds() {
    let rounds = ROUNDS as i64;
    let batches: Vec<_> = (0..=rounds)
        .map(|i| batch(&[row(1, i * 1_000, 1e9), row(2, i * 1_000, 5e9)]))
        .collect();
    let bytes = check(&batches);
    let backs: Vec<u8> = encode(&batches).iter().map(|b| b[0]).collect();
    let expected: Vec<u8> = (0..rounds as u8).chain([0]).collect();
    assert_eq!(backs, expected);
    // Times and values are encoded in full again.
    assert!(
        bytes[rounds as usize] > bytes[rounds as usize - 1] + 5,
        "{bytes:?}"
    );
}

#[test]
fn encoder_that_began_gives_its_memory_back() {
    let mut delta = DeltaRecordEncoder::default();
    let rows: Vec<_> = (0..1_000).map(|slot| row(slot, 5, 1.0)).collect();
    assert!(encode_one(&mut delta, 1, &batch(&rows)).is_some());
    assert_eq!(delta.series, 1_000);
    delta.begin();
    assert_eq!(
        format!("{:?}", delta.context),
        "PredictorContext { slabs: {} }"
    );
}
