//! Figures about a store for `/api/v1/status/tsdb`, in the terms of Prometheus's answer.

use crate::damage::Damage;
use crate::sample::TimestampMs;

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
