//! Tests of chunks against a model: every value is returned bit for bit, corrupt bytes are errors.

use super::layout::HEADER_BYTES;
use super::*;
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use firn_model::sample::{START_UNKNOWN, stale_nan};
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Value {
    Float(f64),
    Histogram(Histogram),
}

#[derive(Clone, Debug)]
struct Sample {
    time: i64,
    start: i64,
    value: Value,
}

fn floats(samples: &[(i64, f64)]) -> Vec<Sample> {
    let sample = |(time, value): &(i64, f64)| Sample {
        time: *time,
        start: START_UNKNOWN,
        value: Value::Float(*value),
    };
    samples.iter().map(sample).collect()
}

fn push(open: &mut OpenChunk, sample: &Sample) {
    match &sample.value {
        Value::Float(v) => open.push_float(sample.time, sample.start, *v),
        Value::Histogram(h) => open.push_histogram(sample.time, sample.start, h, h.reset_hint),
    }
}

/// Encodes, decodes and compares bit for bit: the whole chunk, its first half, and its second half
/// after a cut; as codes, and packed in several phases. Returns the bytes of the codes.
fn check(samples: &[Sample], context: &str) -> Vec<u8> {
    for phase in [0, 3, 10] {
        check_packed(samples, Some(phase), &format!("{context}, phase {phase}"));
    }
    check_packed(samples, None, context)
}

fn check_packed(samples: &[Sample], phase: Option<u32>, context: &str) -> Vec<u8> {
    let mut open = OpenChunk::default();
    for sample in samples {
        push(&mut open, sample);
        phase.inspect(|phase| open.pack_if_due(*phase));
    }
    let chunk = open.snapshot().unwrap();
    compare(&chunk, samples, samples.len(), context);
    compare(&chunk, samples, samples.len() / 2, context);
    let (first, second) = samples.split_at(samples.len().div_ceil(2));
    if let (Some(cut), false) = (first.last(), second.is_empty()) {
        let rest = chunk.copy_after(cut.time).unwrap();
        compare(&rest, second, second.len(), context);
    }
    chunk.as_bytes().to_vec()
}

fn compare(chunk: &Chunk, samples: &[Sample], limit: usize, context: &str) {
    let mut columns = SampleColumns::default();
    chunk.decode(limit, &mut columns).unwrap();
    let times: Vec<i64> = samples[..limit].iter().map(|s| s.time).collect();
    assert_eq!(columns.times, times, "times, {context}");
    assert_eq!(columns.values.len(), limit, "values, {context}");
    let mut histograms = columns.histograms.iter();
    for (i, sample) in samples[..limit].iter().enumerate() {
        let start = columns.start_times.get(i).copied().unwrap_or(START_UNKNOWN);
        assert_eq!(start, sample.start, "start of sample {i}, {context}");
        match &sample.value {
            Value::Float(v) => {
                assert_eq!(
                    columns.values[i].to_bits(),
                    v.to_bits(),
                    "sample {i}, {context}"
                );
            }
            Value::Histogram(h) => {
                let (at, read) = histograms.next().unwrap();
                assert_eq!(*at as usize, i, "{context}");
                let is_equal = crate::encoding::histogram::is_equal_except_hint(read, h);
                assert!(is_equal, "sample {i}, {context}");
                assert_eq!(read.reset_hint, h.reset_hint, "sample {i}, {context}");
            }
        }
    }
    assert!(histograms.next().is_none(), "{context}");
}

fn integers(counts: [i64; 3]) -> Histogram {
    Histogram {
        reset_hint: ResetHint::NotReset,
        schema: 3,
        zero_threshold: 1e-128,
        sum: 12.5,
        counts: HistogramCounts::Integer {
            count: 10,
            zero_count: 1,
            positive: counts.to_vec(),
            negative: vec![-4],
        },
        positive_spans: vec![
            BucketSpan {
                offset: -2,
                length: 2,
            },
            BucketSpan {
                offset: 7,
                length: 1,
            },
        ],
        negative_spans: vec![BucketSpan {
            offset: 0,
            length: 1,
        }],
        custom_values: Vec::new(),
    }
}

fn custom(bounds: &[f64], count: f64) -> Histogram {
    Histogram {
        reset_hint: ResetHint::Gauge,
        schema: firn_model::histogram::CUSTOM_BUCKETS_SCHEMA,
        zero_threshold: 0.0,
        sum: f64::NAN,
        counts: HistogramCounts::Float {
            count,
            zero_count: 0.0,
            positive: vec![count; bounds.len()],
            negative: Vec::new(),
        },
        positive_spans: vec![BucketSpan {
            offset: 0,
            length: bounds.len() as u32,
        }],
        negative_spans: Vec::new(),
        custom_values: bounds.to_vec(),
    }
}

#[test]
fn chunk_of_odd_floats_returns_every_bit() {
    let odd = [
        0.0,
        -0.0,
        f64::NAN,
        stale_nan(),
        f64::from_bits(0xfff8_dead_beef_0001),
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::from_bits(1),
        -f64::MIN_POSITIVE,
        f64::MAX,
        9_007_199_254_740_993.0,
        1e15,
        0.1 + 0.2,
        1.0 / 3.0,
        -17.125,
        3e-9,
        i64::MIN as f64,
    ];
    for a in odd {
        for b in odd {
            let samples = floats(&[(1, a), (2, b), (3, a), (4, a), (5, b)]);
            check(&samples, &format!("{a} {b}"));
        }
    }
}

#[test]
fn chunk_of_extreme_times_returns_them() {
    let times = [
        i64::MIN,
        -1,
        0,
        1,
        2,
        96,
        15_000,
        1_763_000_000_000,
        i64::MAX,
    ];
    let samples: Vec<_> = times.iter().map(|t| (*t, *t as f64)).collect();
    check(&floats(&samples), "extreme times");
}

#[test]
fn chunk_of_steady_series_takes_its_documented_bytes() {
    let bytes = |value: fn(i64) -> f64, jitter: fn(i64) -> i64| {
        let samples: Vec<_> = (0..480)
            .map(|i| (1_763_000_000_000 + i * 15_000 + jitter(i), value(i)))
            .collect();
        check(&floats(&samples), "steady").len()
    };
    let exact = |_| 0;
    let shaky = |i: i64| (i * 7_919 % 11) - 5;
    // Header, first time, first and second time code, then a byte per 32 times and per 32 values,
    // and one for a run that a flush of the tail splits, which is at most one in 14 bytes.
    let in_runs = 10 + 8 + 1 + 3 + 15 + 1 + 15;
    assert!((in_runs..=in_runs + 4).contains(&bytes(|_| 7.0, exact)));
    let counting = 10 + 8 + 1 + 3 + 15 + 480;
    assert!((counting..=counting + 480 / 14).contains(&bytes(|i| i as f64, exact)));
    assert!(bytes(|_| 7.0, shaky) < 510);
    assert!(bytes(|i| i as f64 * 0.25, shaky) < 990);
}

#[test]
fn chunk_of_mixed_histograms_and_floats_returns_them() {
    let at = |time: i64, start: i64, value| Sample { time, start, value };
    let samples = [
        at(1, 0, Value::Float(1.0)),
        at(2, 0, Value::Histogram(integers([3, -1, 2]))),
        at(3, 0, Value::Histogram(integers([i64::MIN, i64::MAX, 0]))),
        at(4, -9, Value::Histogram(custom(&[0.5, 1.0], 3.0))),
        at(5, -9, Value::Float(1.0)),
        at(6, -9, Value::Float(1.0)),
        at(7, 5, Value::Histogram(custom(&[0.5, 2.0], f64::INFINITY))),
        at(8, 0, Value::Histogram(custom(&[0.5, 2.0], 0.1))),
        at(9, 0, Value::Float(stale_nan())),
    ];
    for end in 1..=samples.len() {
        check(&samples[..end], &format!("first {end}"));
    }
}

#[test]
fn chunk_newest_after_close_is_still_known() {
    let mut open = OpenChunk::default();
    open.push_float(5, 0, 2.0);
    open.push_histogram(6, 0, &integers([1, 2, 3]), ResetHint::NotReset);
    open.close();
    assert!(matches!(open.newest(), NewestSampleValue::Histogram(h) if *h == integers([1, 2, 3])));
    open.push_float(7, 0, 4.0);
    open.close();
    assert!(matches!(open.newest(), NewestSampleValue::Float(4.0)));
    assert_eq!((open.last_time(), open.sample_count()), (7, 0));
}

/// Returns a value like those of exporters, of a kind fixed by `kind`.
fn random_value(rng: &SimRng, kind: u64, before: f64) -> Value {
    let n = rng.next_u64();
    Value::Float(match kind {
        0 => 3.0,
        1 => before + (n % 40) as f64,
        2 => before + (n % 100_000) as f64,
        3 => (n % 20_000) as f64 / 1_000.0,
        4 => (n % 1_000_000_000) as f64 * 1e-9,
        5 => n as f64 / u64::MAX as f64,
        6 => f64::from_bits(n),
        7 if n.is_multiple_of(5) => return Value::Histogram(custom(&[1.0], n as f64)),
        8 if n.is_multiple_of(2) => {
            return Value::Histogram(integers([n as i64 % 9, n as i64 % 5, n as i64]));
        }
        _ if n.is_multiple_of(9) => stale_nan(),
        _ => before,
    })
}

#[test]
fn chunk_of_random_samples_returns_every_bit() {
    for seed in 0..400 {
        let rng = SimRng::new(seed);
        let kind = rng.next_u64() % 10;
        let jitter = [1, 8, 400, 1 << 40][(rng.next_u64() % 4) as usize];
        let mut time = rng.next_u64() as i64 / 4;
        let mut start = START_UNKNOWN;
        let mut before = 0.0;
        let mut samples = Vec::new();
        for _ in 0..1 + rng.next_u64() % 600 {
            time += 1 + (rng.next_u64() % jitter) as i64;
            if kind > 6 && rng.next_u64().is_multiple_of(50) {
                start = time;
            }
            let value = random_value(&rng, kind, before);
            if let Value::Float(v) = value {
                before = v;
            }
            samples.push(Sample { time, start, value });
        }
        check(&samples, &format!("seed {seed}"));
    }
}

#[test]
fn chunk_of_steady_series_packs_into_its_documented_bytes() {
    let bytes = |value: fn(i64) -> f64| {
        let samples: Vec<_> = (0..480)
            .map(|i| (1_763_000_000_000 + i * 15_000, value(i)))
            .collect();
        check_packed(&floats(&samples), Some(0), "steady").len()
    };
    // Header, first time, header of the packs; then a byte per 16 times. The first line takes three
    // bytes more, because its interval differs from zero and it begins that far from the first
    // time.
    let times = 10 + 8 + 7 + 6 + 30;
    // A constant takes a byte per 16 values after the first step, a counter two more with one bit
    // each.
    assert_eq!(bytes(|_| 7.0), times + 30 + 1);
    assert_eq!(bytes(|i| i as f64), times + 30 * 3);
    assert_eq!(bytes(|i| (i % 2) as f64), times + 30 * 5);
    assert_eq!(bytes(|i| (i + 1) as f64 * 0.25), times + 30 * 11 + 2);
    // Full-precision floats take a byte for the order, two for the encoding, and the bits of the
    // largest step.
    let third = bytes(|i| (i + 1_000) as f64 / 3.0);
    assert!(third < times + 30 * (2 + 2 * 47), "{third}");
}

#[test]
fn chunk_of_packs_is_damaged_and_nothing_panics() {
    for seed in 0..2_000 {
        let rng = SimRng::new(seed);
        let mut open = OpenChunk::default();
        let (kind, mut before) = (rng.next_u64() % 10, 0.0);
        for i in 0..20 + rng.next_u64() % 80 {
            let value = random_value(&rng, kind, before);
            if let Value::Float(v) = value {
                before = v;
            }
            let (time, start) = (i as i64 * 15_000, START_UNKNOWN);
            push(&mut open, &Sample { time, start, value });
            open.pack_if_due(0);
        }
        let mut bytes = open.snapshot().unwrap().as_bytes().to_vec();
        for _ in 0..1 + rng.next_u64() % 4 {
            let at = HEADER_BYTES + rng.next_u64() as usize % (bytes.len() - HEADER_BYTES);
            bytes[at] = rng.next_u64() as u8;
        }
        if rng.next_u64().is_multiple_of(2) {
            bytes.truncate(HEADER_BYTES + rng.next_u64() as usize % bytes.len());
        }
        let view = ChunkView::new(&bytes);
        let (mut columns, mut known) = (SampleColumns::default(), DecodedTimesCache::default());
        let decoded = view.decode(usize::MAX, &mut known, &mut columns);
        assert_eq!(columns.times.len(), columns.values.len(), "seed {seed}");
        let mut values = Vec::new();
        let plain = view.decode_plain(usize::MAX, &mut known, &mut values);
        if let (Ok(()), Ok(true)) = (decoded, plain) {
            assert_eq!(columns.times, known.newest(), "seed {seed}");
            let bits = |v: &f64| v.to_bits();
            assert!(columns.values.iter().map(bits).eq(values.iter().map(bits)));
        }
    }
}

#[test]
fn chunk_after_another_of_its_target_decodes_with_the_times_of_that() {
    let of = |late: i64, count: i64, value: f64| {
        let mut open = OpenChunk::default();
        // A short one begins at another time.
        for i in if count < 9 { 7..7 + count } else { 0..count } {
            let late = if i == 40 { late } else { 0 };
            open.push_float(i * 15_000 + late, START_UNKNOWN, value * i as f64);
            open.pack_if_due(5);
        }
        open.snapshot().unwrap()
    };
    let chunks = [
        of(0, 60, 1.0),
        of(0, 60, 2.0),
        of(3, 60, 2.0),
        of(3, 90, 2.5),
        of(3, 8, 2.5),
        of(3, 90, 0.0),
        of(0, 61, 0.1),
    ];
    let mut known = DecodedTimesCache::default();
    for chunk in &chunks {
        let (mut alone, mut values) = (SampleColumns::default(), Vec::new());
        chunk.decode(usize::MAX, &mut alone).unwrap();
        let plain = chunk
            .view()
            .decode_plain(usize::MAX, &mut known, &mut values);
        assert!(plain.unwrap());
        assert_eq!(known.newest(), alone.times);
        assert_eq!(values, alone.values);
        let mut columns = SampleColumns::default();
        chunk.view().decode(50, &mut known, &mut columns).unwrap();
        let seen = alone.times.len().min(50);
        assert_eq!(columns.times, alone.times[..seen]);
        assert_eq!(columns.values, alone.values[..seen]);
    }
}

/// Returns times of a scrape: some late, some missing, sometimes with another interval.
fn scraped(rng: &SimRng, count: usize) -> Vec<i64> {
    let (mut at, mut interval) = (rng.next_below(1 << 40) as i64, 15_000);
    let (late, gaps) = (1 + rng.next_below(40), 8 + rng.next_below(90));
    let mut next = || {
        if rng.one_in(gaps) {
            at += interval * rng.next_below(3) as i64;
            interval = [15_000, 30_000][rng.next_below(2) as usize];
        }
        at += interval;
        at + if rng.one_in(5) {
            rng.next_below(late) as i64
        } else {
            0
        }
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn chunks_of_scrapes_in_any_order_decode_as_each_alone() {
    for seed in 0..200 {
        let rng = SimRng::new(seed);
        let targets = [(); 3].map(|()| scraped(&rng, 100));
        let mut known = DecodedTimesCache::default();
        let mut by_generation: HashMap<u64, Vec<i64>> = HashMap::new();
        for i in 0..30 {
            let times = &targets[rng.next_below(3) as usize];
            let from = [0, 0, rng.next_below(90) as usize][rng.next_below(3) as usize];
            let count = 1 + rng.next_below((times.len() - from) as u64) as usize;
            let times = &times[from..from + count];
            let phase = [None, Some(0), Some(5)][rng.next_below(3) as usize];
            let kind = rng.next_below(7);
            let mut open = OpenChunk::default();
            for time in times {
                let value = random_value(&rng, kind, 1.0);
                let (time, start) = (*time, START_UNKNOWN);
                push(&mut open, &Sample { time, start, value });
                phase.inspect(|phase| open.pack_if_due(*phase));
            }
            let chunk = open.snapshot().unwrap();
            let mut alone = SampleColumns::default();
            chunk.decode(usize::MAX, &mut alone).unwrap();
            assert_eq!(alone.times, times, "seed {seed}, chunk {i}");
            let seen = 1 + rng.next_below(count as u64) as usize;
            let mut values = Vec::new();
            let plain = chunk.view().decode_plain(seen, &mut known, &mut values);
            let (of_seed, wanted) = (format!("seed {seed}, chunk {i}"), &times[..seen]);
            assert!(plain.unwrap(), "{of_seed}");
            assert_eq!(known.newest(), wanted, "{of_seed}");
            let of_generation = by_generation.entry(known.generation());
            let same = of_generation.or_insert_with(|| wanted.to_vec());
            assert_eq!(same, wanted, "{of_seed}");
            let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&values), bits(&alone.values[..seen]), "{of_seed}");
            let mut columns = SampleColumns::default();
            let view = chunk.view();
            view.decode(seen, &mut known, &mut columns).unwrap();
            assert_eq!(columns.times, wanted, "{of_seed}");
        }
    }
}

/// If the bytes change, `docs/format/chunk.md` must change too.
#[test]
fn chunk_golden_bytes_stay() {
    let samples = floats(&[
        (1_000, 1.0),
        (16_000, 2.0),
        (31_000, 2.0),
        (46_001, 2.5),
        (61_003, -0.0),
        (76_003, 1e15),
    ]);
    let golden: Vec<u8> = [
        // Six samples, the last at 76,003; the first at 1,000.
        &[6, 0][..],
        &[0xe3, 0x28, 1, 0, 0, 0, 0, 0],
        &[0xe8, 3, 0, 0, 0, 0, 0, 0],
        // No interval yet, and one step of 1.
        &[0xc0, 2],
        // A change of 15,000 and another step; then both repeat.
        &[0xf1, 0x30, 0x75, 2],
        &[0xc0, 0xa0],
        // One millisecond late: 25 / 10^1.
        &[2, 0xf0, 1, 50],
        // Negative zero as raw bits: 2.5 xor -0.0.
        &[2, 0xef, 0, 0, 0, 0, 0, 0, 0x04, 0xc0],
        // Back to integers, seven bytes of it.
        &[3, 0xf0, 0, 0xe6, 0, 0, 0x8d, 0x49, 0xfd, 0x1a, 7],
    ]
    .concat();
    assert_eq!(check(&samples, "golden"), golden);
}

/// If the bytes change, `docs/format/chunk.md` must change too.
#[test]
fn chunk_golden_bytes_of_packs_stay() {
    let value = |i: i64| match i {
        0..3 => 1_000.5,
        3..16 => 1_000.5 + (i % 3) as f64,
        18 => f64::NAN,
        _ => 4.0,
    };
    let time = |i: i64| 1_000 + i * 15_000 + if i == 12 { 7 } else { 0 };
    let samples: Vec<(i64, f64)> = (0..34).map(|i| (time(i), value(i))).collect();
    let golden: Vec<u8> = [
        // 34 samples and the time of the last one.
        &[34, 0][..],
        &[0x80, 0x91, 7, 0, 0, 0, 0, 0],
        // The first time; packs of 32 samples, bytes of their times and values.
        &[0xe8, 3, 0, 0, 0, 0, 0, 0],
        &[0xf9, 32, 0, 14, 0, 34, 0],
        // A line with an interval of 15,000 more than zero, beginning 15,000 before the first time;
        // three bits each, one time is seven after the line.
        &[0x80 | 0x40 | 3, 0xb0, 0xea, 1, 0xaf, 0xea, 1],
        &[0, 0, 0, 0, 0x70, 0],
        // A pack without late times.
        &[0],
        // 10,005 / 10^1, and zigzags of six bits: steps of zero, ten and minus twenty.
        &[0x39, 1, 0x80 | 0x40 | 6, 0xaa, 0x9c, 1],
        &[
            0, 0, 0, 0x14, 0x75, 0x52, 0xd4, 0x49, 0x51, 0x27, 0x45, 0x9d,
        ],
        // Codes: a step down, a repeat, NaN, the integer again and twelve repeats.
        &[0x3a, 0xe1, 0xd9, 0x4d, 0xa0],
        &[0xef, 0, 0, 0, 0, 0, 0, 0xe8, 0x3f, 0, 0xab],
        // Two samples that are not packed.
        &[0xc1, 0xa1],
    ]
    .concat();
    let bytes = check_packed(&floats(&samples), Some(0), "golden");
    assert_eq!(bytes, golden, "{bytes:02x?}");
}
