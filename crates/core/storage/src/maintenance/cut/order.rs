//! The series of a cut in block order: by metric, then by labels.
//!
//! Labels are materialized for one metric at a time, when the cut reaches it. Of all other series
//! only the slots are held.

use crate::ids::SeriesRef;
use crate::index::{Index, SeriesCursor};
use crate::parts::head::StoreHead;
use crate::sealed::directory::PageLists;
use firn_model::labels::Labels;
use std::collections::VecDeque;

/// Iterator over the series of a cut in block order.
pub(super) struct SeriesOrder {
    /// The remaining metrics in order, each with the slots of its series.
    metrics: VecDeque<Vec<SeriesRef>>,
    /// The remaining series of the current metric, in order.
    of_metric: VecDeque<(SeriesRef, Labels)>,
    len: usize,
}

impl SeriesOrder {
    /// Returns the series that have a column in `pages` and labels in the index.
    pub(super) fn new(head: &StoreHead, pages: &PageLists) -> Self {
        let mut slots = Vec::new();
        for (_, pages) in pages {
            let first = slots.len();
            for page in pages {
                page.for_each_slot(|slot| slots.extend(head.numbers.number(slot)));
            }
            slots[first..].sort_unstable();
            let mut seen = None;
            let mut kept = first;
            for at in first..slots.len() {
                if seen.replace(slots[at]) != Some(slots[at]) {
                    slots[kept] = slots[at];
                    kept += 1;
                }
            }
            slots.truncate(kept);
        }
        let metrics: VecDeque<_> = head.index.group_by_metric(&slots).into();
        Self {
            len: metrics.iter().map(Vec::len).sum(),
            metrics,
            of_metric: VecDeque::new(),
        }
    }

    /// Returns the total number of series.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the next series with their labels: at most `count`, and at least one unless none is
    /// left.
    pub(super) fn next_series(&mut self, index: &Index, count: usize) -> Vec<(SeriesRef, Labels)> {
        let mut next = Vec::new();
        while next.len() < count.max(1) {
            if let Some(series) = self.of_metric.pop_front() {
                next.push(series);
                continue;
            }
            let Some(slots) = self.metrics.pop_front() else {
                break;
            };
            // Retention may have removed a series since the cut began.
            let mut cursor = SeriesCursor::new(&index.dictionary);
            let there = slots
                .into_iter()
                .filter(|slot| cursor.place(*slot).is_some());
            let labelled = there.map(|slot| (slot, index.dictionary.series_labels(slot)));
            let mut labelled: Vec<_> = labelled.collect();
            labelled.sort_unstable_by(|a, b| a.1.cmp(&b.1));
            self.of_metric = labelled.into();
        }
        next
    }

    /// Returns whether all series of the block were returned.
    pub(super) fn is_done(&self) -> bool {
        self.of_metric.is_empty() && self.metrics.is_empty()
    }
}
