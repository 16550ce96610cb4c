//! How long, and how much, a store keeps: the limits in force, and what counts against them.
//!
//! Invariants: the limits change at once and without a restart, and a change writes nothing anew;
//! what counts against the limit of size is what the store itself put on the disk, so snapshots and
//! what a repair set aside do not.

use super::Parts;
use crate::sync::atomic::Ordering;
use arc_swap::ArcSwap;
use firn_model::metrics::{Counter, Gauge, Sink, Value};
use firn_model::sample::TimestampMs;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

/// How long, and how much, a store keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retention {
    /// Samples older than the newest one by this much go; `i64::MAX` is no limit.
    pub time_ms: i64,
    /// The files of the store take so many bytes at most.
    pub bytes: Option<u64>,
    /// They take so many hundredths of their file system at most. It goes before `bytes`, which
    /// holds where the size of the file system cannot be told.
    pub percent: Option<f64>,
}

/// The retention in force, and what it did.
pub(crate) struct Retaining {
    limits: ArcSwap<Retention>,
    /// Pages before this went because of the limit of size.
    pub(crate) pages_gone_before: AtomicI64,
    /// Times that blocks went because of the limit of time, and because of that of size.
    pub(crate) by_time: Counter,
    pub(crate) by_size: Counter,
    /// The limit of size in bytes as of the last tick; 0 is none.
    pub(crate) limit_bytes: Gauge,
    /// Bytes on the disk as of the last tick; those of log and blocks are counted by themselves.
    pub(crate) page_bytes: Gauge,
    pub(crate) catalogue_bytes: Gauge,
    pub(crate) exemplar_bytes: Gauge,
}

impl Retaining {
    /// Begins with `limits`.
    pub(crate) fn new(limits: Retention) -> Self {
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

    /// The limits in force.
    pub(crate) fn limits(&self) -> Retention {
        **self.limits.load()
    }

    /// From here on `limits` hold.
    pub(crate) fn set(&self, limits: Retention) {
        self.limits.store(Arc::new(limits));
    }

    /// The first time that is kept if `newest` is the newest one.
    pub(crate) fn cutoff_at(&self, newest: TimestampMs) -> TimestampMs {
        newest.saturating_sub(self.limits().time_ms)
    }

    /// Bytes of pages, catalogue and exemplars as of the last tick.
    pub(crate) fn file_bytes(&self) -> u64 {
        let parts = [
            &self.page_bytes,
            &self.catalogue_bytes,
            &self.exemplar_bytes,
        ];
        parts.iter().map(|gauge| bytes_of(gauge)).sum()
    }
}

fn bytes_of(gauge: &Gauge) -> u64 {
    u64::try_from(gauge.get()).unwrap_or(0)
}

impl Parts {
    /// Samples older than this left the retention.
    pub(crate) fn cutoff(&self) -> TimestampMs {
        let newest = self.newest();
        newest.map_or(i64::MIN, |newest| self.retaining.cutoff_at(newest))
    }

    /// Pages and head have no sample before this that a reader needs of them: it left the
    /// retention, or is in a block.
    pub(crate) fn pages_from(&self) -> TimestampMs {
        let by_size = self.retaining.pages_gone_before.load(Ordering::Relaxed);
        let readers = self.blocks.cut_of_all_readers();
        self.cutoff().max(readers).max(by_size)
    }

    /// Bytes of the files that blocks, and then pages, make room for.
    pub(crate) fn bytes_beside_blocks(&self) -> u64 {
        self.log
            .pressure()
            .bytes
            .saturating_add(self.retaining.file_bytes())
    }

    pub(super) fn collect_retention(&self, sink: &mut dyn Sink) {
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
                Value::Gauge(seconds),
            ),
            (
                "firn_storage_retention_limit_bytes",
                "Maximum bytes of the files of the store; 0 means no limit.",
                Value::Gauge(bytes_of(&kept.limit_bytes) as f64),
            ),
            (
                "firn_storage_retention_limit_percentage",
                "Maximum share of the file system that the files may use, in percent; 0 means no \
                 limit.",
                Value::Gauge(limits.percent.unwrap_or(0.0)),
            ),
            (
                "firn_storage_time_retentions_total",
                "Deletions of blocks because of the retention time.",
                Value::Counter(kept.by_time.get() as f64),
            ),
            (
                "firn_storage_size_retentions_total",
                "Deletions of blocks or pages because of the retention size.",
                Value::Counter(kept.by_size.get() as f64),
            ),
        ];
        for (name, help, value) in table {
            sink.metric(name, help, &[], value);
        }
        let parts = [
            ("blocks", bytes_of(&self.blocks.bytes)),
            ("log", self.log.pressure().bytes),
            ("pages", bytes_of(&kept.page_bytes)),
            ("catalogue", bytes_of(&kept.catalogue_bytes)),
            ("exemplars", bytes_of(&kept.exemplar_bytes)),
        ];
        for (part, bytes) in parts {
            sink.metric(
                "firn_storage_disk_bytes",
                "Bytes on disk that count towards the retention size, by part.",
                &[("part", part)],
                Value::Gauge(bytes as f64),
            );
        }
    }
}
