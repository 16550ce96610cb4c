//! Golden files of pages: they are read, and written again byte for byte.
//!
//! These tests fail when the format changes. `docs/format/page.md` and the version in the header
//! must then change, too. `FIRN_WRITE_GOLDEN=1` writes the files.

use crate::series::assert_equal;
use firn_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint,
};
use firn_model::log::LogPosition;
use firn_model::sample::{STALE_NAN_BITS, TimeRange};
use firn_storage::ids::SeriesSlot;
use firn_storage::page::{
    HistogramFamilyHash, LogSpan, PageBuilder, PageDecodeScratch, PageReader, SampleColumns,
};
use std::path::Path;
use std::sync::Arc;

type Push = (u64, Option<HistogramFamilyHash>, SampleColumns);

const START_MS: i64 = 1_763_000_000_000;

/// Reads the golden file and writes it again.
fn check(name: &str, pushes: &[Push]) {
    let meta = LogSpan {
        log_from: LogPosition(17),
        log_to: LogPosition(4_711),
    };
    let mut builder = PageBuilder::new(meta);
    for (slot, family, columns) in pushes {
        let pushed = builder.push(SeriesSlot(*slot), *family, columns);
        pushed.expect("no series is too long");
    }
    let written = builder.finish().expect("there are series");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let path = Path::new(folder).join(name);
    if std::env::var_os("FIRN_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(folder).expect("the folder can be made");
        std::fs::write(&path, &written).expect("the file can be written");
    }
    let golden = std::fs::read(&path).expect("the golden page is there");
    let page = PageReader::open(golden.as_slice().into()).expect("the golden page is sound");
    assert_eq!((page.meta(), page.column_count()), (meta, pushes.len()));
    let mut scratch = PageDecodeScratch::default();
    for (slot, _, pushed) in pushes {
        let column = page
            .find_column(SeriesSlot(*slot))
            .expect("sound")
            .expect("pushed");
        let mut read = SampleColumns::default();
        let decoded = page.decode(&column, TimeRange::ALL, &mut scratch, &mut read);
        decoded.expect("the golden page is sound");
        assert_equal(&read, pushed, &format!("slot {slot} of {name}"));
    }
    assert!(written == golden, "{name} is written otherwise than it was");
}

fn floats(times: &[i64], value: impl Fn(usize) -> f64) -> SampleColumns {
    SampleColumns {
        times: times.to_vec(),
        values: (0..times.len()).map(value).collect(),
        ..SampleColumns::default()
    }
}

/// Returns pseudo-random numbers that are the same on every machine.
fn noise(i: usize) -> u64 {
    (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

#[test]
fn page_of_floats_equals_its_golden_file() {
    let steady: Vec<i64> = (0..300).map(|i| START_MS + i * 15_000).collect();
    let shaky: Vec<i64> = (0..300)
        .map(|i| START_MS + 7 + i * 15_000 + noise(i as usize) as i64 % 4)
        .collect();
    let late = &steady[40..];
    let gaps: Vec<i64> = steady.iter().copied().filter(|t| t % 9 != 0).collect();
    let bits = |i: usize| f64::from_bits(noise(i) << 40 | noise(i + 9));
    let bucket = |le: usize| {
        let steps = move |i: usize| (0..=i).map(|i| noise(i * 20 + le) % 3).sum::<u64>();
        move |i: usize| (0..=le).map(|_| steps(i) as f64).sum::<f64>()
    };
    let mut pushes: Vec<Push> = vec![
        (100, None, floats(&steady, |_| 1.0)),
        (
            101,
            None,
            floats(&steady, |_| f64::from_bits(STALE_NAN_BITS)),
        ),
        (102, None, floats(&steady, |i| i as f64 * 3.0)),
        (
            103,
            None,
            floats(&shaky, |i| (i as u64 * 900 + noise(i) % 500) as f64),
        ),
        (
            104,
            None,
            floats(&shaky, |i| (noise(i) % 10_000) as f64 / 100.0),
        ),
        (
            105,
            None,
            floats(&shaky, |i| (noise(i) % 10_000) as f64 * 1e-9),
        ),
        (110, None, floats(&shaky, bits)),
        (
            111,
            None,
            floats(&steady, |i| (noise(i) % 50 * 4_096) as f64),
        ),
        (
            112,
            None,
            floats(late, |i| if i % 50 == 3 { -0.0 } else { (i / 30) as f64 }),
        ),
        (113, None, floats(&gaps, |i| (i * i) as f64)),
        (
            114,
            None,
            floats(&steady, |i| if i > 280 { f64::NAN } else { i as f64 * 0.5 }),
        ),
        (115, None, floats(&steady, |i| i as f64 * 3.0)),
    ];
    for le in 0..5 {
        pushes.push((
            120 + le as u64,
            Some(HistogramFamilyHash(1)),
            floats(&steady, bucket(le)),
        ));
    }
    check("floats.page", &pushes);
}

#[test]
fn page_of_long_columns_equals_its_golden_file() {
    let times: Vec<i64> = (0..2_500).map(|i| START_MS + i * 1_000).collect();
    let mut started = floats(&times, |i| (i as u64 + noise(i) % 2) as f64);
    started.start_times = vec![START_MS - 5_000; times.len()];
    started.start_times[2_000..].fill(START_MS + 2_000_000);
    let reset = floats(&times, |i| (i % 1_100 * 7 + noise(i) as usize % 5) as f64);
    check(
        "blocks.page",
        &[(0, None, started), (u32::MAX.into(), None, reset)],
    );
}

#[test]
fn page_of_a_later_era_equals_its_golden_file() {
    let times: Vec<i64> = (0..130).map(|i| START_MS + i * 15_000).collect();
    let counter = floats(&times, |i| (i as u64 * 900 + noise(i) % 500) as f64);
    let up = floats(&times[7..], |_| 1.0);
    let first = (3 << 32) + 512;
    check(
        "era.page",
        &[(first + 1, None, counter), (first + 511, None, up)],
    );
}

fn histogram(i: u64, is_float: bool, is_custom: bool) -> Histogram {
    let span = |offset, length| BucketSpan { offset, length };
    let counts = if is_float {
        HistogramCounts::Float {
            count: i as f64 * 3.5,
            zero_count: 0.0,
            positive: vec![i as f64, i as f64 * 2.5],
            negative: Vec::new(),
        }
    } else {
        HistogramCounts::Integer {
            count: 6 * i + 4,
            zero_count: i,
            positive: vec![i as i64, 3],
            negative: if is_custom {
                Vec::new()
            } else {
                vec![i as i64 + 1]
            },
        }
    };
    Histogram {
        reset_hint: if is_float {
            ResetHint::Gauge
        } else {
            ResetHint::NotReset
        },
        schema: if is_custom { CUSTOM_BUCKETS_SCHEMA } else { 3 },
        zero_threshold: if is_custom { 0.0 } else { 1e-128 },
        sum: i as f64 * 1.25,
        counts,
        positive_spans: vec![span(2, 1), span(4, 1)],
        negative_spans: if is_custom || is_float {
            Vec::new()
        } else {
            vec![span(-3, 1)]
        },
        custom_values: if is_custom {
            vec![0.1, 0.5, 1.0]
        } else {
            Vec::new()
        },
    }
}

#[test]
fn page_of_histograms_equals_its_golden_file() {
    let times: Vec<i64> = (0..60).map(|i| START_MS + i * 30_000).collect();
    let kinds = [(false, false), (true, false), (true, true), (false, true)];
    let of_kind = |(is_float, is_custom): (bool, bool)| {
        let mut columns = floats(&times, |_| 0.0);
        let one = |i: u32| (i, Arc::new(histogram(i.into(), is_float, is_custom)));
        columns.histograms = (0..60).map(one).collect();
        columns
    };
    let mut pushes: Vec<Push> = (0..4)
        .map(|i| (i as u64, None, of_kind(kinds[i])))
        .collect();
    // Changes between floats and histograms, with another kind each time.
    let mut mixed = floats(&times, |i| if i / 10 % 2 == 0 { i as f64 } else { 0.0 });
    let places = (0..60u32).filter(|i| i / 10 % 2 == 1);
    mixed.histograms = places
        .map(|i| {
            let (is_float, is_custom) = kinds[i as usize / 20];
            (i, Arc::new(histogram(i.into(), is_float, is_custom)))
        })
        .collect();
    pushes.push((9, None, mixed));
    check("histograms.page", &pushes);
}
