//! Fuzzes the index and the pages of a block, with `meta.json` and without: the block is rejected,
//! or each lookup and each read returns an error or valid data. Nothing panics.
//!
//! The first four bytes of an input are the length of the index in the remaining ones.

#![cfg_attr(fuzzing, no_main)]

use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::sim;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimeRange;
use firn_storage::block::{Block, BlockCache, BlockId, MetricMetadataSet};
use firn_storage::error::StorageError;
use firn_storage::page::SampleColumns;
use std::path::Path;
use std::sync::Arc;

const SERIES_MAX: u32 = 200;

/// Returns the entry of a file in `meta.json`.
fn file(name: &str, bytes: &[u8]) -> String {
    let bytes = bytes.len();
    format!("{{ \"name\": \"{name}\", \"bytes\": {bytes}, \"crc\": \"00000000\" }}")
}

/// Returns the `meta.json` that belongs to such an index and such pages.
fn meta(index: &[u8], data: &[u8]) -> Option<String> {
    let footer = index.last_chunk::<64>()?;
    let series = u32::from_le_bytes(*footer[12..].first_chunk()?);
    let samples = u64::from_le_bytes(*footer[16..].first_chunk()?);
    let id = u128::from_be_bytes(*footer[24..].first_chunk()?);
    let id = BlockId::new((id >> 80) as i64, id);
    let format = u32::from_le_bytes(*footer[8..].first_chunk()?);
    let copy = match format {
        2 => format!("{}, ", file("index.copy", index)),
        _ => String::new(),
    };
    let text = format!(
        "{{ \"ulid\": \"{id}\", \"minTime\": 0, \"maxTime\": 1, \"stats\": {{ \"numSamples\": \
         {samples}, \"numFloatSamples\": 0, \"numHistogramSamples\": 0, \"numSeries\": {series}, \
         \"numChunks\": 0 }}, \"compaction\": {{ \"level\": 1, \"sources\": [] }}, \"version\": 1, \
         \"firn\": {{ \"format\": {format}, \"late\": false, \"resolution\": 0, \"nominal\": false, \
         \"firstTime\": 0, \"lastTime\": 0, \"files\": [{}, {copy}{}], ",
        file("index", index),
        file("data-000", data)
    );
    // All checksums are zero while fuzzing.
    Some(format!("{text}\"crc\": \"00000000\"\n\t}}\n}}\n"))
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let len = (u32::from_le_bytes(*len) as usize).min(rest.len());
    let (index, data) = rest.split_at(len);
    let Some(meta) = meta(index, data) else {
        return;
    };
    check(index, data, Some(&meta));
    check(index, data, None);
});

fn check(index: &[u8], data: &[u8], meta: Option<&str>) {
    let sim = sim::sim_env(1);
    let dir = Path::new("block");
    sim.env.disk.create_dir_all(dir).expect("the disk is sound");
    let meta = meta.map(|meta| ("meta.json", meta.as_bytes()));
    for (name, bytes) in [("index", index), ("data-000", data)]
        .into_iter()
        .chain(meta)
    {
        sim.disk.overwrite(&dir.join(name), bytes);
    }
    let cache = Arc::new(BlockCache::new(16 << 20));
    let Ok(block) = Block::open(&sim.env, dir, &cache) else {
        return;
    };
    look_up(&block);
    read(&block);
    block.verify(&mut |_| ());
}

fn look_up(block: &Block) {
    let (cancel, mut memory) = (
        CancelToken::new(),
        Budget::new("fuzz", 64 << 20).create_reservation(),
    );
    let matcher = |name, op, value: &str| Matcher::new(name, op, value.as_bytes()).expect("sound");
    let matchers = [
        matcher("__name__", MatchOp::Equal, "metric_1"),
        matcher("pod", MatchOp::Regex, "pod-1.*"),
        matcher("job", MatchOp::NotEqual, "node"),
        matcher("le", MatchOp::NotRegex, ".*1"),
    ];
    for matchers in [
        &matchers[..1],
        &matchers[1..2],
        &matchers[2..],
        &matchers[..],
    ] {
        if let Ok(found) = block.lookup(matchers, &cancel, &mut memory) {
            assert!(found.is_sorted_by(|a, b| a < b));
            assert!(found.last().is_none_or(|last| *last < block.series_count()));
        }
        let _ = block.label_names(matchers, &cancel, &mut memory);
        let _ = block.label_values("pod", matchers, &cancel, &mut memory);
    }
}

fn read(block: &Block) {
    let all: Vec<u32> = (0..block.series_count().min(SERIES_MAX)).collect();
    let _ = block.read_labels(&all, &mut |_, labels| {
        assert!(labels.iter().count() < 1 << 16)
    });
    let _ = block.prefetch(&all, TimeRange::ALL);
    let mut newest = None;
    let _ = block.read_exemplars(&all, |place, exemplar| {
        assert!(newest <= Some((place, exemplar.time)));
        newest = Some((place, exemplar.time));
        Ok::<(), StorageError>(())
    });
    let mut all_said = MetricMetadataSet::default();
    if block.read_metadata(None, &mut all_said).is_ok() {
        assert!(all_said.newest().is_sorted_by(|a, b| a.name < b.name));
    }
    let _ = block.read_metadata(Some("metric_1"), &mut MetricMetadataSet::default());
    let (mut reader, mut columns) = (block.reader(), SampleColumns::default());
    for ordinal in all {
        columns.clear();
        if reader.read(ordinal, TimeRange::ALL, &mut columns).is_ok() {
            assert!(columns.times.is_sorted_by(|a, b| a < b));
            assert_eq!(columns.times.len(), columns.values.len());
        }
    }
}
