//! Progress of the work on blocks: the cut and the merge.
//!
//! The work sets these gauges for the metrics and the status page. They have no influence on the
//! work.

use firn_model::env::Clock;
use firn_model::metrics::{Gauge, MetricSink, MetricValue};
use firn_model::stats::BlockWorkStats;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Progress of one kind of work, of which at most one instance runs at a time.
#[derive(Debug, Default)]
pub(crate) struct BlockWorkProgress {
    running: Gauge,
    /// Series to read, series read and bytes written by the current or last work.
    series: Gauge,
    series_done: Gauge,
    written_bytes: Gauge,
    /// Duration of the last completed work.
    last_ms: Gauge,
    /// Start of the current work on the monotonic clock.
    began_ms: AtomicU64,
}

impl BlockWorkProgress {
    /// Records the start of work on `series` series.
    pub(crate) fn begin(&self, clock: &dyn Clock, series: u64) {
        self.began_ms
            .store(millis(clock.monotonic()), Ordering::Relaxed);
        self.series.set(clamped(series));
        self.update_progress(0, 0);
        self.running.set(1);
    }

    /// Records the number of series read so far, and of bytes written for them.
    pub(crate) fn update_progress(&self, series_done: u64, written_bytes: u64) {
        self.series_done.set(clamped(series_done));
        self.written_bytes.set(clamped(written_bytes));
    }

    /// Records the end of the current work, with the total of written bytes.
    pub(crate) fn end(&self, clock: &dyn Clock, written_bytes: u64) {
        let began = self.began_ms.load(Ordering::Relaxed);
        let took = millis(clock.monotonic()).saturating_sub(began);
        self.last_ms.set(clamped(took));
        self.series_done.set(self.series.get());
        self.written_bytes.set(clamped(written_bytes));
        self.stop();
    }

    /// Records that no work is in progress.
    pub(crate) fn stop(&self) {
        self.running.set(0);
    }

    /// Returns the progress of the current work, or the result of the last one.
    pub(crate) fn stats(&self) -> BlockWorkStats {
        let count = |gauge: &Gauge| u64::try_from(gauge.get()).unwrap_or(0);
        BlockWorkStats {
            is_running: self.running.get() > 0,
            series: count(&self.series),
            series_done: count(&self.series_done),
            written_bytes: count(&self.written_bytes),
            last_ms: count(&self.last_ms),
        }
    }
}

/// Writes the progress of both kinds of work to `sink`.
pub(crate) fn collect(
    cut: &BlockWorkProgress,
    compaction: &BlockWorkProgress,
    sink: &mut dyn MetricSink,
) {
    for (work, stats) in [("cut", cut.stats()), ("compaction", compaction.stats())] {
        let table = [
            (
                "firn_storage_block_work_running",
                "1 while a block is being cut or blocks are being merged.",
                f64::from(u8::from(stats.is_running)),
            ),
            (
                "firn_storage_block_work_series",
                "Series to read in the current or last cut or merge.",
                stats.series as f64,
            ),
            (
                "firn_storage_block_work_done_series",
                "Series read so far in the current or last cut or merge.",
                stats.series_done as f64,
            ),
            (
                "firn_storage_block_work_written_bytes",
                "Bytes written so far by the current or last cut or merge.",
                stats.written_bytes as f64,
            ),
            (
                "firn_storage_block_work_last_duration_seconds",
                "Duration of the last completed unit of work, including waits between its steps.",
                stats.last_ms as f64 / 1e3,
            ),
        ];
        for (name, help, value) in table {
            sink.metric(name, help, &[("work", work)], MetricValue::Gauge(value));
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn clamped(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
