//! Tests logs built by hand: complete, compressed, torn and damaged.

use super::entry::{WalEntries, WalEntry};
use super::reader::{HEADER_BYTES, PAGE_BYTES, WalReader, WalTailPolicy};
use crate::bytes::{checksum, push_prefixed, push_uvarint, push_varint};
use crate::error::TsdbError;
use crate::ranges::NamedRangeFile;
use crate::sample::{TsdbSample, TsdbSampleValue};
use firn_model::env::sim::SimRng;
use firn_model::histogram::{CUSTOM_BUCKETS_SCHEMA, HistogramCounts, ResetHint};
use firn_model::labels::Labels;
use firn_model::metadata::MetricType;
use firn_model::sample::TimeRange;

fn compress_snappy(record: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(record).unwrap()
}

/// Encodes a segment with these records; `packing` is 0 for uncompressed ones, 8 for snappy.
pub(crate) fn segment(records: &[Vec<u8>], packing: u8) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        let packed = if packing == 8 {
            compress_snappy(record)
        } else {
            record.clone()
        };
        let mut rest = &packed[..];
        let mut is_first = true;
        while is_first || !rest.is_empty() {
            let left = PAGE_BYTES as usize - out.len() % PAGE_BYTES as usize;
            if left <= HEADER_BYTES as usize {
                out.resize(out.len() + left, 0);
                continue;
            }
            let (part, behind) = rest.split_at(rest.len().min(left - HEADER_BYTES as usize));
            rest = behind;
            let kind = match (is_first, rest.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            out.push(kind | packing);
            out.extend((part.len() as u16).to_be_bytes());
            out.extend(checksum(part).to_be_bytes());
            out.extend(part);
            is_first = false;
        }
    }
    out
}

/// Encodes a record with one series.
pub(crate) fn series(number: u64, labels: &Labels) -> Vec<u8> {
    let mut out = vec![1];
    out.extend(number.to_be_bytes());
    push_uvarint(&mut out, labels.iter().count() as u64);
    out.extend(labels.as_bytes());
    out
}

/// Encodes a record of floats.
pub(crate) fn samples(samples: &[(u64, i64, f64)]) -> Vec<u8> {
    let mut out = vec![2];
    let (series, time, _) = samples[0];
    out.extend(series.to_be_bytes());
    out.extend(time.to_be_bytes());
    for (of, at, value) in samples {
        push_varint(&mut out, *of as i64 - series as i64);
        push_varint(&mut out, at - time);
        out.extend(value.to_bits().to_be_bytes());
    }
    out
}

/// Encodes a record that deletes a range.
pub(crate) fn deletion(number: u64, range: TimeRange) -> Vec<u8> {
    let mut out = vec![3];
    out.extend(number.to_be_bytes());
    push_varint(&mut out, range.min);
    push_varint(&mut out, range.max);
    out
}

/// Encodes a marker for samples that were moved to a chunk.
pub(crate) fn marker(number: u64, chunk: u64) -> Vec<u8> {
    let mut out = vec![5];
    out.extend(number.to_be_bytes());
    out.extend(chunk.to_be_bytes());
    out
}

fn read(segments: &[Vec<u8>], tail: WalTailPolicy) -> Result<(Vec<Vec<u8>>, bool), TsdbError> {
    let files = segments.iter().enumerate();
    let files: Vec<_> = files
        .map(|(i, bytes)| NamedRangeFile::new(format!("wal/{i}"), bytes))
        .collect();
    let mut reader = WalReader::new(&files, tail);
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record.to_vec());
    }
    Ok((records, reader.torn_end().is_some()))
}

fn records(seed: u64) -> Vec<Vec<u8>> {
    let rng = SimRng::new(seed);
    let record = |_| {
        let longest = [30, 4_000, 90_000][rng.next_below(3) as usize];
        let length = rng.next_below(longest);
        (0..length).map(|_| 1 + rng.next_below(200) as u8).collect()
    };
    (0..rng.next_below(40)).map(record).collect()
}

fn entries(record: &[u8]) -> Vec<WalEntry<'_>> {
    let entries: Result<Vec<_>, _> = WalEntries::new(record).collect();
    entries.expect("the record is sound")
}

#[test]
fn records_of_any_length_read_as_they_were() {
    for seed in 0..60 {
        let wanted = records(seed);
        for packing in [0, 8] {
            let half = wanted.len() / 2;
            let segments = [&wanted[..half], &wanted[half..]].map(|r| segment(r, packing));
            let (found, _) = read(&segments, WalTailPolicy::IsWhole).expect("it is sound");
            assert!(found == wanted, "seed {seed}");
        }
    }
}

/// The output of zstd 1.5 for twelve lines of samples.
const ZSTD_LINES: &[u8] = b"\x28\xb5\x2f\xfd\x04\x58\x35\x03\x00\xa2\x05\x12\x17\xa0\x29\x1d\x0f\
    \x58\xfb\x0f\xcd\x7d\x01\x18\x62\x2c\x69\x72\xcb\xbd\xd1\x66\x42\xd5\x60\x18\xc5\xc6\
    \x7c\x5d\xe6\x5b\xb6\xc1\x37\xd9\xf1\x35\x92\xf1\x0d\xdc\xe1\x7b\xc8\xf0\x45\x67\xbe\
    \x96\xf8\x1e\xe3\x6b\xcc\xd7\xa5\xf8\x16\x20\x41\x10\x86\x0a\x0a\x84\x63\x90\x20\xc7\
    \x61\x91\x50\x04\x0b\x00\x7c\xf3\x19\x90\x14\x90\x14\x90\x14\x90\x14\x9e\xa4\x90\x38\
    \x29\x20\xd1\x20\xd1\x20\xd1\xac\x37\xc7\x02\xee\xea\xaa";

#[test]
fn record_packed_by_zstd_is_read() {
    let lines: String = (0..12)
        .map(|i| format!("up{{instance=\"host-{i}\"}} {}\n", i * i))
        .collect();
    // A frame with one run of the letter a, 200 times.
    let run = b"\x28\xb5\x2f\xfd\x20\xc8\x43\x06\x00a";
    let packed = |data: &[u8]| {
        let mut segment = segment(&[data.to_vec()], 0);
        segment[0] |= 16;
        segment
    };
    for (frames, wanted) in [
        (ZSTD_LINES.to_vec(), lines.clone()),
        (run.to_vec(), "a".repeat(200)),
        ([ZSTD_LINES, run].concat(), lines + &"a".repeat(200)),
    ] {
        let (found, _) = read(&[packed(&frames)], WalTailPolicy::IsWhole).expect("it is sound");
        assert!(found == [wanted.as_bytes()], "{} bytes", frames.len());
    }
    // Truncated, and with a window of 2 GiB, which is rejected before memory is allocated.
    let wide = b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00";
    for frame in [&ZSTD_LINES[..60], wide] {
        let error = read(&[packed(frame)], WalTailPolicy::IsWhole).unwrap_err();
        assert!(error.to_string().contains("not valid zstd"), "{error}");
    }
}

#[test]
fn torn_tail_ends_the_last_segment_and_is_damage_elsewhere() {
    let wanted: Vec<Vec<u8>> = (0..400).map(|i| vec![(i % 200) as u8 + 1; 300]).collect();
    let whole = segment(&wanted, 0);
    let page = PAGE_BYTES as usize;
    for cut in [
        1,
        6,
        7,
        100,
        page - 1,
        page,
        page + 1,
        2 * page + 17,
        whole.len() - 1,
    ] {
        let torn = whole[..cut].to_vec();
        let (found, _) =
            read(std::slice::from_ref(&torn), WalTailPolicy::MayBeTorn).expect("it is the end");
        assert_eq!(found, wanted[..found.len()], "cut at {cut}");
        assert!(found.len() + 2 > cut / 307, "cut at {cut}: {}", found.len());
        let behind = [torn.clone(), Vec::new()];
        assert!(
            read(&behind, WalTailPolicy::MayBeTorn).is_ok(),
            "an empty segment ends nothing"
        );
        let is_between = found.iter().map(|r| r.len() + 7).sum::<usize>() == cut;
        let elsewhere = read(&[torn.clone(), whole.clone()], WalTailPolicy::MayBeTorn);
        assert_eq!(elsewhere.is_ok(), is_between, "cut at {cut}");
        assert_eq!(
            read(&[torn], WalTailPolicy::IsWhole).is_ok(),
            is_between,
            "cut at {cut}"
        );
    }
}

#[test]
fn page_of_zeros_at_the_end_is_none() {
    let mut bytes = segment(&[vec![9; 10]], 0);
    bytes.resize(3 * PAGE_BYTES as usize, 0);
    assert_eq!(
        read(&[bytes], WalTailPolicy::IsWhole),
        Ok((vec![vec![9; 10]], false))
    );
}

#[test]
fn damage_in_front_of_the_last_page_is_an_error_that_names_file_and_offset() {
    let wanted: Vec<Vec<u8>> = (0..400).map(|i| vec![(i % 200) as u8 | 1; 300]).collect();
    let whole = segment(&wanted, 0);
    let last_page = whole.len() - whole.len() % PAGE_BYTES as usize;
    for at in (0..last_page).step_by(97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x07;
        let error = read(&[Vec::new(), bytes], WalTailPolicy::MayBeTorn).unwrap_err();
        let TsdbError::Damaged { file, offset, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(file, "wal/1");
        assert!(
            (*offset as usize).abs_diff(at) <= 2 * 307,
            "{offset} for {at}"
        );
    }
    let mut bytes = whole;
    bytes[last_page + 20] ^= 1;
    let (found, is_torn) = read(&[bytes], WalTailPolicy::MayBeTorn).expect("it is the last page");
    assert!(is_torn && found.len() > 200, "{}", found.len());
}

#[test]
fn entries_of_series_deletions_and_markers_are_read() {
    let labels = Labels::from_pairs([("__name__", "up"), ("job", "a")]);
    let record = series(7, &labels);
    assert_eq!(entries(&record), [WalEntry::Series { series: 7, labels }]);
    let range = TimeRange::new(-5, 9);
    let record = deletion(3, range);
    assert_eq!(entries(&record), [WalEntry::Deletion { series: 3, range }]);
    let record = marker(3, 1 << 32 | 8);
    let mapped = WalEntry::Mapped {
        series: 3,
        chunk: 1 << 32 | 8,
    };
    assert_eq!(entries(&record), [mapped]);
    for record in [&b""[..], b"\x00", b"\xc8abc", b"\x01", b"\x02", b"\x0b"] {
        assert_eq!(entries(record), [], "{record:?}");
    }
}

#[test]
fn samples_of_both_versions_are_read() {
    let float = |series, time, start_time, value| WalEntry::Sample {
        series,
        sample: TsdbSample {
            time,
            start_time,
            value: TsdbSampleValue::Float(value),
        },
    };
    let record = samples(&[(9, 1_000, 1.5), (4, 990, -0.0)]);
    let wanted = [float(9, 1_000, 0, 1.5), float(4, 990, 0, -0.0)];
    assert_eq!(entries(&record), wanted);
    // With start timestamps: none, then a new one, then the same, then none.
    let mut record = vec![11];
    for number in [9, 1_000, 0] {
        push_varint(&mut record, number);
    }
    record.extend(1f64.to_bits().to_be_bytes());
    for (series, time, start, value) in [
        (-5, 10, &[2, 0x80, 0x01][..], 2f64),
        (1, 20, &[1], 3.0),
        (1, -30, &[0], 4.0),
    ] {
        push_varint(&mut record, series);
        push_varint(&mut record, time);
        record.extend(start);
        record.extend(value.to_bits().to_be_bytes());
    }
    let wanted = [
        float(9, 1_000, 0, 1.0),
        float(4, 1_010, 64, 2.0),
        float(5, 1_020, 64, 3.0),
        float(6, 970, 0, 4.0),
    ];
    assert_eq!(entries(&record), wanted);
}

fn histogram_record(kind: u8, schema: i64) -> Vec<u8> {
    let is_float = kind.is_multiple_of(2);
    let mut out = vec![kind];
    out.extend(5u64.to_be_bytes());
    out.extend(100i64.to_be_bytes());
    push_varint(&mut out, 0);
    push_varint(&mut out, 7);
    out.push(3);
    push_varint(&mut out, schema);
    out.extend(0f64.to_bits().to_be_bytes());
    for number in [0u64, 3] {
        if is_float {
            out.extend((number as f64).to_bits().to_be_bytes())
        } else {
            push_uvarint(&mut out, number)
        }
    }
    out.extend(2.5f64.to_bits().to_be_bytes());
    out.extend([1, 0, 2, 0, 2]);
    for bucket in [1i64, 1] {
        if is_float {
            out.extend((bucket as f64).to_bits().to_be_bytes())
        } else {
            push_varint(&mut out, bucket)
        }
    }
    out.push(0);
    if schema == i64::from(CUSTOM_BUCKETS_SCHEMA) {
        out.push(1);
        out.extend(0.5f64.to_bits().to_be_bytes());
    }
    out
}

#[test]
fn histograms_of_all_kinds_are_read() {
    for (kind, schema) in [(7, 2), (8, 2), (9, -53), (10, -53)] {
        let record = histogram_record(kind, schema);
        let read = entries(&record);
        let [WalEntry::Sample { series: 5, sample }] = &read[..] else {
            panic!("{read:?}");
        };
        assert_eq!(sample.time, 107);
        let TsdbSampleValue::Histogram(histogram) = &sample.value else {
            panic!("{sample:?}");
        };
        assert_eq!(i64::from(histogram.schema), schema);
        assert_eq!(
            (histogram.sum, histogram.reset_hint),
            (2.5, ResetHint::Gauge)
        );
        assert_eq!(histogram.counts.bucket_count(), 2);
        let is_float = matches!(histogram.counts, HistogramCounts::Float { .. });
        assert_eq!(is_float, kind.is_multiple_of(2));
        let bounds = if schema == -53 { &[0.5][..] } else { &[] };
        assert_eq!(histogram.custom_values, bounds);
    }
    let record = histogram_record(7, 53);
    let unknown = WalEntry::UnknownSchema {
        series: 5,
        time: 107,
        schema: 53,
    };
    assert_eq!(entries(&record), [unknown]);
    let mut misfit = histogram_record(7, 2);
    let spans = misfit.windows(5).position(|w| w == [1, 0, 2, 0, 2]);
    misfit[spans.expect("it is there") + 2] = 3;
    let read: Result<Vec<_>, _> = WalEntries::new(&misfit).collect();
    assert!(read.is_err());
}

#[test]
fn exemplars_and_metadata_are_read() {
    let mut record = vec![4];
    record.extend(5u64.to_be_bytes());
    record.extend(100i64.to_be_bytes());
    record.extend([0, 2]);
    record.extend(0.5f64.to_bits().to_be_bytes());
    record.push(1);
    push_prefixed(&mut record, b"trace_id");
    push_prefixed(&mut record, b"x");
    let exemplar = WalEntry::Exemplar {
        series: 5,
        labels: Labels::from_pairs([("trace_id", "x")]),
        time: 101,
        value: 0.5,
    };
    assert_eq!(entries(&record), [exemplar]);
    let mut record = vec![6, 5, 1, 3];
    for text in ["UNIT", "bytes", "NEW", "?", "HELP", "Bytes."] {
        push_prefixed(&mut record, text.as_bytes());
    }
    let metadata = WalEntry::Metadata {
        series: 5,
        metric_type: MetricType::Counter,
        unit: b"bytes",
        help: b"Bytes.",
    };
    assert_eq!(entries(&record), [metadata]);
}

#[test]
fn damaged_records_are_errors_or_other_entries_and_never_a_panic() {
    let labels = Labels::from_pairs([("__name__", "up")]);
    let sound = [
        series(1, &labels),
        samples(&[(1, 2, 3.0), (2, 3, 4.0)]),
        histogram_record(7, 2),
        histogram_record(10, -53),
    ];
    for seed in 0..2_000 {
        let rng = SimRng::new(seed);
        let mut record = sound[rng.next_below(4) as usize].clone();
        record[0] = if rng.one_in(2) {
            record[0]
        } else {
            rng.next_below(16) as u8
        };
        for _ in 0..rng.next_below(3) {
            let at = rng.next_below(record.len() as u64) as usize;
            record[at] = rng.next_below(256) as u8;
        }
        record.truncate(1 + rng.next_below(record.len() as u64) as usize);
        let failed = WalEntries::new(&record).filter(Result::is_err).count();
        assert!(failed <= 1, "seed {seed}: goes on behind an error");
    }
}
