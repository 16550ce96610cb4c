//! How many series a query may select, all of its look-ups together.
//!
//! A store counts what a look-up found here before it works on any of it. Nothing is given back:
//! the limit is on what a query touches, not on what it holds at one time.

use crate::error::{Error, ErrorKind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of series and how many of them were found so far.
#[derive(Debug)]
pub struct SeriesLimit {
    max: usize,
    found: AtomicUsize,
}

impl SeriesLimit {
    /// A limit of `max` series.
    pub const fn new(max: usize) -> Self {
        Self {
            max,
            found: AtomicUsize::new(0),
        }
    }

    /// No limit.
    pub const fn none() -> Self {
        Self::new(usize::MAX)
    }

    /// Counts `series` more, or fails with [`ErrorKind::Limited`] if they are too many.
    pub fn count(&self, series: usize) -> Result<(), Error> {
        let before = self.found.fetch_add(series, Ordering::Relaxed);
        let found = before.saturating_add(series);
        match found <= self.max {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Limited,
                format!(
                    "query selects too many series: {found} series, limit {}",
                    self.max
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_limit_counts_all_look_ups_together() {
        let limit = SeriesLimit::new(10);
        assert!(limit.count(4).is_ok());
        assert!(limit.count(6).is_ok());
        let e = limit.count(1).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Limited);
        let text = "query selects too many series: 11 series, limit 10";
        assert_eq!(e.message, text);
        assert!(SeriesLimit::none().count(usize::MAX).is_ok());
    }
}
