//! Statistics of a store for `/api/v1/status/tsdb`, in the terms of the response of Prometheus.

use crate::damage::Damage;
use crate::sample::{TimeRange, TimestampMs};

/// A name and a number: one row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedStat {
    /// A metric name, a label name, or a pair in the form `name=value`.
    pub name: String,
    /// The number for this name, such as a count of series.
    pub value: u64,
}

/// Statistics of the head. The tables are sorted by descending value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Number of series in the head.
    pub series: u64,
    /// Number of series with a sample in the last 20 minutes of data time.
    pub active_series: u64,
    /// Number of distinct pairs of label name and value.
    pub label_pairs: u64,
    /// Number of chunks in memory, including open ones that still receive samples.
    pub chunks: u64,
    /// The timestamp of the oldest sample, if there is one.
    pub min_time: Option<TimestampMs>,
    /// The timestamp of the newest sample, if there is one.
    pub max_time: Option<TimestampMs>,
    /// Number of series for each metric name, largest first.
    pub series_count_by_metric_name: Vec<NamedStat>,
    /// Number of distinct values for each label name, largest first.
    pub label_value_count_by_label_name: Vec<NamedStat>,
    /// Size of the values of each label in bytes, counted once for every series.
    pub memory_in_bytes_by_label_name: Vec<NamedStat>,
    /// Number of series for each pair of label name and value.
    pub series_count_by_label_value_pair: Vec<NamedStat>,
    /// Number of rejected new series for each job, in the current hour of data time.
    pub refused_series_by_job: Vec<NamedStat>,
    /// All damages to files or memory found since the store was opened.
    pub damages: Vec<Damage>,
}

/// Statistics of the blocks of a store, and of the work on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockStoreStats {
    /// The blocks of the store in time order.
    pub blocks: Vec<BlockStats>,
    /// All samples before this time that were appended in order are in blocks. `None` if no block
    /// has been cut.
    pub cut_time: Option<TimestampMs>,
    /// The progress of cutting a block from the head.
    pub cut: BlockWorkStats,
    /// The progress of compaction, which merges blocks.
    pub compaction: BlockWorkStats,
}

/// The progress of the current work on blocks, or the result of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockWorkStats {
    /// True if work is in progress; otherwise the numbers are those of the last work.
    pub is_running: bool,
    /// Number of series that the work must read.
    pub series: u64,
    /// Number of series that the work has read so far.
    pub series_done: u64,
    /// Number of bytes that the work has written so far.
    pub written_bytes: u64,
    /// Duration of the last completed work in milliseconds, zero if there is none.
    pub last_ms: u64,
}

/// Statistics of one block, and the blocks from which it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockStats {
    /// The name of the block, a ULID as in Prometheus.
    pub id: String,
    /// The time range for which the block was created, or that of its samples.
    pub range: TimeRange,
    /// The time range from the first to the last sample.
    pub sample_range: TimeRange,
    /// Number of samples in the block, including histograms.
    pub samples: u64,
    /// Number of samples in the block that are histograms.
    pub histograms: u64,
    /// Number of series that have samples in the block.
    pub series: u64,
    /// Number of columns in its pages, the closest equivalent to the chunks of Prometheus.
    pub columns: u64,
    /// Number of exemplars that the block contains.
    pub exemplars: u64,
    /// The compaction level: how often the samples of the block were merged.
    pub level: u32,
    /// The ids of the blocks of level 1 from which the block was created.
    pub sources: Vec<String>,
    /// Total size of the block's files in bytes.
    pub bytes: u64,
    /// True if the block consists of late samples or of imported samples.
    pub is_late: bool,
    /// True if the block is damaged and therefore not read.
    pub is_bad: bool,
    /// Index of the block among several blocks of the same compaction.
    pub shard: Option<u32>,
}
