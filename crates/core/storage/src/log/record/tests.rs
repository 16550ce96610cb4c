//! Tests of log records: decoding inverts encoding, golden bytes are stable, corrupt bytes are
//! errors.

use super::*;
use crate::chunk::OpenChunk;
use crate::encoding::decimal::DecimalScale;
use crate::index::Index;
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::exemplar::{SeriesExemplars, TimedExemplar};
use firn_model::fingerprint::HashKeys;
use firn_model::histogram::{Histogram, HistogramCounts, ResetHint};
use firn_model::labels::{Labels, LabelsRef, is_canonical};
use firn_model::log::{FloatRow, JournalRecord};
use firn_model::sample::stale_nan;
use firn_model::series_key::{CanonicalKeys, KeyFormat};

type Created = Vec<(u64, Labels)>;

/// A row with the bits of its value.
type Bits = (u64, i64, i64, u64);

/// Returns the decimal scale that a search finds for a value.
pub(crate) fn hint(value: f64) -> DecimalHint {
    let found = DecimalScale::find_for_value(value);
    found.map_or(DecimalHint::NONE, |(scale, _)| DecimalHint(scale.code()))
}

fn batch(created: &Created, rows: &[FloatRow], histograms: &[HistogramRow]) -> LogBatch {
    let mut batch = LogBatch::default();
    for (slot, labels) in created {
        batch.created.push(*slot, labels.as_ref());
    }
    for row in rows {
        batch.floats.push(*row, hint(row.value));
    }
    batch.histograms = histograms.to_vec();
    batch
}

fn encode(batch: &LogBatch) -> Vec<u8> {
    let (mut encoder, mut bytes) = (LogRecordEncoder::default(), Vec::new());
    // The result must not depend on the previous batch.
    let mut before = crate::payload::batch_of(b"before");
    let row = FloatRow {
        slot: 1,
        time: 2,
        start: 3,
        value: 4.0,
    };
    before.floats.push(row, hint(4.0));
    before.late_floats.push(row, hint(4.0));
    encoder.encode(&before, &mut bytes);
    encoder.encode(batch, &mut bytes);
    bytes
}

/// Returns the contents of a batch without exemplars, in a comparable form.
pub(crate) fn contents(batch: &LogBatch) -> (Created, Vec<Bits>, Vec<HistogramRow>) {
    let mut created = Vec::new();
    let each = |slot, labels: LabelsRef<'_>| created.push((slot, labels.to_owned()));
    batch.created.for_each(each);
    let bits = |row: FloatRow| (row.slot, row.time, row.start, row.value.to_bits());
    (
        created,
        batch.floats.iter().map(bits).collect(),
        batch.histograms.clone(),
    )
}

#[track_caller]
fn check(batch: &LogBatch, context: &str) {
    let read = decode(&encode(batch), &mut PlainValueDecoder).unwrap();
    assert_eq!(contents(&read), contents(batch), "{context}");
}

/// Returns a histogram sample without buckets.
pub(crate) fn histogram(slot: u64) -> HistogramRow {
    HistogramRow {
        slot,
        time: -5,
        start: 7,
        value: Arc::new(Histogram {
            reset_hint: ResetHint::Unknown,
            schema: 0,
            zero_threshold: 0.5,
            sum: 3.25,
            counts: HistogramCounts::Float {
                count: 2.0,
                zero_count: 2.0,
                positive: Vec::new(),
                negative: Vec::new(),
            },
            positive_spans: Vec::new(),
            negative_spans: Vec::new(),
            custom_values: Vec::new(),
        }),
    }
}

fn random_created(rng: &SimRng) -> Created {
    let mut slot = rng.next_below(1_000) << rng.next_below(50);
    let mut created = Vec::new();
    for _ in 0..rng.next_below(40) {
        slot += 1 + rng.next_below(3);
        let pairs = (0..rng.next_below(90))
            .filter(|_| !rng.one_in(4))
            .map(|i| (format!("label_{i:02}"), format!("v{}", rng.next_below(2))));
        created.push((slot, Labels::from_pairs(pairs)));
    }
    created
}

fn random_row(rng: &SimRng, i: u64) -> FloatRow {
    let value = match rng.next_below(6) {
        0 => f64::from_bits(rng.next_u64()),
        1 => stale_nan(),
        2 => rng.next_below(100_000) as f64 / 1_000.0,
        _ => rng.next_below(50) as f64,
    };
    FloatRow {
        slot: if rng.one_in(9) {
            rng.next_u64() >> 1
        } else {
            i
        },
        time: if rng.one_in(9) {
            rng.next_u64() as i64
        } else {
            1_000
        },
        start: if rng.one_in(99) {
            rng.next_u64() as i64
        } else {
            0
        },
        value,
    }
}

#[test]
fn record_of_random_batches_returns_them() {
    for seed in 0..500 {
        let rng = SimRng::new(seed);
        let created = random_created(&rng);
        let rows: Vec<FloatRow> = (0..rng.next_below(300))
            .map(|i| random_row(&rng, i))
            .collect();
        let histograms: Vec<_> = (0..rng.next_below(3)).map(histogram).collect();
        check(
            &batch(&created, &rows, &histograms),
            &format!("seed {seed}"),
        );
    }
}

#[test]
fn record_from_corrupt_bytes_never_panics() {
    for seed in 0..20_000 {
        let rng = SimRng::new(seed);
        let rows: Vec<FloatRow> = (0..20).map(|i| random_row(&rng, i)).collect();
        let created = vec![
            (1, Labels::from_pairs([("a", "1"), ("b", "2")])),
            (2, Labels::from_pairs([("a", "1"), ("b", "3")])),
        ];
        let mut bytes = encode(&batch(&created, &rows, &[histogram(3)]));
        for _ in 0..=rng.next_below(3) {
            let at = rng.next_below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        bytes.truncate(rng.next_below(bytes.len() as u64 + 1) as usize);
        if let Ok(batch) = decode(&bytes, &mut PlainValueDecoder) {
            let read = batch.created.records().read_labels(|_, labels| {
                assert!(is_canonical(labels.as_bytes()), "seed {seed}");
            });
            assert_eq!(read, Ok(()), "seed {seed}");
        }
    }
}

/// Neighbours share a scrape time and differ little, as in the records of a typical fleet.
#[test]
fn record_of_a_steady_target_takes_a_byte_or_two_a_sample() {
    let rows: Vec<FloatRow> = (0..2_000)
        .map(|i| FloatRow {
            slot: 5_000 + i,
            time: 1_763_000_000_123,
            start: 0,
            value: (i / 12 * 7_000 + i % 12 * 90) as f64,
        })
        .collect();
    let bytes = encode(&batch(&Vec::new(), &rows, &[]));
    assert!(bytes.len() < 2_000 * 5 / 2, "{} bytes", bytes.len());
}

#[test]
fn open_chunk_newest_decimal_is_what_the_log_would_find() {
    let mut open = OpenChunk::default();
    for (i, value) in [1.0, 2.5, 2.5, stale_nan(), 1.0 / 3.0, 0.25]
        .into_iter()
        .enumerate()
    {
        open.push_float(i as i64, 0, value);
        let known = open.newest_decimal().map(|(s, i)| s.to_float(i).to_bits());
        let expected = DecimalScale::find_for_value(value).map(|_| value.to_bits());
        assert_eq!(known, expected, "{value}");
    }
}

/// If the format changes, `docs/format/log-record.md` and the format number of the data folder must
/// change too.
#[test]
fn record_golden_bytes_stay() {
    let created = vec![
        (7, Labels::from_pairs([("__name__", "up"), ("pod", "a")])),
        (8, Labels::from_pairs([("__name__", "up"), ("pod", "b")])),
    ];
    let row = |slot, value| FloatRow {
        slot,
        time: 1_000,
        start: 0,
        value,
    };
    let golden: Vec<u8> = [
        // Version, two created series in 28 bytes.
        &[1, 2, 28][..],
        b"\x07\xc0\x08__name__\x02up\xc0\x03pod\x01a\x00",
        b"\x01\x01\x80\x01b\x00",
        // Two rows: slots 7 and 8, one time, a step of 1 and a repeat.
        &[2],
        &[2, 14, 11],
        &[4, 0xe7, 0xd0, 0xe7, 0xcf],
        &[2, 2, 0xa0],
        // No starts, no histograms.
        &[0, 0],
    ]
    .concat();
    let rows = [row(7, 1.0), row(8, 1.0)];
    assert_eq!(encode(&batch(&created, &rows, &[])), golden);
}

/// A key format that puts a mark before each label.
#[derive(Debug)]
struct MarkedKeys;

impl KeyFormat for MarkedKeys {
    fn name(&self) -> &'static str {
        "marked"
    }

    fn push_label(&self, key: &mut Vec<u8>, name: &[u8], value: &[u8]) -> usize {
        key.push(b'#');
        1 + CanonicalKeys.push_label(key, name, value)
    }
}

#[test]
fn series_of_random_sets_read_as_keys_and_as_steps_are_the_labels() {
    for seed in 0..300 {
        let rng = SimRng::new(seed);
        let created = random_created(&rng);
        let batch = batch(&created, &[], &[]);
        let records = batch.created.records();
        let mut keys = Vec::new();
        let each = |slot, key: &[u8]| keys.push((slot, key.to_vec()));
        records.clone().read(&MarkedKeys, each).unwrap();
        let index = Index::new(Arc::new(HashKeys::new(&rng)));
        let (mut steps, mut interning) = (records, index.create_series());
        assert_eq!(keys.len(), created.len(), "seed {seed}");
        for ((slot, labels), (read, key)) in created.iter().zip(&keys) {
            let mut expected = Vec::new();
            MarkedKeys.push_key(&mut expected, labels.as_ref());
            assert_eq!((read, key), (slot, &expected), "seed {seed}");
            let terms = interning.intern_steps(steps.steps()).unwrap().to_vec();
            assert_eq!(
                terms,
                interning.intern(labels.as_ref()).unwrap(),
                "seed {seed}"
            );
        }
    }
}

fn exemplar(labels: &Labels, value: f64, time: i64) -> TimedExemplar<'_> {
    TimedExemplar {
        labels: labels.as_ref(),
        value,
        time,
        has_own_time: time % 2 == 0,
    }
}

#[test]
fn record_with_exemplars_returns_them_and_the_rest() {
    for seed in 0..200 {
        let rng = SimRng::new(seed);
        let mut wanted = SeriesExemplars::default();
        for _ in 0..rng.next_below(9) {
            let labels = random_created(&rng).pop().map(|(_, labels)| labels);
            let labels = labels.unwrap_or_default();
            let value = f64::from_bits(rng.next_u64() & !(1 << 62));
            let exemplar = exemplar(&labels, value, rng.next_u64() as i64);
            wanted.push(rng.next_u64(), exemplar);
        }
        let mut batch = LogBatch {
            exemplars: wanted.clone(),
            ..LogBatch::default()
        };
        assert_eq!(batch.is_empty(), wanted.is_empty());
        batch.floats.push(random_row(&rng, 3), DecimalHint::NONE);
        let bytes = encode(&batch);
        let found = decode(&bytes, &mut PlainValueDecoder).unwrap();
        let list = |e: &SeriesExemplars| format!("{:?}", e.iter().collect::<Vec<_>>());
        assert_eq!(list(&found.exemplars), list(&wanted), "seed {seed}");
        assert_eq!(found.floats.len(), 1, "seed {seed}");
        for _ in 0..50 {
            let mut bytes = bytes.clone();
            let at = rng.next_below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
            // Any result is fine except a panic.
            let _ = decode(&bytes, &mut PlainValueDecoder);
        }
    }
}

#[test]
fn record_with_exemplars_golden_bytes_stay() {
    let (a, b) = (
        Labels::from_pairs([("trace_id", "a")]),
        Labels::from_pairs([("trace_id", "b")]),
    );
    let mut batch = LogBatch::default();
    batch.exemplars.push(7, exemplar(&a, 1.5, 1_000));
    batch.exemplars.push(300, exemplar(&b, 1.5, 1_001));
    let golden: Vec<u8> = [
        // Version, 41 bytes of exemplars.
        &[2, 41][..],
        // Slot, time, value, a time of its own, labels.
        &[7, 0xd0, 15, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 1],
        b"\xc0\x08trace_id\x01a\x00",
        &[0xac, 2, 2, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0],
        b"\x80\x01b\x00",
        // No created series, no rows, no histograms.
        &[0, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(encode(&batch), golden);
}

/// Returns a batch with late samples, and sometimes others.
fn late_batch(rng: &SimRng) -> LogBatch {
    let rows = |count: u64| -> Vec<FloatRow> {
        let count = rng.next_below(count);
        (0..count).map(|i| random_row(rng, i)).collect()
    };
    let mut late = batch(&random_created(rng), &rows(20), &[]);
    for row in rows(20) {
        late.late_floats.push(row, DecimalHint::NONE);
    }
    late.late_histograms = (0..rng.next_below(3)).map(histogram).collect();
    late.late_order = rng.next_u64();
    let labels = Labels::from_pairs([("trace_id", "a")]);
    if rng.one_in(2) {
        late.exemplars.push(3, exemplar(&labels, 1.5, 1_000));
    }
    late
}

#[test]
fn record_with_late_samples_returns_them_and_the_rest() {
    for seed in 0..300 {
        let rng = SimRng::new(seed);
        let batch = late_batch(&rng);
        let bytes = encode(&batch);
        let found = decode(&bytes, &mut PlainValueDecoder).unwrap();
        assert_eq!(contents(&found), contents(&batch), "seed {seed}");
        let late = |batch: &LogBatch| {
            let bits = |row: FloatRow| (row.slot, row.time, row.start, row.value.to_bits());
            let floats: Vec<Bits> = batch.late_floats.iter().map(bits).collect();
            (floats, batch.late_histograms.clone())
        };
        assert_eq!(late(&found), late(&batch), "seed {seed}");
        assert_eq!(found.exemplars.len(), batch.exemplars.len(), "seed {seed}");
        let order = if batch.has_late() {
            batch.late_order
        } else {
            0
        };
        assert_eq!(found.late_order, order, "seed {seed}");
        for _ in 0..50 {
            let mut bytes = bytes.clone();
            let at = rng.next_below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
            bytes.truncate(rng.next_below(bytes.len() as u64 + 1) as usize);
            // Any result is fine except a panic.
            let _ = decode(&bytes, &mut PlainValueDecoder);
        }
    }
}

#[test]
fn record_with_late_samples_golden_bytes_stay() {
    let mut batch = LogBatch::default();
    for (time, start, value) in [(1_000, 0, 1.5), (900, 7, 1.5)] {
        let row = FloatRow {
            slot: 7,
            time,
            start,
            value,
        };
        batch.late_floats.push(row, hint(value));
    }
    batch.late_histograms.push(histogram(8));
    batch.late_order = 300;
    let bytes = encode(&batch);
    let golden: Vec<u8> = [
        // Version, no exemplars, no created series, no rows, no histograms.
        &[3, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        // Sequence number; two rows of slot 7: times, one value, start timestamps.
        &[0xac, 2, 2],
        &[2, 14, 13],
        &[4, 231, 208, 232, 151],
        &[4, 240, 1, 30, 160],
        &[2, 192, 14],
        // A histogram: slot, time, start timestamp, and its encoding.
        &[1, 8, 9, 14],
        &[3, 0, 0, 0, 0, 0, 0, 0, 224, 63, 0, 0, 0, 0, 0, 98],
        &[10, 64, 113, 64, 113, 64],
    ]
    .concat();
    assert_eq!(bytes, golden, "{bytes:#04x?}");
}

#[test]
fn record_with_a_journal_returns_it_and_the_rest() {
    let marks = [
        JournalMark::Continues,
        JournalMark::Begins,
        JournalMark::Complete,
        JournalMark::Whole,
        JournalMark::Ends,
    ];
    for seed in 0..100 {
        let rng = SimRng::new(seed);
        let mut batch = if rng.one_in(3) {
            LogBatch::default()
        } else {
            late_batch(&rng)
        };
        let bytes = (0..rng.next_below(300))
            .map(|_| rng.next_u64() as u8)
            .collect();
        let mark = marks[rng.next_below(5) as usize];
        batch.journal = JournalRecord { mark, bytes };
        let bytes = encode(&batch);
        let found = decode(&bytes, &mut PlainValueDecoder).unwrap();
        assert_eq!(found.journal, batch.journal, "seed {seed}");
        assert_eq!(contents(&found), contents(&batch), "seed {seed}");
        assert_eq!(
            found.late_floats.len(),
            batch.late_floats.len(),
            "seed {seed}"
        );
        for _ in 0..50 {
            let mut bytes = bytes.clone();
            let at = rng.next_below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
            bytes.truncate(rng.next_below(bytes.len() as u64 + 1) as usize);
            // Any result is fine except a panic.
            let _ = decode(&bytes, &mut PlainValueDecoder);
        }
    }
}

#[test]
fn record_with_a_journal_golden_bytes_stay() {
    let batch = LogBatch {
        journal: JournalRecord {
            mark: JournalMark::Whole,
            bytes: b"abc".to_vec(),
        },
        ..LogBatch::default()
    };
    // Version, no exemplars, mark, bytes, nothing created, no rows, no late rows.
    let golden = [&[4, 0, 3, 3][..], b"abc", &[0; 8], &[0; 7]].concat();
    assert_eq!(encode(&batch), golden);
}
