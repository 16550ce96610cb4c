//! Exemplars of all series: the newest ones, up to a maximum number.
//!
//! ```text
//! append: checked against the ring -> log frame -> durable -> ring
//! trim:   ring, new exemplars of it -> file -> the log can be trimmed
//! open:   file -> ring, then the exemplars in the log after the file's position
//! ```
//!
//! The rules for accepting exemplars follow upstream's `tsdb/exemplar.go`. Exemplars are added to
//! the ring in the order of the log's frames, so replay creates the same ring. The ring identifies
//! series by their slots; the labels are in the index. Invariant: an exemplar whose frame is
//! durable is in the ring, or replaced by newer ones, now and after every restart.

mod code;
mod file;
mod ring;

use crate::ids::SeriesSlot;
pub(crate) use code::{ExemplarEncoder, for_each_exemplar, read_exemplars};
pub(crate) use file::{EXEMPLARS, ExemplarFile, count_payload};
use ring::{ExemplarAppendOutcome, ExemplarRing};

use crate::damage::Damage;
use crate::error::StorageError;
use firn_model::exemplar::SeriesExemplars;
use firn_model::log::LogPosition;
use firn_model::metrics::{Counter, MetricSink, MetricValue};
use firn_model::sample::TimeRange;
use firn_model::store::ExemplarRejection;
use firn_model::sync::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The exemplars of a store, with their counters. Shared by appends, queries and maintenance.
#[derive(Debug, Default)]
pub(crate) struct ExemplarStorage {
    /// True if exemplars are stored; checked before each append.
    is_on: AtomicBool,
    ring: Mutex<ExemplarRing>,
    added: Counter,
    out_of_order: Counter,
    too_long: Counter,
    too_far_in_future: Counter,
    without_series: Counter,
    written_bytes: Counter,
}

impl ExemplarStorage {
    /// Returns a store for up to `max` exemplars.
    pub(crate) fn new(max: usize) -> Self {
        let exemplars = Self::default();
        exemplars.set_max(max);
        exemplars
    }

    /// Sets the maximum number of exemplars, and drops the oldest ones above it.
    pub(crate) fn set_max(&self, max: usize) {
        self.ring().set_max(max);
        self.is_on.store(max > 0, Ordering::Release);
    }

    /// Returns whether exemplars are stored.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    fn ring(&self) -> MutexGuard<'_, ExemplarRing> {
        lock(&self.ring)
    }

    /// Returns those of `offered` that can be logged, in order; their series numbers must be slots.
    /// Calls `refuse` with the index of each rejected one.
    pub(crate) fn admit(
        &self,
        offered: &SeriesExemplars,
        mut refuse: impl FnMut(usize, ExemplarRejection),
    ) -> SeriesExemplars {
        let mut admitted = SeriesExemplars::default();
        let ring = self.ring();
        for (place, (slot, exemplar)) in offered.iter().enumerate() {
            if exemplar.is_too_long() {
                self.too_long.inc();
                refuse(place, ExemplarRejection::TooLong);
                continue;
            }
            match ring.check_append(SeriesSlot(slot), &exemplar) {
                ExemplarAppendOutcome::Added => admitted.push(slot, exemplar),
                ExemplarAppendOutcome::Repeated => {}
                ExemplarAppendOutcome::OutOfOrder => {
                    self.out_of_order.inc();
                    refuse(place, ExemplarRejection::OutOfOrder);
                }
            }
        }
        admitted
    }

    /// Counts an exemplar of a series that does not exist.
    pub(crate) fn count_without_series(&self) {
        self.without_series.inc();
    }

    /// Counts an exemplar that is too far in the future.
    pub(crate) fn count_too_far_in_future(&self) {
        self.too_far_in_future.inc();
    }

    /// Adds the exemplars of the frame at `position`, which is durable now.
    pub(crate) fn add(&self, exemplars: &SeriesExemplars, position: LogPosition) {
        let mut ring = self.ring();
        for (slot, exemplar) in exemplars.iter() {
            match ring.add(SeriesSlot(slot), &exemplar) {
                ExemplarAppendOutcome::Added => self.added.inc(),
                ExemplarAppendOutcome::Repeated => {}
                ExemplarAppendOutcome::OutOfOrder => self.out_of_order.inc(),
            }
        }
        ring.set_position(position);
    }

    /// Fills the ring from its file. Returns the position after which the log has more exemplars.
    pub(crate) fn load(&self, file: &ExemplarFile, report: &mut dyn FnMut(Damage)) -> LogPosition {
        let mut ring = self.ring();
        file.read_into_ring(&mut ring, report);
        ring.position()
    }

    /// Adds the exemplars of the log's frame at `position` during replay.
    pub(crate) fn replay(&self, exemplars: &SeriesExemplars, position: LogPosition) {
        let mut ring = self.ring();
        for (slot, exemplar) in exemplars.iter() {
            ring.add(SeriesSlot(slot), &exemplar);
        }
        ring.set_position(position);
    }

    /// Returns the highest slot of a series with exemplars.
    pub(crate) fn last_slot(&self) -> Option<SeriesSlot> {
        self.ring().slots().max()
    }

    /// Appends the exemplars that are not in the file yet, durably.
    pub(crate) fn write(&self, file: &mut ExemplarFile) -> Result<(), StorageError> {
        let news = self.ring().unwritten_since(file.first_unwritten());
        if let Some(news) = news {
            self.written_bytes.add(file.write(&news)?);
        }
        Ok(())
    }

    /// Returns the slots of the series with exemplars, in ascending order.
    pub(crate) fn slots(&self) -> Vec<SeriesSlot> {
        let mut slots: Vec<SeriesSlot> = self.ring().slots().collect();
        slots.sort_unstable();
        slots
    }

    /// Returns the number of exemplars.
    pub(crate) fn len(&self) -> usize {
        self.ring().len()
    }

    /// Adds the exemplars of `slot` in `range` to `into`, under the same number.
    pub(crate) fn copy_series(
        &self,
        slot: SeriesSlot,
        range: TimeRange,
        into: &mut SeriesExemplars,
    ) {
        let ring = self.ring();
        for exemplar in ring
            .series_exemplars(slot)
            .filter(|e| range.contains(e.time))
        {
            into.push(slot.0, exemplar);
        }
    }

    /// Returns the memory of the ring in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ring().memory_bytes()
    }

    /// Writes the metrics of exemplars to `sink`.
    pub(crate) fn collect(&self, sink: &mut dyn MetricSink) {
        let reasons = [
            ("out_of_order", &self.out_of_order),
            ("too_long", &self.too_long),
            ("too_far_in_future", &self.too_far_in_future),
            ("no_series", &self.without_series),
        ];
        for (reason, count) in reasons {
            sink.metric(
                "firn_storage_exemplars_refused_total",
                "Rejected exemplars by reason, not including duplicates.",
                &[("reason", reason)],
                MetricValue::Counter(count.get() as f64),
            );
        }
        let ring = self.ring();
        let table = [
            (
                "firn_storage_exemplars_added_total",
                "Exemplars accepted since the start.",
                MetricValue::Counter(self.added.get() as f64),
            ),
            (
                "firn_storage_exemplars_written_bytes_total",
                "Bytes of exemplars written when the log was trimmed.",
                MetricValue::Counter(self.written_bytes.get() as f64),
            ),
            (
                "firn_storage_exemplars",
                "Stored exemplars.",
                MetricValue::Gauge(ring.len() as f64),
            ),
            (
                "firn_storage_exemplars_max",
                "Maximum number of stored exemplars.",
                MetricValue::Gauge(ring.max() as f64),
            ),
            (
                "firn_storage_exemplars_series",
                "Series with stored exemplars.",
                MetricValue::Gauge(ring.slots().count() as f64),
            ),
            (
                "firn_storage_exemplars_oldest_timestamp_seconds",
                "Timestamp of the oldest exemplar in the buffer.",
                MetricValue::Gauge(ring.oldest_time().unwrap_or(0) as f64 / 1e3),
            ),
            (
                "firn_storage_exemplars_memory_bytes",
                "Memory of stored exemplars.",
                MetricValue::Gauge(ring.memory_bytes() as f64),
            ),
        ];
        drop(ring);
        for (name, help, value) in table {
            sink.metric(name, help, &[], value);
        }
    }
}
