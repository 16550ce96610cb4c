//! Statistics of the head for `/api/v1/status/tsdb`.

use super::Store;
use crate::sync::lock;
use firn_model::sample::TimeRange;
use firn_model::stats::{NamedStat, StoreStats};

impl Store {
    /// Returns statistics of the head; each table has at most `top` lines. Visits every series.
    pub fn stats(&self, top: usize) -> StoreStats {
        let parts = &*self.parts;
        let tables = parts.head.index.build_status_tables(top);
        let lines = |lines: Vec<(String, u64)>| {
            let stat = |(name, value)| NamedStat { name, value };
            lines.into_iter().map(stat).collect()
        };
        let mut stats = StoreStats {
            series: parts.head.series_count() as u64,
            active_series: self.active_series() as u64,
            label_pairs: tables.label_pairs,
            max_time: parts.head.newest(),
            series_count_by_metric_name: lines(tables.series_by_metric),
            label_value_count_by_label_name: lines(tables.values_by_label),
            memory_in_bytes_by_label_name: lines(tables.bytes_by_label),
            series_count_by_label_value_pair: lines(tables.series_by_pair),
            refused_series_by_job: lines(self.appender.list_rejected_jobs(top)),
            damages: self.damages(),
            ..StoreStats::default()
        };
        stats.min_time = parts.oldest();
        for shard in &parts.head.shards {
            for (_, series) in lock(shard).iter() {
                stats.chunks += series.chunk_count() as u64;
            }
        }
        stats
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
