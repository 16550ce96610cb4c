//! Which samples are appended in order, and which are late: the bounds that may change while the
//! store works.

use super::Parts;
use crate::head::series::Window;
use crate::sync::atomic::Ordering;
use crate::sync::lock;
use firn_model::sample::TimestampMs;
use firn_model::store::{AppendBounds, TakeLate};

impl Parts {
    /// See [`crate::store::Store::set_late_window_ms`].
    pub(crate) fn set_late_window_ms(&self, window_ms: i64) {
        self.late_window_ms
            .store(window_ms.max(0), Ordering::Relaxed);
    }

    fn late_window_ms(&self) -> i64 {
        self.late_window_ms.load(Ordering::Relaxed)
    }

    /// How far behind the newest sample of the store one may lie that is appended in order. Where
    /// late samples are taken from further back than that, senders are so far behind, but not
    /// further than the next cut: what is before it is late anyway, and series that need not wait
    /// for it leave memory.
    pub(crate) fn lateness_ms(&self) -> i64 {
        let of_cut = self.options.open_ms().saturating_add(self.options.cut_ms);
        let of_window = self.late_window_ms().min(of_cut);
        self.options.lateness_max_ms.max(of_window)
    }

    /// The times that a batch may have; `first` is that of its first sample, which counts as the
    /// newest of an empty store.
    pub(crate) fn window(
        &self,
        bounds: AppendBounds,
        first: impl FnOnce() -> Option<TimestampMs>,
    ) -> Window {
        let (newest, late_ms) = (self.newest(), self.late_window_ms());
        let late_min = match late_ms {
            _ if bounds.late == TakeLate::OfAnyAge => TimestampMs::MIN,
            0 => TimestampMs::MAX,
            _ => newest
                .or_else(first)
                .map_or(TimestampMs::MIN, |newest| newest.saturating_sub(late_ms)),
        };
        let in_order_min = newest.map_or(i64::MIN, |t| t.saturating_sub(self.lateness_ms()));
        Window {
            min: in_order_min.max(bounds.in_order_min),
            max: bounds.time_max,
            late_min,
            late: bounds.late,
        }
    }

    /// From the return of this on no sample before `time` is appended in order: such samples are
    /// late, or out of bounds where late ones are not taken. Waits for the batches that are being
    /// applied.
    pub(crate) fn raise_floor(&self, time: TimestampMs) {
        self.floor.fetch_max(time, Ordering::Relaxed);
        // A batch reads the floor under the lock of the first shard, and holds one lock until it
        // has the next: one that did not see this floor is in a shard further on, and stays ahead.
        let mut held = None;
        for shard in &self.shards {
            let shard = lock(shard);
            drop(held.replace(shard));
        }
    }
}
