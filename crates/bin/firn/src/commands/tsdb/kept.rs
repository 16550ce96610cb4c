//! `firn tsdb analyze --config FILE DIR`: the series and samples of all blocks that each retention
//! rule of a config keeps.
//!
//! Times count from the newest sample of the blocks. A server counts from the newest sample of its
//! head, which is up to a few hours newer.

use super::table::align;
use crate::file_time::time;
use firn_config::config::{self, Config, JobFeatures};
use firn_config::retention;
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::sample::TimeRange;
use firn_model::units::format_duration;
use firn_storage::block::{Block, BlockCache, LabelsReader};
use firn_storage::import::SampleColumns;
use firn_storage::listing;
use firn_storage::store::{RetentionRule, RetentionRules};
use std::collections::HashSet;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Maximum memory of cached parts of blocks, in bytes.
const CACHE_BYTES: usize = 64 << 20;

/// The data of the series of one rule, or of all other series.
#[derive(Debug, Default)]
struct RuleUsage {
    /// Hashes of the labels of the series.
    series: HashSet<u64>,
    /// Hashes of the labels of the series with a sample that is kept.
    kept_series: HashSet<u64>,
    kept: u64,
    expired: u64,
}

/// Returns a table with a row for each rule of the config, and one for all other series.
pub fn run(env: &Env, dir: &Path, config_file: &Path) -> Result<String, Error> {
    let invalid = |text: String| Error::new(ErrorKind::Invalid, text);
    let config = config::load(config_file, JobFeatures::default());
    let config = config.map_err(|e| invalid(e.to_string()))?;
    let mut listed = listing::list(env, dir)?;
    listed.retain(|block| !block.is_bad);
    let newest = listed.iter().map(|block| block.range.max).max();
    let newest = newest.ok_or_else(|| invalid(format!("no blocks found in {}", dir.display())))?;
    let rules = &config.retention_rules;
    let kept_ms = list_retention_times(&config);
    let cutoffs: Vec<i64> = kept_ms
        .iter()
        .map(|ms| newest.saturating_sub(*ms))
        .collect();
    let mut usages: Vec<RuleUsage> = cutoffs.iter().map(|_| RuleUsage::default()).collect();
    let cache = Arc::new(BlockCache::new(CACHE_BYTES));
    for block in listed {
        let block = Block::open(env, &block.folder(dir), &cache)?;
        add_block(&block, rules, &cutoffs, &mut usages)?;
    }
    let rows = rules.as_slice().iter().map(format_selector);
    let rows = rows
        .chain(["other series".to_owned()])
        .zip(kept_ms)
        .zip(usages);
    let head = [
        "RULE",
        "KEEP",
        "SERIES",
        "KEPT SERIES",
        "KEPT SAMPLES",
        "EXPIRED SAMPLES",
    ];
    let mut table = vec![head.map(str::to_owned)];
    table.extend(rows.map(|((rule, ms), usage)| row(rule, ms, &usage)));
    Ok(format!(
        "Newest sample of all blocks: {}\n\n{}",
        time(newest),
        align(&table)
    ))
}

/// Returns the retention time of each rule and of all other series, in milliseconds. Flags of the
/// server are unknown here, so the default applies unless the config sets a retention.
fn list_retention_times(config: &Config) -> Vec<i64> {
    let others = config
        .retention
        .map_or(Some(retention::DEFAULT), |set| set.time);
    let others = others.map_or(i64::MAX, |time| {
        i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
    });
    let rules = config.retention_rules.as_slice().iter();
    rules.map(|rule| rule.keep_ms).chain([others]).collect()
}

/// Adds the series and samples of a block to the usage of their rules.
fn add_block(
    block: &Block,
    rules: &RetentionRules,
    cutoffs: &[i64],
    usages: &mut [RuleUsage],
) -> Result<(), Error> {
    // Fixed keys, so that a series has the same hash in all blocks.
    let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
    let mut found: Vec<(usize, u64)> = Vec::with_capacity(block.series_count() as usize);
    LabelsReader::for_whole_block().read(block, 0..block.series_count(), &mut |_, labels| {
        found.push((rules.find(labels), hasher.hash_one(labels.as_bytes())));
    })?;
    let mut reader = block.reader();
    let mut columns = SampleColumns::default();
    for (ordinal, (rule, hash)) in (0..).zip(found) {
        columns.clear();
        reader.read(ordinal, TimeRange::ALL, &mut columns)?;
        let expired = columns.times.partition_point(|time| *time < cutoffs[rule]);
        let kept = columns.times.len() - expired;
        let usage = &mut usages[rule];
        usage.series.insert(hash);
        if kept > 0 {
            usage.kept_series.insert(hash);
        }
        usage.kept += kept as u64;
        usage.expired += expired as u64;
    }
    Ok(())
}

fn format_selector(rule: &RetentionRule) -> String {
    let matchers = rule.matchers.iter().map(|matcher| matcher.to_string());
    format!("{{{}}}", matchers.collect::<Vec<_>>().join(","))
}

fn row(rule: String, kept_ms: i64, usage: &RuleUsage) -> [String; 6] {
    let keep = match kept_ms {
        i64::MAX => "unlimited".to_owned(),
        ms => format_duration(Duration::from_millis(ms.unsigned_abs())),
    };
    [
        rule,
        keep,
        usage.series.len().to_string(),
        usage.kept_series.len().to_string(),
        usage.kept.to_string(),
        usage.expired.to_string(),
    ]
}
