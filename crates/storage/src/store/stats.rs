//! Figures about the head for `/api/v1/status/tsdb`.

use super::Store;
use crate::sync::lock;
use firn_model::stats::{Stat, StoreStats};

impl Store {
    /// Figures about the head; each table has at most `top` lines. Looks at every series.
    pub fn stats(&self, top: usize) -> StoreStats {
        let parts = &*self.parts;
        let tables = parts.index.tables(top);
        let lines = |lines: Vec<(String, u64)>| {
            let stat = |(name, value)| Stat { name, value };
            lines.into_iter().map(stat).collect()
        };
        let mut stats = StoreStats {
            series: parts.head_series() as u64,
            active_series: self.active_series() as u64,
            label_pairs: tables.label_pairs,
            max_time: parts.newest(),
            series_count_by_metric_name: lines(tables.series_by_metric),
            label_value_count_by_label_name: lines(tables.values_by_label),
            memory_in_bytes_by_label_name: lines(tables.bytes_by_label),
            series_count_by_label_value_pair: lines(tables.series_by_pair),
            refused_series_by_job: lines(self.appender.offenders(top)),
            damages: self.damages(),
            ..StoreStats::default()
        };
        stats.min_time = parts.sealed.directory.summary().oldest;
        for shard in &parts.shards {
            for (_, series) in lock(shard).iter() {
                stats.chunks += series.chunk_count() as u64;
                let oldest = series.range().map(|r| r.min);
                stats.min_time = match (stats.min_time, oldest) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        stats
    }
}
