//! The retention limits of a store, and the files that count against them. `retention_rules.rs`
//! contains the retention times of matching series.
//!
//! Invariants: a change of the limits takes effect at once without a restart, and rewrites no data;
//! only files that the store itself writes count against the size limit, so snapshots and files set
//! aside by a repair do not. `maintenance/retention.rs` deletes.

use super::StoreParts;
use super::head::StoreHead;
use super::options::{LogTrimming, RetentionLimits};
use super::retention_rules::RetentionCutoffs;
use crate::blocks::Blocks;
use crate::sync::atomic::Ordering;
use arc_swap::ArcSwap;
use firn_model::log::DurableLog;
use firn_model::metrics::{Counter, Gauge, MetricSink, MetricValue};
use firn_model::sample::TimestampMs;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

/// The current retention limits, with counters of their effect.
pub(crate) struct RetentionState {
    limits: ArcSwap<RetentionLimits>,
    /// Pages before this time were deleted by the size limit.
    pub(crate) pages_gone_before: AtomicI64,
    /// Commits that removed blocks because of the time limit.
    pub(crate) by_time: Counter,
    /// Commits that removed blocks or pages because of the size limit.
    pub(crate) by_size: Counter,
    /// The size limit in bytes as of the last tick; 0 means none.
    pub(crate) limit_bytes: Gauge,
    /// Bytes on disk as of the last tick; log and blocks are counted separately.
    pub(crate) page_bytes: Gauge,
    pub(crate) catalogue_bytes: Gauge,
    pub(crate) exemplar_bytes: Gauge,
}

impl RetentionState {
    /// Returns the state with these limits, and with all counters at zero.
    pub(crate) fn new(limits: RetentionLimits) -> Self {
        Self {
            limits: ArcSwap::from_pointee(limits),
            pages_gone_before: AtomicI64::new(i64::MIN),
            by_time: Counter::default(),
            by_size: Counter::default(),
            limit_bytes: Gauge::default(),
            page_bytes: Gauge::default(),
            catalogue_bytes: Gauge::default(),
            exemplar_bytes: Gauge::default(),
        }
    }

    /// Returns the current limits, which may change at any time.
    pub(crate) fn limits(&self) -> Arc<RetentionLimits> {
        self.limits.load_full()
    }

    /// Returns the longest retention time of any series, in milliseconds.
    pub(crate) fn longest_ms(&self) -> i64 {
        let limits = self.limits.load();
        limits.rules.longest_ms(limits.time_ms)
    }

    /// Returns the shortest retention time of any series, in milliseconds.
    fn shortest_ms(&self) -> i64 {
        let limits = self.limits.load();
        limits.rules.shortest_ms(limits.time_ms)
    }

    /// Replaces the limits. The new ones take effect without a restart.
    pub(crate) fn set(&self, limits: RetentionLimits) {
        self.limits.store(Arc::new(limits));
    }

    /// Returns the first time that is kept for any series if `newest` is the newest one.
    pub(crate) fn cutoff_at(&self, newest: TimestampMs) -> TimestampMs {
        newest.saturating_sub(self.longest_ms())
    }

    /// Returns the bytes of pages, catalogue and exemplars as of the last tick.
    pub(crate) fn file_bytes(&self) -> u64 {
        let parts = [
            &self.page_bytes,
            &self.catalogue_bytes,
            &self.exemplar_bytes,
        ];
        parts.iter().map(|gauge| gauge_bytes(gauge)).sum()
    }
}

fn gauge_bytes(gauge: &Gauge) -> u64 {
    u64::try_from(gauge.get()).unwrap_or(0)
}

/// The times that a store keeps, by its limits and its newest sample.
#[derive(Clone, Copy)]
pub(crate) struct RetentionPolicy<'a> {
    pub(crate) retaining: &'a RetentionState,
    head: &'a StoreHead,
    pub(crate) blocks: &'a Blocks,
}

impl RetentionPolicy<'_> {
    /// Returns the newest stored time, if there is a sample.
    pub(crate) fn newest(&self) -> Option<TimestampMs> {
        self.head.newest()
    }

    /// Returns the first time that is kept for each series, if there are rules and samples.
    pub(crate) fn cutoffs(&self) -> Option<RetentionCutoffs> {
        let limits = self.retaining.limits.load();
        limits.rules.cutoffs(self.newest()?, limits.time_ms)
    }

    /// Returns the first time that is kept for any series; all older samples are beyond the
    /// retention.
    pub(crate) fn cutoff(&self) -> TimestampMs {
        let newest = self.newest();
        newest.map_or(i64::MIN, |newest| self.retaining.cutoff_at(newest))
    }

    /// Returns the time before which samples may be removed at any time.
    pub(crate) fn kept_from(&self) -> TimestampMs {
        let by_size = self.retaining.pages_gone_before.load(Ordering::Relaxed);
        let (newest, shortest) = (self.newest(), self.retaining.shortest_ms());
        let cutoff = newest.map_or(i64::MIN, |newest| newest.saturating_sub(shortest));
        cutoff.max(by_size)
    }

    /// Returns the time before which readers need no sample from pages and head, because it is
    /// beyond the retention or in a block.
    pub(crate) fn head_read_start(&self) -> TimestampMs {
        let by_size = self.retaining.pages_gone_before.load(Ordering::Relaxed);
        let readers = self.blocks.oldest_reader_cut();
        self.cutoff().max(readers).max(by_size)
    }
}

/// Returns the bytes of the log in the data folder.
pub(crate) fn log_file_bytes(log: &dyn DurableLog, trimming: LogTrimming) -> u64 {
    match trimming {
        LogTrimming::Sealed => log.pressure().kept_bytes,
        LogTrimming::ByCut | LogTrimming::Never => 0,
    }
}

impl StoreParts {
    /// Returns the times that the store keeps.
    pub(crate) fn retention_policy(&self) -> RetentionPolicy<'_> {
        RetentionPolicy {
            retaining: &self.retaining,
            head: &self.head,
            blocks: &self.blocks,
        }
    }

    pub(super) fn collect_retention(&self, sink: &mut dyn MetricSink) {
        let kept = &self.retaining;
        let limits = kept.limits();
        let seconds = match limits.time_ms {
            i64::MAX => 0.0,
            time_ms => time_ms as f64 / 1e3,
        };
        let table = [
            (
                "firn_storage_retention_limit_seconds",
                "Retention time; 0 means no limit.",
                MetricValue::Gauge(seconds),
            ),
            (
                "firn_storage_retention_limit_bytes",
                "Maximum bytes of the files of the store; 0 means no limit.",
                MetricValue::Gauge(gauge_bytes(&kept.limit_bytes) as f64),
            ),
            (
                "firn_storage_retention_limit_percentage",
                "Maximum share of the file system that the files may use, in percent; 0 means no \
                 limit.",
                MetricValue::Gauge(limits.percent.unwrap_or(0.0)),
            ),
            (
                "firn_storage_time_retentions_total",
                "Deletions of blocks because of the retention time.",
                MetricValue::Counter(kept.by_time.get() as f64),
            ),
            (
                "firn_storage_size_retentions_total",
                "Deletions of blocks or pages because of the retention size.",
                MetricValue::Counter(kept.by_size.get() as f64),
            ),
        ];
        for (name, help, value) in table {
            sink.metric(name, help, &[], value);
        }
        let parts = [
            ("blocks", gauge_bytes(&self.blocks.bytes)),
            ("log", log_file_bytes(&*self.log, self.trimming)),
            ("pages", gauge_bytes(&kept.page_bytes)),
            ("catalogue", gauge_bytes(&kept.catalogue_bytes)),
            ("exemplars", gauge_bytes(&kept.exemplar_bytes)),
        ];
        for (part, bytes) in parts {
            sink.metric(
                "firn_storage_disk_bytes",
                "Bytes on disk that count towards the retention size, by part.",
                &[("part", part)],
                MetricValue::Gauge(bytes as f64),
            );
        }
    }
}
