//! The bounds between samples in order, late samples and rejected ones. They may change while the
//! store runs.

use super::StoreParts;
use crate::head::series::AppendWindow;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use firn_model::sample::TimestampMs;
use firn_model::store::{AppendBounds, LateSamplePolicy};

impl StoreParts {
    /// Implements [`crate::store::Store::set_late_window_ms`]; a negative window counts as zero.
    pub(crate) fn set_late_window_ms(&self, window_ms: i64) {
        self.late_window_ms
            .store(window_ms.max(0), Ordering::Relaxed);
    }

    /// Returns the current out-of-order window in milliseconds.
    fn late_window_ms(&self) -> i64 {
        self.late_window_ms.load(Ordering::Relaxed)
    }

    /// Returns how far behind the newest sample of the store a sample may be to be appended in
    /// order, in milliseconds. With a larger out-of-order window the bound grows to that window,
    /// because senders lag that much, but not beyond the next cut: samples before the cut are late
    /// in any case, and series can leave memory sooner.
    pub(crate) fn lateness_ms(&self) -> i64 {
        let of_cut = self.options.open_ms().saturating_add(self.options.cut_ms);
        let of_window = self.late_window_ms().min(of_cut);
        self.options.lateness_max_ms.max(of_window)
    }

    /// Returns the accepted times for a batch. `first` is the time of its first sample, which
    /// counts as the newest one of an empty store.
    pub(crate) fn window(
        &self,
        bounds: AppendBounds,
        first: impl FnOnce() -> Option<TimestampMs>,
    ) -> AppendWindow {
        let (newest, late_ms) = (self.newest(), self.late_window_ms());
        let late_min = match late_ms {
            _ if bounds.late == LateSamplePolicy::OfAnyAge => TimestampMs::MIN,
            0 => TimestampMs::MAX,
            _ => newest
                .or_else(first)
                .map_or(TimestampMs::MIN, |newest| newest.saturating_sub(late_ms)),
        };
        let in_order_min = newest.map_or(i64::MIN, |t| t.saturating_sub(self.lateness_ms()));
        AppendWindow {
            min: in_order_min.max(bounds.in_order_min),
            max: bounds.time_max,
            late_min,
            late: bounds.late,
        }
    }

    /// Prevents that samples before `time` are appended in order after this call returns: they are
    /// then late, or out of bounds if late samples are rejected. Waits for the batches that are
    /// being applied.
    pub(crate) fn raise_in_order_min(&self, time: TimestampMs) {
        self.floor.fetch_max(time, Ordering::Relaxed);
        // A batch reads the floor under the lock of the first shard, and releases each lock only
        // after it holds the next one. A batch that did not read the new floor is in a later shard,
        // and stays ahead.
        let mut held = None;
        for shard in &self.shards {
            let shard = lock(shard);
            drop(held.replace(shard));
        }
    }
}
