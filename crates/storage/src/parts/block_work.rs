//! How far the work on blocks is: the cut, and the merge.
//!
//! Gauges that the work sets and that metrics and the page show. Nothing is decided by them.

use firn_model::env::Clock;
use firn_model::metrics::{Gauge, Sink, Value};
use firn_model::stats::BlockWorkStats;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One kind of work, of which one is under way at most.
#[derive(Debug, Default)]
pub(crate) struct BlockWork {
    running: Gauge,
    /// Series to be read, those that were, and bytes written for them; of the newest one.
    series: Gauge,
    series_done: Gauge,
    written_bytes: Gauge,
    /// What the newest one that ended took.
    last_ms: Gauge,
    /// When the one under way began, on the monotonic clock.
    began_ms: AtomicU64,
}

impl BlockWork {
    /// Begins one that has so many series to read.
    pub(crate) fn begin(&self, clock: &dyn Clock, series: u64) {
        self.began_ms
            .store(millis(clock.monotonic()), Ordering::Relaxed);
        self.series.set(clamped(series));
        self.go_on(0, 0);
        self.running.set(1);
    }

    /// Says how many series were read, and how many bytes were written for them.
    pub(crate) fn go_on(&self, series_done: u64, written_bytes: u64) {
        self.series_done.set(clamped(series_done));
        self.written_bytes.set(clamped(written_bytes));
    }

    /// The one under way is done, and wrote so many bytes in all.
    pub(crate) fn end(&self, clock: &dyn Clock, written_bytes: u64) {
        let began = self.began_ms.load(Ordering::Relaxed);
        let took = millis(clock.monotonic()).saturating_sub(began);
        self.last_ms.set(clamped(took));
        self.series_done.set(self.series.get());
        self.written_bytes.set(clamped(written_bytes));
        self.stop();
    }

    /// None is under way.
    pub(crate) fn stop(&self) {
        self.running.set(0);
    }

    /// How far it is.
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

/// Tells how far both kinds of work are.
pub(crate) fn collect(cut: &BlockWork, compaction: &BlockWork, sink: &mut dyn Sink) {
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
            sink.metric(name, help, &[("work", work)], Value::Gauge(value));
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn clamped(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
