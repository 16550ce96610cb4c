//! The metrics of the log. [`LogMetrics::collect`] contains their names, help texts and types in
//! one table.

use firn_model::metrics::{Collect, Counter, DurationHistogram, Gauge, MetricSink, MetricValue};

/// Metrics of one log, shared with the store, which renders them.
#[derive(Debug, Default)]
pub struct LogMetrics {
    /// Duration of each sync of a segment.
    pub fsync_duration: DurationHistogram,
    /// Number of committed groups, each of which was written at once.
    pub groups: Counter,
    /// Number of records written to segments.
    pub records: Counter,
    /// Number of bytes written to segments, padding included.
    pub written_bytes: Counter,
    /// Bytes of the batches that wait for the next group.
    pub queued_bytes: Gauge,
    /// Number of segments on disk, the current one included.
    pub segments: Gauge,
    /// Bytes of all segments on disk.
    pub size_bytes: Gauge,
    /// 1 after a failure from which the log cannot recover until restart.
    pub poisoned: Gauge,
    /// 1 while writes are rejected because the disk is full or nearly full.
    pub disk_full: Gauge,
    /// 1 while records wait in memory for a disk that cannot write.
    pub stalled: Gauge,
    /// Number of failed writes and syncs, except those for lack of space.
    pub faults: Counter,
    /// Number of damaged ranges found by reads.
    pub damages: Counter,
}

impl Collect for LogMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let counter = |c: &Counter| MetricValue::Counter(c.get() as f64);
        let gauge = |g: &Gauge| MetricValue::Gauge(g.get() as f64);
        let table = [
            (
                "firn_storage_wal_fsync_duration_seconds",
                "Duration of a sync of the log.",
                MetricValue::Histogram(&self.fsync_duration),
            ),
            (
                "firn_storage_wal_groups_total",
                "Batches of blocks committed together.",
                counter(&self.groups),
            ),
            (
                "firn_storage_wal_blocks_total",
                "Blocks written to the log.",
                counter(&self.records),
            ),
            (
                "firn_storage_wal_written_bytes_total",
                "Bytes written to the log.",
                counter(&self.written_bytes),
            ),
            (
                "firn_storage_wal_queued_bytes",
                "Bytes waiting to be written to the log.",
                gauge(&self.queued_bytes),
            ),
            (
                "firn_storage_wal_segments",
                "Segments of the log on disk.",
                gauge(&self.segments),
            ),
            (
                "firn_storage_wal_size_bytes",
                "Bytes of the log on disk.",
                gauge(&self.size_bytes),
            ),
            (
                "firn_storage_wal_poisoned",
                "1 while the log rejects writes until a restart, after a failed write or sync.",
                gauge(&self.poisoned),
            ),
            (
                "firn_storage_wal_disk_full",
                "1 while the log rejects writes until the disk has space again.",
                gauge(&self.disk_full),
            ),
            (
                "firn_storage_wal_stalled",
                "1 while blocks wait in memory because the disk is full or fails.",
                gauge(&self.stalled),
            ),
            (
                "firn_storage_wal_faults_total",
                "Failed writes and syncs of the log, except for lack of space.",
                counter(&self.faults),
            ),
            (
                "firn_storage_wal_damages_total",
                "Damaged ranges found while reading the log.",
                counter(&self.damages),
            ),
        ];
        for (name, help, value) in table {
            sink.metric(name, help, &[], value);
        }
    }
}
