//! Random series of every class, which the tests of pages and blocks push.

use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint,
};
use firn_model::sample::{NORMAL_NAN_BITS, STALE_NAN_BITS};
use firn_storage::page::SampleColumns;
use std::sync::Arc;

/// Floats that decimal conversion, bit packing and arithmetic are most likely to get wrong.
pub const NASTY: [u64; 24] = [
    0,
    1 << 63,
    1,
    0x8000_0000_0000_0001,
    0x000f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0xffef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    STALE_NAN_BITS,
    NORMAL_NAN_BITS,
    0x7fff_ffff_ffff_ffff,
    0xfff8_dead_beef_0001,
    0x7ff4_0000_0000_0001,
    // 2^51, 2^52, 2^53 and their neighbours, and larger values.
    0x4320_0000_0000_0000,
    0x432f_ffff_ffff_ffff,
    0x4330_0000_0000_0000,
    0x433f_ffff_ffff_ffff,
    0x4340_0000_0000_0000,
    0x4340_0000_0000_0001,
    0xc340_0000_0000_0000,
    0x43e0_0000_0000_0000,
    // 0.1 + 0.2
    0x3fd3_3333_3333_3334,
];

/// Number of classes of series, which differ in how their values change.
pub const CLASSES: u64 = 18;

/// Returns a series of a class, with one sample at each of `times`.
pub fn of_class(rng: &SimRng, class: u64, times: &[i64]) -> SampleColumns {
    let mut columns = SampleColumns {
        times: times.to_vec(),
        ..SampleColumns::default()
    };
    let mut value = (rng.next_u64() % 100_000) as f64;
    for i in 0..times.len() {
        let n = rng.next_u64();
        value = match class {
            0 => value,
            1 => value + (n % 4) as f64,
            2 if n.is_multiple_of(97) => 0.0,
            2 => value + (n % 100_000) as f64,
            3 => (value * 100.0 + (n % 300) as f64).round() / 100.0,
            4 => (n % 1_000_000) as f64 * 0.001,
            5 => (n % 1_000_000_000) as f64 * 1e-9,
            6 => value + (n % 1_000) as f64 / 333.0,
            7 => n as f64 / u64::MAX as f64,
            8 => f64::from_bits(n),
            9 => f64::from_bits(NASTY[n as usize % NASTY.len()]),
            10 if n.is_multiple_of(40) => f64::from_bits(NASTY[(n >> 8) as usize % NASTY.len()]),
            10 => (n % 50) as f64,
            11 => (n % 1_000) as f64 * 4_096.0,
            12 => i as f64 * 1_500.0,
            13 => ((i * i) as f64) * 0.25,
            14 => ((1u64 << 53) - 3 + i as u64) as f64,
            15 => f64::from((n % 1_000) as f32 / 7.0),
            16 if i > times.len() / 2 => f64::from_bits(STALE_NAN_BITS),
            16 => value + 1.0,
            _ => -(value.abs() + (n % 7) as f64),
        };
        columns.values.push(value);
    }
    columns
}

/// Replaces some samples by histograms of changing shapes.
pub fn with_histograms(rng: &SimRng, mut columns: SampleColumns) -> SampleColumns {
    let mut shape = rng.next_u64();
    let mut is_histogram = rng.next_u64().is_multiple_of(2);
    let mut grown = 0;
    for i in 0..columns.times.len() {
        if rng.next_u64().is_multiple_of(37) {
            shape = rng.next_u64();
        }
        if rng.next_u64().is_multiple_of(29) {
            is_histogram = !is_histogram;
        }
        if is_histogram {
            grown += rng.next_u64() % 9;
            columns.values[i] = 0.0;
            let histogram = histogram(rng, shape, grown);
            columns.histograms.push((i as u32, Arc::new(histogram)));
        }
    }
    columns
}

/// Returns a random histogram of any kind.
pub fn histogram(rng: &SimRng, shape: u64, grown: u64) -> Histogram {
    let positive = (shape >> 8) as usize % 12;
    let negative = (shape >> 16) as usize % 4;
    let hints = [
        ResetHint::Unknown,
        ResetHint::Reset,
        ResetHint::NotReset,
        ResetHint::Gauge,
    ];
    let span = |length: usize| {
        let offset = (shape >> 20) as i32 % 100;
        let length = length as u32;
        match length {
            0 => Vec::new(),
            1 => vec![BucketSpan { offset, length }],
            _ => vec![
                BucketSpan { offset, length: 1 },
                BucketSpan {
                    offset: 3,
                    length: length - 1,
                },
            ],
        }
    };
    let odd = |n: u64| match rng.next_u64() % 30 {
        0 => rng.next_u64(),
        _ => n,
    };
    let float = |n: u64| match rng.next_u64() % 30 {
        0 => f64::from_bits(NASTY[rng.next_u64() as usize % NASTY.len()]),
        _ => n as f64 * 0.5,
    };
    let is_custom = shape.is_multiple_of(5);
    let counts = if shape.is_multiple_of(3) {
        HistogramCounts::Float {
            count: float(grown * 10),
            zero_count: float(grown),
            positive: (0..positive).map(|b| float(grown * b as u64)).collect(),
            negative: (0..negative).map(|b| float(grown + b as u64)).collect(),
        }
    } else {
        let delta = |b: usize| odd(grown / (b as u64 + 1)) as i64 - 3;
        HistogramCounts::Integer {
            count: odd(grown * 10),
            zero_count: odd(grown),
            positive: (0..positive).map(delta).collect(),
            negative: (0..negative).map(delta).collect(),
        }
    };
    Histogram {
        reset_hint: hints[rng.next_u64() as usize % 20 / 5],
        schema: if is_custom {
            CUSTOM_BUCKETS_SCHEMA
        } else {
            (shape >> 30) as i32 % 13 - 4
        },
        zero_threshold: if is_custom { 0.0 } else { 1e-128 },
        sum: float(grown * 7),
        counts,
        positive_spans: span(positive),
        negative_spans: span(negative),
        custom_values: if is_custom {
            (0..positive).map(|b| b as f64 * 0.1).collect()
        } else {
            Vec::new()
        },
    }
}

/// Returns increasing times of a kind.
pub fn times(rng: &SimRng, kind: u64, count: usize) -> Vec<i64> {
    let mut time = match kind {
        0 => i64::MIN + 5,
        1 => -7,
        _ => 1_763_000_000_000 + (rng.next_u64() % 15_000) as i64,
    };
    let mut times = Vec::with_capacity(count);
    while times.len() < count {
        let n = rng.next_u64();
        time += match kind {
            0 => 1 + (n >> 18) as i64,
            1 | 2 => 15_000,
            3 => 14_990 + (n % 20) as i64,
            4 if n.is_multiple_of(9) => 60_000,
            4 => 15_000,
            _ => 1 + (n % 100_000) as i64,
        };
        times.push(time);
    }
    times
}

/// Checks that all samples are equal to the bit.
pub fn assert_equal(read: &SampleColumns, pushed: &SampleColumns, context: &str) {
    assert_eq!(read.times, pushed.times, "times, {context}");
    let bits = |c: &SampleColumns| c.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(read), bits(pushed), "values, {context}");
    let starts = |c: &SampleColumns| {
        if c.start_times.iter().all(|s| *s == 0) {
            Vec::new()
        } else {
            c.start_times.clone()
        }
    };
    assert_eq!(starts(read), starts(pushed), "starts, {context}");
    assert_eq!(read.histograms.len(), pushed.histograms.len(), "{context}");
    for ((i, a), (j, b)) in read.histograms.iter().zip(&pushed.histograms) {
        assert_eq!(i, j, "{context}");
        assert_eq!(exactly(a), exactly(b), "histogram {i}, {context}");
    }
}

/// Returns a text of all fields of a histogram, with its floats as bits.
fn exactly(h: &Histogram) -> String {
    let bits = |floats: &[f64]| floats.iter().map(|f| f.to_bits()).collect::<Vec<_>>();
    let counts = match &h.counts {
        HistogramCounts::Integer { .. } => format!("{:?}", h.counts),
        HistogramCounts::Float {
            count,
            zero_count,
            positive,
            negative,
        } => format!(
            "{:?} {:?} {:?}",
            bits(&[*count, *zero_count]),
            bits(positive),
            bits(negative)
        ),
    };
    format!(
        "{:?} {} {:?} {counts} {:?} {:?} {:?}",
        h.reset_hint,
        h.schema,
        bits(&[h.zero_threshold, h.sum]),
        h.positive_spans,
        h.negative_spans,
        bits(&h.custom_values)
    )
}

/// Returns the samples of `columns` between two times, both inclusive.
pub fn between(columns: &SampleColumns, min: i64, max: i64) -> SampleColumns {
    let start = columns.times.partition_point(|t| *t < min);
    let end = columns.times.partition_point(|t| *t <= max).max(start);
    let histograms = columns.histograms.iter();
    SampleColumns {
        times: columns.times[start..end].to_vec(),
        values: columns.values[start..end].to_vec(),
        start_times: columns.start_times.get(start..end).unwrap_or(&[]).to_vec(),
        histograms: histograms
            .filter(|(i, _)| (start..end).contains(&(*i as usize)))
            .map(|(i, h)| (i - start as u32, h.clone()))
            .collect(),
    }
}
