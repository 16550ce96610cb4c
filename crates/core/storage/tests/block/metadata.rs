//! The metric metadata of a block: exactly the added entries are returned, by name or all together,
//! and damage is detected.

use crate::fleet::{dir, source};
use crate::seeds;
use firn_model::env::sim::{SimEnv, SimRng, sim_env};
use firn_model::labels::Labels;
use firn_model::metadata::{MetadataBatch, MetricMetadata, MetricType};
use firn_model::sample::TimeRange;
use firn_storage::block::{Block, BlockCache, BlockWriter, MetricMetadataSet, compare_block_order};
use firn_storage::error::StorageError;
use firn_storage::page::SampleColumns;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Type, help and unit of the newest entry of each metric.
type Model = BTreeMap<String, (MetricType, String, String)>;

/// Writes a block with these series.
fn write(series: &[String], metadata: &MetricMetadataSet) -> SimEnv {
    let sim = sim_env(1);
    let mut writer = BlockWriter::create(&sim.env, &dir(), source()).expect("the disk is sound");
    let named = |name: &String| Labels::from_pairs([("__name__", name.as_str()), ("job", "x")]);
    let mut all: Vec<Labels> = series.iter().map(named).collect();
    all.sort_by(|a, b| compare_block_order(a.as_ref(), b.as_ref()));
    all.dedup();
    let columns = SampleColumns {
        times: vec![1, 2],
        values: vec![0.5, 0.5],
        ..SampleColumns::default()
    };
    for labels in &all {
        let pushed = writer.push(labels.as_ref(), &columns);
        pushed.expect("the disk is sound");
    }
    writer.push_metadata(metadata).expect("the disk is sound");
    writer.finish().expect("the disk is sound");
    sim
}

fn open(sim: &SimEnv) -> Result<Block, StorageError> {
    Block::open(&sim.env, &dir(), &Arc::new(BlockCache::new(8 << 20)))
}

/// Reads the metadata of a block, of all metrics or of one.
fn said(block: &Block, metric: Option<&str>) -> Result<Model, StorageError> {
    let mut metadata = MetricMetadataSet::default();
    block.read_metadata(metric, &mut metadata)?;
    Ok(model(&metadata))
}

fn model(metadata: &MetricMetadataSet) -> Model {
    let all = metadata.newest();
    let owned = all.map(|m| {
        let text = (m.kind, m.help.to_owned(), m.unit.to_owned());
        (m.name.to_owned(), text)
    });
    owned.collect()
}

fn random_text(rng: &SimRng) -> (MetricType, String, String) {
    let help = "Many a word. ".repeat(rng.next_below(30) as usize);
    let kind = MetricType::ALL[rng.next_below(8) as usize];
    (
        kind,
        help,
        ["", "seconds"][rng.next_below(2) as usize].to_owned(),
    )
}

#[test]
fn metadata_of_a_block_is_that_of_its_metrics_with_the_newest_text() {
    for seed in seeds::seeds(30) {
        let rng = SimRng::new(seed);
        let (mut metadata, mut series, mut wanted) =
            (MetricMetadataSet::default(), Vec::new(), Model::new());
        for i in 0..rng.next_below(if rng.one_in(8) { 2_000 } else { 40 }) {
            let name = format!("metric_{i}");
            let ending = ["", "_total", "_bucket", "_sum", "_created"][rng.next_below(5) as usize];
            let is_there = !rng.one_in(3);
            series.extend(is_there.then(|| format!("{name}{ending}")));
            // In any order: the entry with the newest time wins.
            let mut newest = None;
            for _ in 0..rng.next_below(12) {
                let last = rng.next_below(1_000_000) as i64;
                let (kind, help, unit) = random_text(&rng);
                let text = MetricMetadata {
                    name: &name,
                    kind,
                    help: &help,
                    unit: &unit,
                };
                metadata.add(TimeRange::new(last - 10, last), text);
                if newest.as_ref().is_none_or(|(time, _)| *time < last) {
                    newest = Some((last, (kind, help, unit)));
                }
            }
            wanted.extend(newest.filter(|_| is_there).map(|(_, text)| (name, text)));
        }
        series.push("other".into());
        let sim = write(&series, &metadata);
        let block = open(&sim).expect("the block is sound");
        assert_eq!(block.metadata_count(), wanted.len() as u64, "seed {seed}");
        let found = said(&block, None).expect("the block is sound");
        assert!(found == wanted, "seed {seed}");
        for (name, text) in &wanted {
            let found = said(&block, Some(name)).expect("the block is sound");
            assert_eq!(found, Model::from([(name.clone(), text.clone())]));
        }
        for other in ["metric_", "other", "a", "z"] {
            let found = said(&block, Some(other)).expect("the block is sound");
            assert_eq!(found, Model::new(), "{other}, seed {seed}");
        }
        block.verify(&mut |fault| panic!("{fault:?}, seed {seed}"));
    }
}

#[test]
fn metadata_joined_in_any_order_is_the_same_and_keeps_its_times() {
    let texts = [("A.", 1, 3), ("B.", 5, 6), ("A.", 9, 9), ("C.", 2, 2)];
    let add = |all: &mut MetricMetadataSet, (help, first, last): (&str, i64, i64)| {
        let text = MetricMetadata {
            name: "up",
            help,
            ..MetricMetadata::default()
        };
        all.add(TimeRange::new(first, last), text);
    };
    for turn in 0..texts.len() {
        let (mut first, mut rest) = (MetricMetadataSet::default(), MetricMetadataSet::default());
        let (one, others) = (texts[turn], texts.iter().cycle().skip(turn + 1).take(3));
        add(&mut first, one);
        others.for_each(|text| add(&mut rest, *text));
        // Through a block: a merge reads the metadata of its inputs.
        let block = open(&write(&["up".into()], &rest)).expect("the block is sound");
        let read = block.read_metadata(None, &mut first);
        read.expect("the block is sound");
        assert_eq!(model(&first)["up"].1, "A.", "turn {turn}");
        let debug = format!("{first:?}");
        let at = |text: &str| debug.find(text).unwrap_or_else(|| panic!("{debug}"));
        assert!(at("\"A.\"") < at("\"B.\"") && at("\"B.\"") < at("\"C.\""));
        assert!(
            debug.contains("min: 1") && debug.contains("max: 9"),
            "{debug}"
        );
    }
}

#[test]
fn metadata_that_is_too_long_or_too_much_is_left_out() {
    let mut all = MetricMetadataSet::default();
    fn text<'a>(name: &'a str, help: &'a str) -> MetricMetadata<'a> {
        MetricMetadata {
            name,
            help,
            ..MetricMetadata::default()
        }
    }
    let long = "x".repeat((16 << 10) + 1);
    all.add(TimeRange::ALL, text("long", &long));
    all.add(TimeRange::ALL, text("", "Nameless."));
    all.add(TimeRange::ALL, text("fits", &long[1..]));
    for version in 0..20 {
        let help = format!("Version {version}.");
        all.add(TimeRange::new(0, version), text("up", &help));
    }
    assert_eq!(model(&all).keys().collect::<Vec<_>>(), ["fits", "up"]);
    assert_eq!(model(&all)["up"].1, "Version 19.");
    let debug = format!("{all:?}");
    assert!(debug.contains("Version 12.") && !debug.contains("Version 11."));
    for i in 0..2_000 {
        let name = format!("metric_{i}");
        all.add(TimeRange::ALL, text(&name, &long[1..]));
    }
    assert!(all.memory_bytes() <= 16 << 20 && model(&all).len() > 900);
}

#[test]
fn metadata_with_any_one_byte_of_the_index_flipped_is_found_or_the_place_is_named() {
    let mut batch = MetadataBatch::default();
    for (name, kind) in [("a", MetricType::Counter), ("up", MetricType::Gauge)] {
        batch.push(MetricMetadata {
            name,
            kind,
            help: "Whether it is.",
            unit: "",
        });
    }
    let metadata = MetricMetadataSet::from_batch(TimeRange::new(1, 2), &batch);
    let sim = write(&["a_total".into(), "up".into()], &metadata);
    let paths = ["index", "index.copy"].map(|name| dir().join(name));
    let sound = sim.disk.contents(&paths[0]).expect("it was written");
    let wanted = model(&metadata);
    let mut errors = 0;
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        sim.disk.overwrite(&paths[1], &sound);
        // If the damage is in different places, each copy supplies its intact part.
        sim.disk.overwrite(&paths[0], &bytes);
        let one = said(&open(&sim).expect("the copy is sound"), None);
        assert!(one.expect("the copy is sound") == wanted, "byte {at}");
        sim.disk.overwrite(&paths[1], &bytes);
        let opened = open(&sim);
        let mut findings = 0;
        if let Ok(block) = &opened {
            block.verify(&mut |_| findings += 1);
        }
        assert!(opened.is_err() || findings > 0, "byte {at} goes unnoticed");
        match opened.and_then(|block| said(&block, None)) {
            Ok(found) => assert!(found == wanted, "byte {at}"),
            Err(e) => {
                let text = e.to_string();
                assert!(text.contains("index") && text.contains("at offset"), "{e}");
                errors += 1;
            }
        }
    }
    assert!(errors > 200, "{errors} errors");
}
