//! Delta-coded records: what is decoded reads as what was logged, to the bit, or is an error.

use super::*;
use crate::encoding::decimal::Scale;
use crate::log::record::{HistogramRow, RecordEncoder, RecordReader, Row};
use crate::seeds::seeds;
use crate::trial::with_flaw;
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::labels::Labels;
use firn_model::sample::stale_nan;

const BYTES_MAX: usize = 1 << 20;

/// A row with its bits.
type Bits = (u32, i64, i64, u64);

fn row(slot: u32, time: i64, value: f64) -> Row {
    Row {
        slot,
        time,
        start: 0,
        value,
    }
}

fn payload(rows: &[Row]) -> Vec<u8> {
    let mut encoder = RecordEncoder::default();
    for row in rows {
        encoder.rows.push(*row, Scale::find(row.value));
    }
    encoder.finish()
}

/// What a payload says: births, rows and histograms.
fn read(payload: &[u8]) -> (Vec<(u32, Labels)>, Vec<Bits>, Vec<HistogramRow>) {
    let record = RecordReader::new(payload).unwrap();
    let mut births = Vec::new();
    let birth = |slot, labels: firn_model::labels::LabelsRef<'_>| {
        births.push((slot, labels.to_owned()));
    };
    record.created_series().read_labels(birth).unwrap();
    let (mut rows, mut histograms) = (Vec::new(), Vec::new());
    record
        .samples(|row| rows.push(row), &mut histograms)
        .unwrap();
    let bits = |r: &Row| (r.slot, r.time, r.start, r.value.to_bits());
    (births, rows.iter().map(bits).collect(), histograms)
}

/// The delta-coded records of payloads at the positions from 1 on.
fn encode(payloads: &[Vec<u8>]) -> Vec<Vec<u8>> {
    encode_by_writers(payloads, |_| false)
}

/// Like `encode`, by several writers: a new one begins where `is_new` says so.
fn encode_by_writers(payloads: &[Vec<u8>], is_new: impl Fn(u64) -> bool) -> Vec<Vec<u8>> {
    let mut delta = DeltaEncoder::default();
    let mut records = Vec::new();
    for (payload, position) in payloads.iter().zip(1..) {
        if is_new(position) {
            delta.begin();
        }
        let mut record = Vec::new();
        assert!(delta.encode(Position(position), payload, BYTES_MAX, &mut record));
        records.push(record);
    }
    records
}

/// Encodes and decodes; returns the bytes of each record.
#[track_caller]
fn check(payloads: &[Vec<u8>]) -> Vec<usize> {
    let mut delta = DeltaDecoder::default();
    let records = encode(payloads);
    for ((payload, record), position) in payloads.iter().zip(&records).zip(1..) {
        let decoded = delta.decode(Position(position), record).unwrap();
        assert_eq!(read(&decoded), read(payload), "record {position}");
    }
    records.iter().map(Vec::len).collect()
}

/// Each value in a record of its own, of one series.
#[track_caller]
fn check_values(values: &[f64]) {
    let rows = |(value, time): (&f64, i64)| payload(&[row(7, time, *value)]);
    let payloads: Vec<_> = values.iter().zip(0..).map(rows).collect();
    check(&payloads);
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
        3 => (round * 1_000_003 * kind + rng.below(1_000)) as f64,
        4 => rng.below(100_000) as f64 / 1_000.0,
        5 => (round as f64 + kind as f64) / 3.0,
        6 => rng.below(4) as f64 * 1e-9,
        _ => rng.below(7) as f64,
    }
}

/// Rows of records in which series come and go; contexts begin anew now and then.
fn random_rows(rng: &SimRng) -> Vec<Vec<Row>> {
    let base = match rng.below(3) {
        0 => u32::MAX - 300,
        _ => rng.below(1_000) as u32,
    };
    let series = 1 + rng.below(200);
    let rounds = 1 + rng.below(90);
    let mut records = Vec::new();
    for round in 0..rounds {
        let first = rng.below(series);
        let mut rows: Vec<Row> = (first..=first + rng.below(series - first))
            .map(|kind| {
                let time = round as i64 * 15_000 + kind as i64 / 20;
                row(base + kind as u32, time, random_value(rng, kind, round))
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
        check(&rows.iter().map(|r| payload(r)).collect::<Vec<_>>());
    }
}

/// Loses some records and decodes the others; an error if one reads as something else, or if one is
/// refused although nothing that it is measured against was lost.
fn lose_records(seed: u64) -> Result<(), String> {
    let rng = SimRng::new(seed);
    let rows = random_rows(&rng);
    let payloads: Vec<_> = rows.iter().map(|r| payload(r)).collect();
    let mut delta = DeltaDecoder::default();
    let mut lost_slots = std::collections::HashSet::new();
    let mut began = Position(0);
    let records = encode_by_writers(&payloads, |_| rng.one_in(20));
    for (i, record) in records.iter().enumerate() {
        let position = Position(i as u64 + 1);
        let back = Cursor::new(record).uvarint().unwrap();
        if Position(position.0 - back) != began {
            began = Position(position.0 - back);
            lost_slots.clear();
        }
        let slots = rows[i].iter().map(|r| r.slot);
        if rng.one_in(5) {
            lost_slots.extend(slots);
            continue;
        }
        let needs_lost = slots.clone().any(|slot| lost_slots.contains(&slot));
        match delta.decode(position, record) {
            Ok(decoded) if read(&decoded) != read(&payloads[i]) => {
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
    let outcome = with_flaw(Flaw::TrustsContext, || {
        (0..20).map(lose_records).collect::<Vec<_>>()
    });
    assert!(outcome.iter().any(Result::is_err));
    let outcome = with_flaw(Flaw::MixesContexts, || {
        (0..200).map(lose_records).collect::<Vec<_>>()
    });
    assert!(outcome.iter().any(Result::is_err));
}

#[test]
fn payload_that_is_no_batch_of_floats_stays_as_it_is() {
    let mut delta = DeltaEncoder::default();
    let mut record = Vec::new();
    let mut births = RecordEncoder::default();
    births.push_created(3, Labels::from_pairs([("a", "b")]).as_ref());
    let whole = payload(&[row(1, 2, 3.0), row(2, 2, 4.5)]);
    let mut newer = whole.clone();
    newer[0] = 3;
    let mut more = whole.clone();
    more[3] = 9;
    let cut = whole[..whole.len() - 4].to_vec();
    let others = [
        births.finish(),
        newer,
        more,
        cut,
        b"text".to_vec(),
        Vec::new(),
    ];
    for payload in others {
        assert!(!delta.encode(Position(1), &payload, BYTES_MAX, &mut record));
    }
    assert!(!delta.encode(Position(1), &whole, 30, &mut record));
    assert!(delta.encode(Position(9), &whole, BYTES_MAX, &mut record));
    // As if nothing had been before.
    assert_eq!(record, encode(&[whole])[0]);
}

#[test]
fn delta_coded_record_keeps_births_and_histograms() {
    let histogram = crate::log::record::tests::histogram(1).value;
    let mut encoder = RecordEncoder::default();
    let payloads = [1, 2, 3].map(|slot| {
        encoder.push_created(slot, Labels::from_pairs([("a", "b")]).as_ref());
        encoder.rows.push(row(slot, 5, 0.25), Scale::find(0.25));
        encoder.push_histogram(slot, 5, 0, &histogram);
        encoder.finish()
    });
    check(&payloads);
}

#[test]
fn delta_coded_record_changed_anywhere_is_read_or_refused_without_a_panic() {
    for seed in seeds(300) {
        let rng = SimRng::new(seed);
        let mut delta = DeltaDecoder::default();
        let payloads: Vec<_> = random_rows(&rng).iter().map(|r| payload(r)).collect();
        for (record, position) in encode(&payloads).iter_mut().zip(1..) {
            let at = rng.below(record.len() as u64) as usize;
            match rng.below(3) {
                0 => record[at] ^= 1 << rng.below(8),
                1 => record.truncate(at),
                _ => {}
            }
            // What it reads is protected by the checksums around it.
            let _ = delta.decode(Position(position), record);
        }
    }
}

#[test]
fn encoder_begins_anew_once_series_have_their_rounds() {
    let rounds = ROUNDS as i64;
    let payloads: Vec<_> = (0..=rounds)
        .map(|i| payload(&[row(1, i * 1_000, 1e9), row(2, i * 1_000, 5e9)]))
        .collect();
    let bytes = check(&payloads);
    let backs: Vec<u8> = encode(&payloads).iter().map(|b| b[0]).collect();
    let expected: Vec<u8> = (0..rounds as u8).chain([0]).collect();
    assert_eq!(backs, expected);
    // Time and values are written out again.
    assert!(
        bytes[rounds as usize] > bytes[rounds as usize - 1] + 5,
        "{bytes:?}"
    );
}

#[test]
fn encoder_that_began_gives_its_memory_back() {
    let mut delta = DeltaEncoder::default();
    let mut record = Vec::new();
    let rows: Vec<_> = (0..1_000).map(|slot| row(slot, 5, 1.0)).collect();
    assert!(delta.encode(Position(1), &payload(&rows), BYTES_MAX, &mut record));
    assert_eq!(delta.series, 1_000);
    delta.begin();
    assert_eq!(format!("{:?}", delta.context), "Context { slabs: {} }");
}
