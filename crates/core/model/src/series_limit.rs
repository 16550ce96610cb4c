//! The limit on the number of series that all look-ups of a query select together.
//!
//! A store counts the result of a look-up here before it processes it. The count never decreases,
//! because the limit applies to all series that a query accesses, not to those that it holds at one
//! time.

use crate::error::{Error, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit on the number of series, and the number found so far.
#[derive(Debug)]
pub struct SeriesLimit {
    max: usize,
    found: AtomicUsize,
}

impl SeriesLimit {
    /// Creates a limit of `max` series for one query.
    pub const fn new(max: usize) -> Self {
        Self {
            max,
            found: AtomicUsize::new(0),
        }
    }

    /// Creates a limit that is never exceeded, for internal look-ups.
    pub const fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Returns the number of series found so far, including those above the limit.
    pub fn found(&self) -> usize {
        self.found.load(Ordering::Relaxed)
    }

    /// Returns the number of series that can still be found.
    pub fn remaining(&self) -> usize {
        self.max.saturating_sub(self.found())
    }

    /// Adds `series` to the count. Fails with [`ErrorKind::Limited`] if the limit is exceeded.
    pub fn add_series(&self, series: usize) -> Result<(), Error> {
        let before = self.found.fetch_add(series, Ordering::Relaxed);
        let found = before.saturating_add(series);
        if found <= self.max {
            Ok(())
        } else {
            Err(Error::new(
                ErrorKind::Limited,
                format!(
                    "query selects too many series: {found} series, limit {} \
                     (max_fetched_series_per_query)",
                    self.max
                ),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_limit_counts_all_look_ups_together() {
        let limit = SeriesLimit::new(10);
        assert!(limit.add_series(4).is_ok());
        assert_eq!((limit.found(), limit.remaining()), (4, 6));
        assert!(limit.add_series(6).is_ok());
        let e = limit.add_series(1).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Limited);
        let text = "query selects too many series: 11 series, limit 10 \
                    (max_fetched_series_per_query)";
        assert_eq!(e.message, text);
        assert_eq!((limit.found(), limit.remaining()), (11, 0));
        assert!(SeriesLimit::unlimited().add_series(usize::MAX).is_ok());
    }
}
