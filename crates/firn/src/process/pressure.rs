//! Freed memory goes back to the system at once while memory is short.
//!
//! jemalloc keeps freed pages for ten seconds: a thread that frees mostly allocates again.
//! Budgets count what is in use; a query that ends gives its memory back to them at once, and the
//! next one may take as much in other pages. So the pages of several queries may be resident where
//! the budget has one, and a machine without that much memory kills the process.
//!
//! ```text
//! resident memory above 3/4 of the limit -> nothing is kept, below 1/2 -> kept as before
//! ```
//!
//! Invariant: from one look to the next no more is kept than was free at the first. A look reads
//! one file of the kernel's; callers decide how often to look.

use super::metrics;
use std::sync::atomic::{AtomicBool, Ordering};
use tikv_jemalloc_ctl::{Access, AsName};
use tracing::debug;

/// How long jemalloc keeps freed pages by default, in milliseconds.
const KEPT_MS: isize = 10_000;

/// Whether the process is near its limit.
#[derive(Debug)]
pub struct Pressure {
    limit_bytes: usize,
    is_high: AtomicBool,
}

impl Pressure {
    /// No pressure yet, for a process that may use `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            is_high: AtomicBool::new(false),
        }
    }

    /// Looks at the resident memory and has the allocator follow.
    pub fn look(&self) {
        let was_high = self.is_high.load(Ordering::Relaxed);
        let is_high = self.is_high_at(metrics::resident_bytes(), was_high);
        if is_high != was_high && self.is_high.swap(is_high, Ordering::Relaxed) == was_high {
            debug!(is_high, "memory pressure");
            keep_freed_pages(if is_high { 0 } else { KEPT_MS });
        }
    }

    fn is_high_at(&self, resident_bytes: usize, was_high: bool) -> bool {
        let threshold = match was_high {
            true => self.limit_bytes / 2,
            false => self.limit_bytes / 4 * 3,
        };
        resident_bytes > threshold
    }
}

/// Sets for how long freed pages are kept, here and in arenas to come; 0 frees those that are.
fn keep_freed_pages(ms: isize) {
    // An arena that is not in use yet refuses, and follows the default when it is.
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
        let pressure = Pressure::new(1000);
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
        let pressure = Pressure::new(0);
        pressure.look();
        assert_eq!(kept(), 0);
        let pressure = Pressure {
            limit_bytes: usize::MAX,
            ..pressure
        };
        pressure.look();
        assert_eq!(kept(), KEPT_MS);
    }
}
