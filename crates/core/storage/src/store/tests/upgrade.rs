//! Upgrade of a folder of format 3, from before there were blocks, as users have it.
//!
//! The server of the last version with that format (367bb5d) wrote it: five hours of data time, a
//! scrape each 15 s, sent by remote write. Then it was killed, so that there are pages and an
//! unsealed log. The sent samples are computed again here ([`sent`]):
//!
//! ```text
//! 20 counters and 20 gauges, of which a quarter ends after two hours with a marker and a quarter
//! begins after three; 3 native histograms; an exemplar each five minutes
//! ```
//!
//! The files are stored with gzip below `tests/fixtures/format-3/folder`.

use super::*;
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use firn_model::sample::STALE_NAN_BITS;
use firn_model::store::ExemplarRequest;
use flate2::read::GzDecoder;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// 2026-01-01, in milliseconds.
const START: i64 = 1_767_225_600_000;
const STEP: i64 = 15_000;
const STEPS: i64 = 1_200;
const MINUTE: i64 = 60_000;

#[derive(Clone, Debug, PartialEq)]
enum Value {
    /// As bits.
    Float(u64),
    Histogram(Box<Histogram>),
}

/// Samples by labels.
type Held = BTreeMap<Labels, Vec<(i64, Value)>>;

fn series(name: &str, number: i64) -> Labels {
    let number = format!("{number:02}");
    Labels::from_pairs([("__name__", name), ("job", "fixture"), ("number", &number)])
}

fn float(number: i64, step: i64) -> Value {
    let value = match number % 2 {
        0 => (step * (number + 1) * 3) as f64,
        _ => ((number * 7919 + step * 104_729) % 10_007) as f64 / 16.0,
    };
    if number % 4 == 1 && step == 480 {
        Value::Float(STALE_NAN_BITS)
    } else {
        Value::Float(value.to_bits())
    }
}

fn histogram(number: i64, step: i64) -> Value {
    let buckets = [step + number, 2 * step + 1, step / 2, 3 * step];
    let zero = step / 3;
    let mut before = 0;
    let deltas = buckets.map(|count| count - std::mem::replace(&mut before, count));
    Value::Histogram(Box::new(Histogram {
        schema: 1,
        zero_threshold: 1e-9,
        sum: step as f64 * 1.5 + number as f64,
        counts: HistogramCounts::Integer {
            count: (buckets.iter().sum::<i64>() + zero) as u64,
            zero_count: zero as u64,
            positive: deltas.to_vec(),
            negative: Vec::new(),
        },
        positive_spans: vec![
            BucketSpan {
                offset: 0,
                length: 2,
            },
            BucketSpan {
                offset: 3,
                length: 2,
            },
        ],
        reset_hint: ResetHint::default(),
        negative_spans: Vec::new(),
        custom_values: Vec::new(),
    }))
}

/// Returns everything that was sent to the server.
fn sent() -> Held {
    let mut held = Held::new();
    for step in 0..STEPS {
        for number in 0..40 {
            let is_there = match number % 4 {
                1 => step <= 480,
                2 => step >= 720,
                _ => true,
            };
            if is_there {
                let name = ["upgrade_total", "upgrade_gauge"][number as usize % 2];
                let known = held.entry(series(name, number)).or_default();
                known.push((START + step * STEP, float(number, step)));
            }
        }
        for number in 0..3 {
            let known = held.entry(series("upgrade_histogram", number)).or_default();
            known.push((START + step * STEP, histogram(number, step)));
        }
    }
    held
}

/// Copies the folder to a simulated disk.
fn put(sim: &SimEnv, from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_stem().unwrap());
        if path.is_dir() {
            let folder = to.join(path.file_name().unwrap());
            sim.env.disk.create_dir_all(&folder).unwrap();
            put(sim, &path, &folder);
            continue;
        }
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&path).unwrap();
        GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        sim.disk.overwrite(&to.join(name), &bytes);
    }
}

fn old_folder() -> SimEnv {
    let sim = sim::sim_env(1);
    let root = Path::new("/data");
    sim.env.disk.create_dir_all(root).unwrap();
    let fixture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/format-3/folder"
    );
    put(&sim, Path::new(fixture), root);
    let format = sim.disk.contents(Path::new("/data/FORMAT")).unwrap();
    assert_eq!(format, b"firn data format 3\n");
    sim
}

fn upgrading() -> StoreOptions {
    StoreOptions {
        exemplars_max: 1_000,
        tick_ms: i64::MAX,
        ..options()
    }
}

/// Returns all samples of the fixture in a store.
fn held(store: &Store) -> Held {
    let matchers = [Matcher::new("job", MatchOp::Equal, b"fixture").unwrap()];
    let selection = select(store, &matchers, TimeRange::ALL);
    assert_eq!(selection.loss_warnings().texts(), Vec::<String>::new());
    let mut batch = SeriesBatch::default();
    selection.read(0..selection.len(), &mut batch).unwrap();
    let each = (0..selection.len()).map(|i| {
        let columns = batch.series(i);
        let floats = columns.times.iter().zip(columns.values);
        let mut samples: Vec<(i64, Value)> = floats
            .map(|(time, value)| (*time, Value::Float(value.to_bits())))
            .collect();
        for (at, histogram) in columns.histograms {
            let mut histogram = Histogram::clone(histogram);
            // Counter reset hints follow from the neighbouring samples.
            histogram.reset_hint = ResetHint::default();
            samples[*at as usize].1 = Value::Histogram(Box::new(histogram));
        }
        (selection.labels(i), samples)
    });
    each.collect()
}

#[track_caller]
fn check(store: &Store, when: &str) {
    let (held, sent) = (held(store), sent());
    let counts = |of: &Held| (of.len(), of.values().map(Vec::len).sum::<usize>());
    assert_eq!(counts(&held), counts(&sent), "{when}");
    for (labels, samples) in &sent {
        let found = &held[labels];
        let differing = samples.iter().zip(found).find(|(a, b)| a != b);
        assert_eq!(differing, None, "{when}: {labels}");
    }
    let exemplars = exemplars(store);
    let wanted: Vec<(i64, f64)> = (0..STEPS)
        .step_by(20)
        .map(|step| (START + step * STEP, step as f64 / 4.0))
        .collect();
    assert_eq!(exemplars, wanted, "{when}");
}

fn exemplars(store: &Store) -> Vec<(i64, f64)> {
    let sets = [vec![
        Matcher::new("job", MatchOp::Equal, b"fixture").unwrap(),
    ]];
    let request = ExemplarRequest {
        tenant: &TenantId::anonymous(),
        sets: &sets,
        range: TimeRange::ALL,
        cancel: &CancelToken::new(),
        budget: &Budget::new("exemplars", usize::MAX),
    };
    let found = Select::exemplars(store, request).unwrap();
    let each = found.into_iter().flat_map(|found| found.exemplars);
    each.map(|exemplar| (exemplar.time, exemplar.value))
        .collect()
}

/// Sends a sample of another series each minute, with a tick after each.
fn go_on(store: &Store, minutes: std::ops::Range<i64>) {
    for minute in minutes {
        let time = START + STEPS * STEP + minute * MINUTE;
        append(
            store,
            &batch(&[("later", &[(time, minute as f64)])]),
            ALWAYS,
        );
        store.tick();
    }
}

#[test]
fn folder_of_format_3_is_taken_over_and_its_pages_become_blocks() {
    let sim = old_folder();
    let store = open(&sim, upgrading());
    check(&store, "at the first start");
    assert!(store.damages().is_empty(), "{:?}", store.damages());
    let format = sim.disk.contents(Path::new("/data/FORMAT")).unwrap();
    assert_ne!(format, b"firn data format 3\n");
    assert!(store.parts.blocks.list().blocks.is_empty());
    go_on(&store, 0..30);
    let samples = || -> u64 {
        let list = store.parts.blocks.list();
        list.blocks.iter().map(|block| block.samples).sum()
    };
    let cut = samples();
    assert!(cut > 0, "nothing was cut");
    check(&store, "behind the first cut");
    go_on(&store, 30..6 * 60);
    let all: usize = sent().values().map(Vec::len).sum();
    assert!(
        samples() >= all as u64,
        "{} of {all} are in blocks",
        samples()
    );
    check(&store, "with all in blocks");
    drop(store);
    sim.disk.crash();
    let store = open(&sim, upgrading());
    check(&store, "after a crash");
    store.close().unwrap();
    drop(store);
    let report = crate::verify::verify(&sim.env, Path::new("/data")).unwrap();
    assert!(report.is_whole(), "{:?}", report.findings);
    check(&open(&sim, upgrading()), "after a clean stop");
}

/// The machine may stop at any moment of the first start: the next start finds the same samples.
#[test]
fn first_start_of_a_folder_of_format_3_may_stop_anywhere() {
    for changes in [0, 1, 2, 3, 5, 8, 13, 21, 34] {
        let sim = old_folder();
        sim.disk.power_off_after(changes);
        let opened = Store::open(sim.env.clone(), upgrading());
        drop(opened);
        sim.disk.crash();
        let store = open(&sim, upgrading());
        check(&store, &format!("after {changes} changes of the disk"));
    }
}
