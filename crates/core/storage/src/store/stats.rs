//! Statistics of the head for `/api/v1/status/tsdb`.

use super::Store;
use crate::index::{Index, IndexStatusTables};
use crate::sync::lock;
use firn_model::sample::TimeRange;
use firn_model::stats::{NamedStat, StoreStats};
use std::cmp::Reverse;
use std::collections::BTreeMap;

impl Store {
    /// Returns statistics of the head; each table has at most `top` lines. Visits every series.
    pub fn stats(&self, top: usize) -> StoreStats {
        Self::joint_stats(&[self], top)
    }

    /// Returns the statistics that one store with the series of all `stores` would have. The stores
    /// must have no series in common. Each table has at most `top` lines. Visits every series, and
    /// finds each term in all stores.
    pub fn joint_stats(stores: &[&Store], top: usize) -> StoreStats {
        let indexes: Vec<&Index> = stores
            .iter()
            .map(|store| &*store.parts.head.index)
            .collect();
        let tables = IndexStatusTables::build(&indexes, top);
        let lines = |lines: Vec<(String, u64)>| {
            let stat = |(name, value)| NamedStat { name, value };
            lines.into_iter().map(stat).collect()
        };
        let mut stats = StoreStats {
            label_pairs: tables.label_pairs,
            series_count_by_metric_name: lines(tables.series_by_metric),
            label_value_count_by_label_name: lines(tables.values_by_label),
            memory_in_bytes_by_label_name: lines(tables.bytes_by_label),
            series_count_by_label_value_pair: lines(tables.series_by_pair),
            refused_series_by_job: lines(list_rejected_jobs(stores, top)),
            ..StoreStats::default()
        };
        for store in stores {
            store.add_head_stats(&mut stats);
        }
        stats
    }

    /// Adds the statistics of the head, except the tables, to those of other stores.
    fn add_head_stats(&self, stats: &mut StoreStats) {
        let parts = &*self.parts;
        stats.series += parts.head.series_count() as u64;
        stats.active_series += self.active_series() as u64;
        stats.max_time = stats.max_time.max(parts.head.newest());
        let oldest = [stats.min_time, parts.oldest()].into_iter().flatten();
        stats.min_time = oldest.min();
        stats.damages.extend(self.damages());
        for shard in &parts.head.shards {
            for (_, series) in lock(shard).iter() {
                stats.chunks += series.chunk_count() as u64;
            }
        }
    }

    /// Returns time ranges that contain all samples: one for pages and in-order samples of the
    /// head, one for each block, and those of late samples. They may overlap. Visits every series.
    pub fn time_ranges(&self) -> Vec<TimeRange> {
        let parts = &*self.parts;
        let newest = parts.oldest().zip(parts.head.newest());
        let head = newest.map(|(min, max)| TimeRange::new(min, max));
        let view = parts.blocks.view();
        let blocks = view.blocks.iter().map(|open| open.entry.range);
        head.into_iter()
            .chain(blocks)
            .chain(self.late_ranges())
            .collect()
    }

    /// Returns the merged time ranges of the late samples in the head.
    fn late_ranges(&self) -> Vec<TimeRange> {
        let mut ranges = Vec::new();
        for shard in &self.parts.head.shards {
            let shard = lock(shard);
            ranges.extend(shard.late.iter().filter_map(|(_, rows)| rows.range()));
        }
        ranges.sort_unstable_by_key(|range| range.min);
        let mut joined: Vec<TimeRange> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.min <= last.max => last.max = last.max.max(range.max),
                _ => joined.push(range),
            }
        }
        joined
    }
}

/// Returns the `top` jobs with the most rejected new series in all stores, each with its number of
/// rejections.
fn list_rejected_jobs(stores: &[&Store], top: usize) -> Vec<(String, u64)> {
    let mut jobs: BTreeMap<String, u64> = BTreeMap::new();
    for store in stores {
        for (job, refused) in store.appender.list_rejected_jobs() {
            *jobs.entry(job).or_default() += refused;
        }
    }
    let mut lines: Vec<(String, u64)> = jobs.into_iter().collect();
    lines.sort_by_key(|(_, refused)| Reverse(*refused));
    lines.truncate(top);
    lines
}
