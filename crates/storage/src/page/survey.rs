//! What of a damaged page cannot be read.

use super::reader::{Page, Scratch};
use crate::chunk::Columns;
use firn_model::sample::TimeRange;

/// The columns of a page that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// How many.
    pub columns: usize,
    /// Their samples.
    pub samples: u64,
    /// From their first sample to their last; none if there are no such columns.
    pub range: Option<TimeRange>,
}

impl Page {
    /// Decodes every column, and counts those that fail. A thousand times the work of a read: for
    /// a page of which one column failed already.
    pub fn survey(&self) -> Lost {
        let (mut lost, mut columns) = (Lost::default(), Columns::default());
        let mut scratch = Scratch::default();
        for index in 0..self.column_count() {
            columns.clear();
            let Ok(column) = self.column(index) else {
                lost.columns += 1;
                lost.range = Some(self.range());
                continue;
            };
            let decoded = self.decode(&column, TimeRange::ALL, &mut scratch, &mut columns);
            if decoded.is_err() {
                lost.range = TimeRange::hull_of(lost.range, Some(column.range()));
                lost.columns += 1;
                lost.samples += column.sample_count() as u64;
            }
        }
        lost
    }
}
