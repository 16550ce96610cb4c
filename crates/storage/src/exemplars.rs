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

use crate::ids::Slot;
pub(crate) use code::{ExemplarEncoder, each_exemplar, read_exemplars};
pub(crate) use file::{EXEMPLARS, ExemplarFile, count_payload};
use ring::{Ring, Taken};

use crate::damage::Damage;
use crate::error::StorageError;
use firn_model::exemplar::SeriesExemplars;
use firn_model::log::Position;
use firn_model::metrics::{Counter, Sink, Value};
use firn_model::sample::TimeRange;
use firn_model::store::ExemplarRefusal;
use firn_model::sync::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The exemplars of a store, with their counters. Shared by appends, queries and maintenance.
#[derive(Debug, Default)]
pub(crate) struct Exemplars {
    /// True if exemplars are stored; checked before each append.
    is_on: AtomicBool,
    ring: Mutex<Ring>,
    added: Counter,
    out_of_order: Counter,
    too_long: Counter,
    too_far_in_future: Counter,
    without_series: Counter,
    written_bytes: Counter,
}

impl Exemplars {
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

    fn ring(&self) -> MutexGuard<'_, Ring> {
        lock(&self.ring)
    }

    /// Returns those of `offered` that can be logged, in order; their series numbers must be slots.
    /// Calls `refuse` with the index of each rejected one.
    pub(crate) fn admit(
        &self,
        offered: &SeriesExemplars,
        mut refuse: impl FnMut(usize, ExemplarRefusal),
    ) -> SeriesExemplars {
        let mut admitted = SeriesExemplars::default();
        let ring = self.ring();
        for (place, (slot, exemplar)) in offered.iter().enumerate() {
            if exemplar.is_too_long() {
                self.too_long.inc();
                refuse(place, ExemplarRefusal::TooLong);
                continue;
            }
            match ring.would_take(Slot(slot), &exemplar) {
                Taken::Added => admitted.push(slot, exemplar),
                Taken::Repeated => {}
                Taken::OutOfOrder => {
                    self.out_of_order.inc();
                    refuse(place, ExemplarRefusal::OutOfOrder);
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
    pub(crate) fn add(&self, exemplars: &SeriesExemplars, position: Position) {
        let mut ring = self.ring();
        for (slot, exemplar) in exemplars.iter() {
            match ring.add(Slot(slot), &exemplar) {
                Taken::Added => self.added.inc(),
                Taken::Repeated => {}
                Taken::OutOfOrder => self.out_of_order.inc(),
            }
        }
        ring.note(position);
    }

    /// Fills the ring from its file. Returns the position after which the log has more exemplars.
    pub(crate) fn load(&self, file: &ExemplarFile, report: &mut dyn FnMut(Damage)) -> Position {
        let mut ring = self.ring();
        file.read(&mut ring, report);
        ring.position()
    }

    /// Adds the exemplars of the log's frame at `position` during replay.
    pub(crate) fn replay(&self, exemplars: &SeriesExemplars, position: Position) {
        let mut ring = self.ring();
        for (slot, exemplar) in exemplars.iter() {
            ring.add(Slot(slot), &exemplar);
        }
        ring.note(position);
    }

    /// Returns the highest slot of a series with exemplars.
    pub(crate) fn last_slot(&self) -> Option<Slot> {
        self.ring().slots().max()
    }

    /// Appends the exemplars that are not in the file yet, durably.
    pub(crate) fn write(&self, file: &mut ExemplarFile) -> Result<(), StorageError> {
        let news = self.ring().news(file.has());
        if let Some(news) = news {
            self.written_bytes.add(file.write(&news)?);
        }
        Ok(())
    }

    /// Returns the slots of the series with exemplars, in ascending order.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        let mut slots: Vec<Slot> = self.ring().slots().collect();
        slots.sort_unstable();
        slots
    }

    /// Returns the number of exemplars.
    pub(crate) fn len(&self) -> usize {
        self.ring().len()
    }

    /// Adds the exemplars of `slot` in `range` to `into`, under the same number.
    pub(crate) fn copy_series(&self, slot: Slot, range: TimeRange, into: &mut SeriesExemplars) {
        let ring = self.ring();
        for exemplar in ring.of_series(slot).filter(|e| range.contains(e.time)) {
            into.push(slot.0, exemplar);
        }
    }

    /// Returns the memory of the ring in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ring().memory_bytes()
    }

    /// Writes the metrics of exemplars to `sink`.
    pub(crate) fn collect(&self, sink: &mut dyn Sink) {
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
                Value::Counter(count.get() as f64),
            );
        }
        let ring = self.ring();
        let table = [
            (
                "firn_storage_exemplars_added_total",
                "Exemplars accepted since the start.",
                Value::Counter(self.added.get() as f64),
            ),
            (
                "firn_storage_exemplars_written_bytes_total",
                "Bytes of exemplars written when the log was trimmed.",
                Value::Counter(self.written_bytes.get() as f64),
            ),
            (
                "firn_storage_exemplars",
                "Stored exemplars.",
                Value::Gauge(ring.len() as f64),
            ),
            (
                "firn_storage_exemplars_max",
                "Maximum number of stored exemplars.",
                Value::Gauge(ring.max() as f64),
            ),
            (
                "firn_storage_exemplars_series",
                "Series with stored exemplars.",
                Value::Gauge(ring.slots().count() as f64),
            ),
            (
                "firn_storage_exemplars_oldest_timestamp_seconds",
                "Timestamp of the oldest exemplar in the buffer.",
                Value::Gauge(ring.oldest_time().unwrap_or(0) as f64 / 1e3),
            ),
            (
                "firn_storage_exemplars_memory_bytes",
                "Memory of stored exemplars.",
                Value::Gauge(ring.memory_bytes() as f64),
            ),
        ];
        drop(ring);
        for (name, help, value) in table {
            sink.metric(name, help, &[], value);
        }
    }
}
