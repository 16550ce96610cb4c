//! Figures about a store for `/api/v1/status/tsdb`, in the terms of Prometheus's answer.

use crate::damage::Damage;
use crate::sample::{TimeRange, TimestampMs};

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

/// The blocks of a store, and the work on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlocksStats {
    /// By their times.
    pub blocks: Vec<BlockStats>,
    /// Before this time all that was taken in order is in blocks, if there was a cut.
    pub cut_time: Option<TimestampMs>,
    /// How the cut of a block is going.
    pub cut: BlockWorkStats,
    /// How the merge of blocks is going.
    pub compaction: BlockWorkStats,
}

/// Work on blocks: the one under way, or the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockWorkStats {
    /// Whether one is under way.
    pub is_running: bool,
    /// Series that it has to read.
    pub series: u64,
    /// Those that were read.
    pub series_done: u64,
    /// Bytes that it wrote.
    pub written_bytes: u64,
    /// Milliseconds that the last one that ended took.
    pub last_ms: u64,
}

/// What a block is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockStats {
    /// Its name, a ULID.
    pub id: String,
    /// The range that it was made for, or that of its samples.
    pub range: TimeRange,
    /// From its first sample to its last.
    pub sample_range: TimeRange,
    /// Its samples.
    pub samples: u64,
    /// Those of them that are histograms.
    pub histograms: u64,
    /// Its series.
    pub series: u64,
    /// Columns of its pages, which upstream's chunks are nearest to.
    pub columns: u64,
    /// Its exemplars.
    pub exemplars: u64,
    /// How often its samples were merged.
    pub level: u32,
    /// The blocks of level 1 of which it is made.
    pub sources: Vec<String>,
    /// Bytes of its files.
    pub bytes: u64,
    /// Whether it is made of late samples or of an import.
    pub is_late: bool,
    /// Whether it was found damaged, and is not read.
    pub is_bad: bool,
    /// Its place among the blocks of one merge, if there are several.
    pub shard: Option<u32>,
}
