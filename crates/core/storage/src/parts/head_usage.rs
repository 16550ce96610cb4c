//! The total number of series and bytes in the heads of several stores that share one limit.
//!
//! Each store records its own use when it creates series and at each tick. Invariant: the totals
//! are the sums of the last records of all open stores. A store that closes subtracts its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Series and bytes of a head, or of several heads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadSize {
    /// Number of series; an evicted series counts as one sixteenth, for its terms and page
    /// entries.
    pub series: usize,
    /// Memory in bytes.
    pub bytes: usize,
}

/// The use of the heads of all stores that were opened with clones of one value.
#[derive(Clone, Debug, Default)]
pub struct HeadUsage {
    totals: Arc<AtomicHeadSize>,
}

#[derive(Debug, Default)]
struct AtomicHeadSize {
    series: AtomicUsize,
    bytes: AtomicUsize,
}

impl AtomicHeadSize {
    fn replace(&self, size: HeadSize) -> HeadSize {
        HeadSize {
            series: self.series.swap(size.series, Ordering::Relaxed),
            bytes: self.bytes.swap(size.bytes, Ordering::Relaxed),
        }
    }

    /// Adds `new` and subtracts `old`, and returns the sums. Sums wrap in between, since another
    /// thread of the same store may be about to add what this one subtracts.
    fn exchange(&self, old: HeadSize, new: HeadSize) -> HeadSize {
        let exchange = |sum: &AtomicUsize, old: usize, new: usize| {
            let change = new.wrapping_sub(old);
            sum.fetch_add(change, Ordering::Relaxed)
                .wrapping_add(change)
        };
        HeadSize {
            series: exchange(&self.series, old.series, new.series),
            bytes: exchange(&self.bytes, old.bytes, new.bytes),
        }
    }
}

/// The use of one store, as it last recorded it.
#[derive(Debug, Default)]
pub(crate) struct HeadUsageShare {
    usage: HeadUsage,
    own: AtomicHeadSize,
}

impl HeadUsageShare {
    /// Creates the share of a store that uses nothing yet.
    pub(crate) fn new(usage: HeadUsage) -> Self {
        Self {
            usage,
            own: AtomicHeadSize::default(),
        }
    }

    /// Replaces the use of the store by `size` and returns the use of all stores.
    pub(crate) fn record(&self, size: HeadSize) -> HeadSize {
        let old = self.own.replace(size);
        self.usage.totals.exchange(old, size)
    }
}

impl Drop for HeadUsageShare {
    fn drop(&mut self) {
        self.record(HeadSize::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_the_sums_of_the_last_records_of_open_stores() {
        let size = |series, bytes| HeadSize { series, bytes };
        let usage = HeadUsage::default();
        let first = HeadUsageShare::new(usage.clone());
        assert_eq!(first.record(size(5, 500)), size(5, 500));
        let second = HeadUsageShare::new(usage.clone());
        assert_eq!(second.record(size(2, 30)), size(7, 530));
        assert_eq!(first.record(size(1, 600)), size(3, 630));
        drop(first);
        assert_eq!(second.record(size(2, 30)), size(2, 30));
        let other = HeadUsageShare::new(HeadUsage::default());
        assert_eq!(other.record(size(1, 1)), size(1, 1));
    }
}
