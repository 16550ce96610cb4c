//! Figures about the head for `/api/v1/status/tsdb`, in the terms of Prometheus's answer.

use super::Store;
use crate::damage::Damage;
use crate::sync::lock;
use firn_model::sample::TimestampMs;

/// A name and a number: one line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// A metric, a label, or a pair written `name=value`.
    pub name: String,
    /// The figure.
    pub value: u64,
}

/// What the head holds now. The tables are sorted by descending value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Series in the head.
    pub series: u64,
    /// Series with a sample in the last 20 minutes of data time.
    pub active_series: u64,
    /// Pairs of label name and value.
    pub label_pairs: u64,
    /// Chunks in memory, open ones included.
    pub chunks: u64,
    /// The oldest sample's time, if there is one.
    pub min_time: Option<TimestampMs>,
    /// The newest sample's time, if there is one.
    pub max_time: Option<TimestampMs>,
    /// Series of each metric name.
    pub series_count_by_metric_name: Vec<Stat>,
    /// Distinct values of each label.
    pub label_value_count_by_label_name: Vec<Stat>,
    /// Bytes of each label's values, counted once for every series that has them.
    pub memory_in_bytes_by_label_name: Vec<Stat>,
    /// Series of each pair.
    pub series_count_by_label_value_pair: Vec<Stat>,
    /// How often new series of each job were refused in the hour of data time under way.
    pub refused_series_by_job: Vec<Stat>,
    /// What was found damaged since the store was opened.
    pub damages: Vec<Damage>,
}

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
