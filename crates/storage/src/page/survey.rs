//! Survey of a damaged page: counts the samples that cannot be read.

use super::reader::{Page, Scratch};
use crate::chunk::Columns;
use firn_model::sample::TimeRange;

/// The columns of a page that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Number of columns that cannot be read.
    pub columns: usize,
    /// Number of samples in these columns.
    pub samples: u64,
    /// Time range from their first sample to their last one; none if there are no such columns.
    pub range: Option<TimeRange>,
}

impl Page {
    /// Decodes every column, and counts those that fail. Costs a thousand times as much as a read,
    /// so it is meant for a page in which one column has already failed.
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
