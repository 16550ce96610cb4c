//! What the store counts about itself.

use super::Store;
use firn_model::metrics::{Collect, Counter, DurationHistogram, Gauge, Sink, Value};
use std::sync::atomic::Ordering;

/// Metrics of the head and its upkeep.
#[derive(Debug, Default)]
pub(super) struct StoreMetrics {
    /// Samples that the head holds since, silently accepted duplicates included.
    pub(super) appended_samples: Counter,
    /// Series that were born.
    pub(super) born_series: Counter,
    /// Series that were removed.
    pub(super) removed_series: Counter,
    /// Bytes of checkpoints written.
    pub(super) checkpoint_bytes: Counter,
    /// Time of each checkpoint.
    pub(super) checkpoint_duration: DurationHistogram,
    /// Checkpoints that failed.
    pub(super) checkpoint_failures: Counter,
    /// Blocks of log or checkpoint that replay could not read.
    pub(super) damaged_blocks: Counter,
    /// Bytes of memory of chunks, index and tables.
    pub(super) chunk_memory: Gauge,
    pub(super) index_memory: Gauge,
    pub(super) table_memory: Gauge,
}

impl Collect for Store {
    fn collect(&self, sink: &mut dyn Sink) {
        self.log_metrics.collect(sink);
        let counter = |c: &Counter| Value::Counter(c.get() as f64);
        let gauge = |n: usize| Value::Gauge(n as f64);
        let m = &self.metrics;
        let table = [
            (
                "firn_storage_head_appended_samples_total",
                "Samples taken, repeated ones included.",
                counter(&m.appended_samples),
            ),
            (
                "firn_storage_head_series",
                "Series in the head.",
                gauge(self.index.series_count()),
            ),
            (
                "firn_storage_head_active_series",
                "Series with a sample in the last 20 minutes of data time.",
                gauge(self.active_series()),
            ),
            (
                "firn_storage_head_born_series_total",
                "Series created.",
                counter(&m.born_series),
            ),
            (
                "firn_storage_head_removed_series_total",
                "Series removed after their last sample left the retention.",
                counter(&m.removed_series),
            ),
            (
                "firn_storage_checkpoint_written_bytes_total",
                "Bytes of checkpoints written.",
                counter(&m.checkpoint_bytes),
            ),
            (
                "firn_storage_checkpoint_duration_seconds",
                "Time of a checkpoint.",
                Value::Histogram(&m.checkpoint_duration),
            ),
            (
                "firn_storage_checkpoint_failures_total",
                "Checkpoints that failed.",
                counter(&m.checkpoint_failures),
            ),
            (
                "firn_storage_replay_damaged_blocks_total",
                "Blocks of log or checkpoint that could not be read at start.",
                counter(&m.damaged_blocks),
            ),
            (
                "firn_storage_log_bytes_since_checkpoint",
                "Bytes logged since the last checkpoint.",
                Value::Gauge(self.logged_bytes.load(Ordering::Relaxed) as f64),
            ),
        ];
        for (name, help, value) in table {
            sink.metric(name, help, &[], value);
        }
        self.collect_memory(sink);
    }
}

impl Store {
    fn collect_memory(&self, sink: &mut dyn Sink) {
        let m = &self.metrics;
        let parts = [
            ("chunks", &m.chunk_memory),
            ("index", &m.index_memory),
            ("tables", &m.table_memory),
        ];
        for (part, bytes) in parts {
            sink.metric(
                "firn_storage_head_memory_bytes",
                "Memory of the head by part, as of the last sweep.",
                &[("part", part)],
                Value::Gauge(bytes.get() as f64),
            );
        }
    }
}
