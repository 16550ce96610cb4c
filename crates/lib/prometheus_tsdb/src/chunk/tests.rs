//! Tests that written chunks are read back unchanged, and that damage is an error.

use super::build::{BuiltChunk, ChunkBuilder, ChunkStartTimes};
use super::encoding::{ResetHeader, TsdbChunkEncoding, TsdbSampleKind};
use super::read::TsdbChunkSamples;
use crate::error::TsdbError;
use crate::sample::{TsdbSample, TsdbSampleValue};
use firn_model::env::sim::SimRng;
use firn_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint,
};
use firn_model::sample::stale_nan;

/// Builds the chunks of samples.
fn chunks(samples: &[TsdbSample], starts: ChunkStartTimes) -> Vec<BuiltChunk> {
    let mut builder = ChunkBuilder::new(starts);
    let mut chunks = Vec::new();
    for sample in samples {
        let (time, start) = (sample.time, sample.start_time);
        let closed = match &sample.value {
            TsdbSampleValue::Float(value) => builder.push_float(time, start, *value),
            TsdbSampleValue::Histogram(histogram) => builder.push_histogram(time, start, histogram),
        };
        chunks.extend(closed.expect("samples are in order"));
    }
    chunks.extend(builder.finish());
    chunks
}

fn read(chunk: &BuiltChunk) -> Vec<TsdbSample> {
    let samples = TsdbChunkSamples::new(chunk.encoding, &chunk.data).expect("it has a header");
    assert_eq!(samples.remaining(), chunk.samples);
    let samples: Result<Vec<_>, _> = samples.collect();
    let samples = samples.expect("it was written here");
    let times = samples.first().zip(samples.last());
    let times = times.map(|(first, last)| (first.time, last.time));
    assert_eq!(times, Some((chunk.min_time, chunk.max_time)));
    samples
}

/// Formats a sample, without empty buckets and without the reset hint.
fn told(sample: &TsdbSample, with_start: bool) -> String {
    let start = if with_start { sample.start_time } else { 0 };
    let value = match &sample.value {
        TsdbSampleValue::Float(value) => format!("{:x}", value.to_bits()),
        TsdbSampleValue::Histogram(histogram) => {
            let mut histogram = histogram.clone();
            histogram.reset_hint = ResetHint::Unknown;
            histogram.compact(0);
            format!("{:x} {histogram:?}", histogram.sum.to_bits())
        }
    };
    format!("{} {start} {value}", sample.time)
}

fn check(samples: &[TsdbSample], starts: ChunkStartTimes, seed: u64) -> Vec<BuiltChunk> {
    let chunks = chunks(samples, starts);
    let found: Vec<TsdbSample> = chunks.iter().flat_map(read).collect();
    let keeps = starts == ChunkStartTimes::Keep;
    assert_eq!(found.len(), samples.len(), "seed {seed}");
    for (found, pushed) in found.iter().zip(samples) {
        assert_eq!(told(found, true), told(pushed, keeps), "seed {seed}");
    }
    assert!(chunks.iter().all(|chunk| chunk.samples <= 120));
    chunks
}

fn floats(rng: &SimRng, count: usize) -> Vec<TsdbSample> {
    let starts = rng.next_below(4);
    let mut time = rng.next_below(1 << 40) as i64 - (1 << 39);
    let mut value = 0.0;
    let mut samples = Vec::new();
    for i in 0..count {
        time += match rng.next_below(30) {
            0 => 1 + rng.next_below(1 << 36) as i64,
            1 => 1 + rng.next_below(1 << 18) as i64,
            2..8 => 15_000 + rng.next_below(100) as i64,
            _ => 15_000,
        };
        value = match rng.next_below(12) {
            0 => f64::from_bits(rng.next_below(u64::MAX)),
            1 => stale_nan(),
            2..=6 => value,
            7 => f64::NAN,
            _ => value + rng.next_below(9) as f64,
        };
        samples.push(TsdbSample {
            time,
            start_time: match starts {
                0 => 0,
                1 => -5_000,
                2 if i > 100 => time - 15_000,
                3 => rng.next_below(3) as i64 * 777,
                _ => 0,
            },
            value: TsdbSampleValue::Float(value),
        });
    }
    samples
}

/// Returns histograms of a counter with occasional resets, of a gauge, or with custom buckets.
fn histograms(rng: &SimRng, count: usize) -> Vec<TsdbSample> {
    let (is_float, is_gauge) = (rng.one_in(2), rng.one_in(3));
    let is_custom = rng.one_in(3);
    let has_starts = rng.one_in(2);
    let mut buckets = [0u32; 24];
    let mut samples = Vec::new();
    for i in 0..count {
        if rng.one_in(50) {
            buckets = [0; 24];
        }
        let bucket = rng.next_below(buckets.len() as u64) as usize;
        buckets[bucket] += rng.next_below(5) as u32;
        let histogram = if rng.one_in(40) {
            stale(is_float)
        } else {
            histogram(&buckets, is_float, is_gauge, is_custom)
        };
        samples.push(TsdbSample {
            time: 1_000 * i as i64 + rng.next_below(9) as i64,
            start_time: if has_starts {
                5 + rng.next_below(2) as i64
            } else {
                0
            },
            value: TsdbSampleValue::Histogram(Box::new(histogram)),
        });
    }
    samples
}

fn stale(is_float: bool) -> Histogram {
    Histogram {
        sum: stale_nan(),
        zero_threshold: 0.0,
        schema: 0,
        ..histogram(&[], is_float, false, false)
    }
}

fn histogram(buckets: &[u32], is_float: bool, is_gauge: bool, is_custom: bool) -> Histogram {
    let count = buckets.iter().map(|count| u64::from(*count)).sum();
    let (mut spans, mut counts) = (Vec::<BucketSpan>::new(), Vec::new());
    let mut gap = -3 * i32::from(!is_custom);
    for bucket in buckets {
        match spans.last_mut() {
            _ if *bucket == 0 => {
                gap += 1;
                continue;
            }
            Some(span) if gap == 0 => span.length += 1,
            _ => spans.push(BucketSpan {
                offset: gap,
                length: 1,
            }),
        }
        gap = 0;
        counts.push(i64::from(*bucket));
    }
    let mut before = 0;
    let deltas = counts.iter().map(|count| {
        let delta = count - before;
        before = *count;
        delta
    });
    Histogram {
        reset_hint: if is_gauge {
            ResetHint::Gauge
        } else {
            ResetHint::Unknown
        },
        schema: if is_custom { CUSTOM_BUCKETS_SCHEMA } else { 3 },
        zero_threshold: if is_custom { 0.0 } else { 2f64.powi(-128) },
        sum: count as f64 / 3.0,
        counts: if !is_float {
            HistogramCounts::Integer {
                count,
                zero_count: 0,
                positive: deltas.collect(),
                negative: Vec::new(),
            }
        } else {
            HistogramCounts::Float {
                count: count as f64,
                zero_count: 0.0,
                positive: counts.iter().map(|count| *count as f64).collect(),
                negative: Vec::new(),
            }
        },
        positive_spans: spans,
        negative_spans: Vec::new(),
        custom_values: if is_custom {
            (0..30).map(|i| f64::from(i) * 0.37).collect()
        } else {
            Vec::new()
        },
    }
}

#[test]
fn floats_of_any_kind_come_back_bit_for_bit() {
    for seed in 0..300 {
        let rng = SimRng::new(seed);
        let count = 1 + rng.next_below(400) as usize;
        let samples = floats(&rng, count);
        let plain = check(&samples, ChunkStartTimes::Drop, seed);
        assert!(
            plain
                .iter()
                .all(|chunk| chunk.encoding == TsdbChunkEncoding::Xor)
        );
        check(&samples, ChunkStartTimes::Keep, seed);
    }
}

#[test]
fn histograms_of_any_kind_come_back_with_their_buckets() {
    for seed in 0..300 {
        let rng = SimRng::new(seed);
        let count = 1 + rng.next_below(300) as usize;
        let mut samples = histograms(&rng, count);
        for starts in [ChunkStartTimes::Drop, ChunkStartTimes::Keep] {
            check(&samples, starts, seed);
        }
        if rng.one_in(4) {
            samples.last_mut().expect("there are some").value = TsdbSampleValue::Float(1.0);
            let kinds = check(&samples, ChunkStartTimes::Drop, seed);
            let kinds = kinds.last().map(|chunk| chunk.encoding.kind());
            assert_eq!(kinds, Some(TsdbSampleKind::Float), "seed {seed}");
        }
    }
}

#[test]
fn chunk_headers_say_what_is_known_of_resets() {
    let sample = |time, buckets: &[u32], is_gauge| TsdbSample {
        time,
        start_time: 0,
        value: TsdbSampleValue::Histogram(Box::new(histogram(buckets, false, is_gauge, false))),
    };
    let mut samples: Vec<TsdbSample> = (0..121).map(|i| sample(i, &[1, 2], false)).collect();
    samples.push(sample(200, &[2, 1], false));
    samples.push(sample(201, &[2, 1, 5], false));
    samples.push(sample(202, &[1, 1], true));
    samples.push(sample(203, &[0, 1], true));
    let headers: Vec<(u16, ResetHeader)> = chunks(&samples, ChunkStartTimes::Drop)
        .iter()
        .map(|chunk| {
            let samples =
                TsdbChunkSamples::new(chunk.encoding, &chunk.data).expect("it has a header");
            (chunk.samples, samples.reset_header())
        })
        .collect();
    let wanted = [
        (120, ResetHeader::Unknown),
        (1, ResetHeader::NotReset),
        (2, ResetHeader::Reset),
        (2, ResetHeader::Gauge),
    ];
    assert_eq!(headers, wanted);
}

#[test]
fn hints_behind_the_first_sample_of_a_chunk_say_that_nothing_was_reset() {
    let samples: Vec<TsdbSample> = histograms(&SimRng::new(1), 20);
    for chunk in chunks(&samples, ChunkStartTimes::Drop) {
        let is_gauge = |hint: &ResetHint| *hint == ResetHint::Gauge;
        let hints: Vec<ResetHint> = read(&chunk)
            .iter()
            .filter(|sample| !sample.is_stale())
            .filter_map(|sample| match &sample.value {
                TsdbSampleValue::Histogram(histogram) => Some(histogram.reset_hint),
                TsdbSampleValue::Float(_) => None,
            })
            .collect();
        let rest = hints.get(1..).unwrap_or_default();
        let known = |hint: &ResetHint| *hint == ResetHint::NotReset || is_gauge(hint);
        assert!(rest.iter().all(known), "{hints:?}");
    }
}

/// Two samples, 15 s apart, of which the second one is 1 larger; encoded by hand.
#[test]
fn chunk_made_by_hand_is_read() {
    let mut data = vec![0, 2];
    // Timestamp 1000 as a signed varint, then the bits of 1.
    data.extend([0xd0, 0x0f]);
    data.extend(1f64.to_bits().to_be_bytes());
    // 15000 ms later; then 11, 1 leading zero, 11 changed bits: 0x7ff << 52.
    data.extend([0x98, 0x75]);
    let differing = 1f64.to_bits() ^ 2f64.to_bits();
    assert_eq!(differing, 0x7ff << 52);
    data.extend([0b1100_0010, 0b0101_1111, 0b1111_1111, 0b0000_0000]);
    let samples: Result<Vec<_>, _> = TsdbChunkSamples::new(TsdbChunkEncoding::Xor, &data[..])
        .expect("sound")
        .collect();
    let told: Vec<String> = samples
        .expect("sound")
        .iter()
        .map(|s| told(s, true))
        .collect();
    assert_eq!(
        told,
        ["1000 0 3ff0000000000000", "16000 0 4000000000000000"]
    );
}

#[test]
fn damaged_chunk_is_an_error_or_other_samples_and_never_a_panic() {
    for seed in 0..200 {
        let rng = SimRng::new(seed);
        let samples = if rng.one_in(2) {
            floats(&rng, 20)
        } else {
            histograms(&rng, 20)
        };
        for chunk in chunks(&samples, ChunkStartTimes::Keep) {
            for number in 1..=6 {
                let mut data = chunk.data.clone();
                for _ in 0..rng.next_below(3) {
                    let at = rng.next_below(data.len() as u64) as usize;
                    data[at] ^= 1 << rng.next_below(8);
                }
                data.truncate(rng.next_below(data.len() as u64 + 1) as usize);
                let encoding = TsdbChunkEncoding::from_number(number).expect("there are six");
                if let Ok(samples) = TsdbChunkSamples::new(encoding, data) {
                    let failed = samples.filter(Result::is_err).count();
                    assert!(failed <= 1, "seed {seed}: goes on behind an error");
                }
            }
        }
    }
}

#[test]
fn samples_out_of_order_and_histograms_that_do_not_fit_are_refused() {
    let mut builder = ChunkBuilder::new(ChunkStartTimes::Drop);
    assert!(builder.push_float(5, 0, 1.0).is_ok());
    let refused = builder.push_float(5, 0, 1.0);
    let wanted = "sample at 5 is not after the previous one at 5";
    assert_eq!(refused, Err(TsdbError::Refused(wanted.into())));
    let sound = histogram(&[1, 2], false, false, false);
    let mut too_few = sound.clone();
    too_few.positive_spans[0].length = 3;
    let mut back = sound.clone();
    back.positive_spans = vec![
        BucketSpan {
            offset: 0,
            length: 1,
        },
        BucketSpan {
            offset: -1,
            length: 1,
        },
    ];
    let mut unknown = sound;
    unknown.schema = 53;
    for histogram in [too_few, back, unknown] {
        assert!(builder.push_histogram(6, 0, &histogram).is_err());
    }
    assert_eq!(builder.finish().map(|chunk| chunk.samples), Some(1));
}

#[test]
fn finer_histograms_are_read_as_coarse_as_the_finest_known_schema() {
    let mut fine = histogram(&[1, 2, 0, 3, 4], false, false, false);
    fine.schema = 9;
    let samples = [TsdbSample {
        time: 1,
        start_time: 0,
        value: TsdbSampleValue::Histogram(Box::new(fine)),
    }];
    let chunk = chunks(&samples, ChunkStartTimes::Drop);
    let read = read(&chunk[0]);
    let TsdbSampleValue::Histogram(coarse) = &read[0].value else {
        panic!("it is a histogram");
    };
    assert_eq!(coarse.schema, 8);
    // Buckets -3, -2, 0 and 1 of schema 9 are in the buckets -1, -1, 0 and 1 of schema 8.
    let span = BucketSpan {
        offset: -1,
        length: 3,
    };
    assert_eq!(coarse.positive_spans, [span]);
    let HistogramCounts::Integer { positive, .. } = &coarse.counts else {
        panic!("it has integers");
    };
    assert_eq!(positive[..], [3, 0, 1]);
}
