//! Returns freed memory to the system at once while memory is short.
//!
//! jemalloc keeps freed pages for ten seconds, because a thread that frees memory usually allocates
//! again. Memory budgets count only memory in use: a finished query releases its part of the budget
//! at once, and the next query may take the same amount in other pages. The pages of several
//! queries can therefore be resident where the budget allows one, and the kernel kills the process
//! on a machine without that much memory.
//!
//! ```text
//! resident memory above 3/4 of the limit -> freed pages are released at once
//! resident memory below 1/2              -> freed pages are kept for ten seconds
//! ```
//!
//! Invariant: between two checks the allocator keeps at most as much freed memory as was available
//! at the first of them. A check reads one file of the kernel; callers decide how often to check.

use super::metrics;
use std::sync::atomic::{AtomicBool, Ordering};
use tikv_jemalloc_ctl::{Access, AsName};
use tracing::debug;

/// Time that jemalloc keeps freed pages by default, in milliseconds.
const KEPT_MS: isize = 10_000;

/// Tracks whether the process is near its memory limit, and sets the decay time of the allocator
/// accordingly.
#[derive(Debug)]
pub struct MemoryPressure {
    limit_bytes: usize,
    is_high: AtomicBool,
}

impl MemoryPressure {
    /// Creates a tracker in the state without pressure, for a process that may use `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            is_high: AtomicBool::new(false),
        }
    }

    /// Compares the resident memory with the limit, and changes the allocator's decay time if the
    /// state changed.
    pub fn update_decay_time(&self) {
        let was_high = self.is_high.load(Ordering::Relaxed);
        let is_high = self.is_high_at(metrics::resident_bytes(), was_high);
        if is_high != was_high && self.is_high.swap(is_high, Ordering::Relaxed) == was_high {
            debug!(is_high, "memory pressure");
            keep_freed_pages(if is_high { 0 } else { KEPT_MS });
        }
    }

    fn is_high_at(&self, resident_bytes: usize, was_high: bool) -> bool {
        let threshold = if was_high {
            self.limit_bytes / 2
        } else {
            self.limit_bytes / 4 * 3
        };
        resident_bytes > threshold
    }
}

/// Sets the time that freed pages are kept, in existing and future arenas. 0 also releases the
/// pages that are kept now.
fn keep_freed_pages(ms: isize) {
    // An unused arena rejects the setting, and takes the default when it is first used.
    let set = |name: String| name.as_bytes().name().write(ms);
    let _ = set("arenas.dirty_decay_ms\0".into());
    let arenas: u32 = b"arenas.narenas\0"[..].name().read().unwrap_or(0);
    for arena in 0..arenas {
        let _ = set(format!("arena.{arena}.dirty_decay_ms\0"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_begins_above_three_quarters_and_ends_below_half() {
        let pressure = MemoryPressure::new(1000);
        for (resident, was_high, is_high) in [
            (750, false, false),
            (751, false, true),
            (501, true, true),
            (500, true, false),
        ] {
            assert_eq!(
                pressure.is_high_at(resident, was_high),
                is_high,
                "{resident}"
            );
        }
    }

    #[test]
    fn pages_kept_follow_the_pressure_in_every_arena() {
        let kept = || -> isize { b"arena.0.dirty_decay_ms\0"[..].name().read().unwrap() };
        let pressure = MemoryPressure::new(0);
        pressure.update_decay_time();
        assert_eq!(kept(), 0);
        let pressure = MemoryPressure {
            limit_bytes: usize::MAX,
            ..pressure
        };
        pressure.update_decay_time();
        assert_eq!(kept(), KEPT_MS);
    }
}
