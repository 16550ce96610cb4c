//! Golden files of blocks: they are read, and written again byte for byte.
//!
//! These tests fail when the format changes. `docs/format/block.md` and the version in the footer
//! must then change, too. `FIRN_WRITE_GOLDEN=1` writes the files. The files of format 1, in the
//! folders `block-1`, are only read.

use crate::series::assert_equal;
use firn_model::env::sim::{SimEnv, sim_env};
use firn_model::exemplar::{SeriesExemplars, TimedExemplar};
use firn_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use firn_model::labels::Labels;
use firn_model::metadata::{MetricMetadata, MetricType};
use firn_model::sample::{STALE_NAN_BITS, TimeRange};
use firn_storage::block::{
    Block, BlockCache, BlockId, BlockMeta, BlockSpec, BlockWriter, FileMeta, MetricMetadataSet,
};
use firn_storage::error::StorageError;
use firn_storage::page::SampleColumns;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const START_MS: i64 = 1_763_000_000_000;
const FILES: [&str; 4] = ["meta.json", "index", "index.copy", "data-000"];

fn id() -> BlockId {
    BlockId::new(START_MS, 0x0123_4567_89ab_cdef)
}

/// Returns the folder of the block.
fn dir() -> PathBuf {
    Path::new("blocks").join(id().to_string())
}

/// Returns pseudo-random numbers that are the same on every machine.
fn noise(i: usize) -> u64 {
    (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

fn floats(times: &[i64], value: impl Fn(usize) -> f64) -> SampleColumns {
    SampleColumns {
        times: times.to_vec(),
        values: (0..times.len()).map(value).collect(),
        ..SampleColumns::default()
    }
}

fn histogram(i: usize) -> Histogram {
    Histogram {
        reset_hint: ResetHint::NotReset,
        schema: 3,
        zero_threshold: 1e-128,
        sum: i as f64 * 1.25,
        counts: HistogramCounts::Integer {
            count: 6 * i as u64 + 4,
            zero_count: i as u64,
            positive: vec![i as i64, 3],
            negative: Vec::new(),
        },
        positive_spans: vec![BucketSpan {
            offset: 2,
            length: 2,
        }],
        negative_spans: Vec::new(),
        custom_values: Vec::new(),
    }
}

/// Returns series of every kind in block order: several pods of a metric, buckets, a constant, one
/// with start timestamps, one of histograms, and one that is too long for a single page.
fn series() -> Vec<(Labels, SampleColumns)> {
    let steady: Vec<i64> = (0..300).map(|i| START_MS + i * 15_000).collect();
    let shaky: Vec<i64> = (0..300)
        .map(|i| START_MS + 7 + i * 15_000 + noise(i as usize) as i64 % 4)
        .collect();
    let long: Vec<i64> = (0..20_000).map(|i| START_MS + i * 100).collect();
    let labels = |pairs: &[(&str, &str)]| Labels::from_pairs(pairs.iter().copied());
    let mut all = vec![(labels(&[("job", "nameless")]), floats(&steady, |_| 1.0))];
    for (at, le) in ["+Inf", "0.1", "1"].into_iter().enumerate() {
        let bucket = move |i: usize| (0..=i).map(|i| noise(i * 3 + at) % 3).sum::<u64>() as f64;
        let own = [("__name__", "bucket"), ("le", le), ("pod", "a")];
        all.push((labels(&own), floats(&shaky, bucket)));
    }
    all.push((
        labels(&[("__name__", "long")]),
        floats(&long, |i| (i % 700) as f64 * 0.5),
    ));
    let mut native = floats(&steady, |_| 0.0);
    native.histograms = (0..300)
        .map(|i| (i, Arc::new(histogram(i as usize))))
        .collect();
    all.push((labels(&[("__name__", "native"), ("pod", "a")]), native));
    let mut started = floats(&shaky[40..], |i| (i as u64 + noise(i) % 2) as f64);
    started.start_times = vec![START_MS - 5_000; started.times.len()];
    all.push((labels(&[("__name__", "started"), ("pod", "b")]), started));
    for pod in ["a", "b", "c", "d"] {
        let own = [("__name__", "up"), ("job", "node"), ("pod", pod)];
        let value = match pod {
            "d" => f64::from_bits(STALE_NAN_BITS),
            _ => 1.0,
        };
        all.push((labels(&own), floats(&steady, |_| value)));
    }
    all
}

/// Returns the exemplars of a series: many series have none, and the shape of the labels varies.
fn exemplars(ordinal: u32) -> SeriesExemplars {
    let mut exemplars = SeriesExemplars::default();
    for i in 0..(ordinal as usize % 4) * 3 {
        let id = format!("{:06x}", noise(i + ordinal as usize));
        let labels = match i % 5 {
            4 => Labels::from_pairs([("span_id", "1"), ("trace_id", &id)]),
            _ => Labels::from_pairs([("trace_id", id)]),
        };
        exemplars.push(
            ordinal.into(),
            TimedExemplar {
                labels: labels.as_ref(),
                value: i as f64 * 0.25,
                time: START_MS - 1_000 + i as i64 * 15_000,
                has_own_time: i % 3 == 0,
            },
        );
    }
    exemplars
}

fn none(_: u32) -> SeriesExemplars {
    SeriesExemplars::default()
}

#[test]
fn block_of_every_kind_of_series_equals_its_golden_files() {
    check("block", none, &MetricMetadataSet::default());
}

#[test]
fn block_with_exemplars_equals_its_golden_files() {
    check("block-exemplars", exemplars, &MetricMetadataSet::default());
}

#[test]
fn block_with_metadata_equals_its_golden_files() {
    check("block-metadata", none, &metadata());
}

/// Returns metadata of two metrics of the block, one of which had different metadata before, and of
/// a metric that is not in the block.
fn metadata() -> MetricMetadataSet {
    let mut all = MetricMetadataSet::default();
    for (name, kind, help, unit, age) in [
        (
            "up",
            MetricType::Gauge,
            "Whether the scrape was good.",
            "",
            0,
        ),
        ("up", MetricType::Unknown, "Up.", "", 7_200_000),
        (
            "native",
            MetricType::Histogram,
            "How long it took.",
            "seconds",
            0,
        ),
        ("missing", MetricType::Counter, "Of no series.", "", 0),
    ] {
        let said = MetricMetadata {
            name,
            kind,
            help,
            unit,
        };
        let end = START_MS - age;
        all.add(TimeRange::new(end - 7_200_000, end - 1), said);
    }
    all
}

/// Writes the block, compares it with the golden files, and reads those.
fn check(golden: &str, exemplars: fn(u32) -> SeriesExemplars, metadata: &MetricMetadataSet) {
    let sim = sim_env(1);
    let source = BlockSpec {
        id: id(),
        is_late: false,
        level: 2,
        sources: vec![BlockId::new(START_MS, 1), BlockId::new(START_MS, 2)],
        range: Some(TimeRange::new(START_MS - 1, START_MS + 7_199_999)),
    };
    let mut writer = BlockWriter::create(&sim.env, &dir(), source).expect("the disk is sound");
    for (ordinal, (labels, columns)) in (0..).zip(series()) {
        writer
            .push(labels.as_ref(), &columns)
            .expect("the disk is sound");
        let of_series = exemplars(ordinal);
        writer
            .push_exemplars(of_series.iter().map(|(_, exemplar)| exemplar))
            .expect("the disk is sound");
    }
    writer.push_metadata(metadata).expect("the disk is sound");
    let meta = writer.finish().expect("the disk is sound");
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).join(golden);
    for name in FILES {
        let written = sim
            .disk
            .contents(&dir().join(name))
            .expect("it was written");
        let path = folder.join(name);
        if std::env::var_os("FIRN_WRITE_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder).expect("the folder can be made");
            std::fs::write(&path, &written).expect("the file can be written");
        }
        let golden = std::fs::read(&path).expect("the golden file is there");
        assert!(written == golden, "{name} is written otherwise than it was");
        sim.disk.overwrite(&dir().join(name), &golden);
    }
    check_read(&sim, &meta, exemplars, metadata);
    // Without `meta.json`, its content is read from the index.
    sim.disk.remove_durably(&dir().join("meta.json"));
    let block = open(&sim);
    assert_eq!(*block.meta(), meta);
    read_old(
        &golden.replacen("block", "block-1", 1),
        &meta,
        exemplars,
        metadata,
    );
}

/// Reads the block of format 1 with the same series.
fn read_old(
    golden: &str,
    meta: &BlockMeta,
    exemplars: fn(u32) -> SeriesExemplars,
    metadata: &MetricMetadataSet,
) {
    let sim = sim_env(1);
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).join(golden);
    sim.env
        .disk
        .create_dir_all(&dir())
        .expect("the disk is sound");
    let mut files = Vec::new();
    for name in ["meta.json", "index", "data-000"] {
        let bytes = std::fs::read(folder.join(name)).expect("the golden file is there");
        files.push(FileMeta {
            name: name.to_owned(),
            bytes: bytes.len() as u64,
            crc: crc32c::crc32c(&bytes),
        });
        sim.disk.overwrite(&dir().join(name), &bytes);
    }
    let meta = BlockMeta {
        format: 1,
        files: files.split_off(1),
        ..meta.clone()
    };
    check_read(&sim, &meta, exemplars, metadata);
    // Without `meta.json`, its content is reconstructed from the index and the pages.
    sim.disk.remove_durably(&dir().join("meta.json"));
    let meta = BlockMeta {
        is_late: true,
        level: 1,
        sources: vec![id()],
        nominal: None,
        histograms: 0,
        ..meta
    };
    check_read(&sim, &meta, exemplars, metadata);
}

fn open(sim: &SimEnv) -> Block {
    let cache = Arc::new(BlockCache::new(1 << 20));
    Block::open(&sim.env, &dir(), &cache).expect("the golden block is sound")
}

/// Reads all data of the block in the folder.
fn check_read(
    sim: &SimEnv,
    meta: &BlockMeta,
    exemplars: fn(u32) -> SeriesExemplars,
    metadata: &MetricMetadataSet,
) {
    let block = open(sim);
    assert_eq!(block.meta(), meta);
    let mut reader = block.reader();
    for (ordinal, (labels, pushed)) in (0..).zip(series()) {
        let mut read = SampleColumns::default();
        reader
            .read(ordinal, TimeRange::ALL, &mut read)
            .expect("the golden block is sound");
        assert_equal(&read, &pushed, &labels.to_string());
        let each = &mut |_, found: firn_model::labels::LabelsRef<'_>| {
            assert_eq!(found, labels.as_ref());
        };
        block
            .read_labels(&[ordinal], each)
            .expect("the golden block is sound");
        let (mut found, pushed) = (Vec::new(), exemplars(ordinal));
        let read = block.read_exemplars(&[ordinal], |_, exemplar| {
            found.push(format!("{exemplar:?}"));
            Ok::<(), StorageError>(())
        });
        read.expect("the golden block is sound");
        let pushed: Vec<_> = pushed.iter().map(|(_, e)| format!("{e:?}")).collect();
        assert_eq!(found, pushed);
    }
    check_metadata(&block, metadata);
    let mut faults = 0;
    block.verify(&mut |fault| {
        assert!(fault.is_recovered, "{fault:?}");
        faults += 1;
    });
    let is_whole = sim.disk.contents(&dir().join("meta.json")).is_some();
    assert_eq!(faults, usize::from(!is_whole));
}

fn check_metadata(block: &Block, metadata: &MetricMetadataSet) {
    let mut found = MetricMetadataSet::default();
    let read = block.read_metadata(None, &mut found);
    read.expect("the golden block is sound");
    let wanted = metadata.newest().filter(|entry| entry.name != "missing");
    assert!(found.newest().eq(wanted), "{found:?}");
}
