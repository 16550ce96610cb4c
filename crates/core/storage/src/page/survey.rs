//! Survey of a damaged page: counts the samples that cannot be read.

use super::reader::{PageDecodeScratch, PageReader};
use crate::chunk::SampleColumns;
use firn_model::sample::TimeRange;

/// The columns of a page that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostColumns {
    /// Number of columns that cannot be read.
    pub columns: usize,
    /// Number of samples in these columns.
    pub samples: u64,
    /// Time range from their first sample to their last one; none if there are no such columns.
    pub range: Option<TimeRange>,
}

impl PageReader {
    /// Decodes every column, and counts those that fail. Costs a thousand times as much as a read,
    /// so it is meant for a page in which one column has already failed.
    pub fn survey(&self) -> LostColumns {
        let (mut lost, mut columns) = (LostColumns::default(), SampleColumns::default());
        let mut scratch = PageDecodeScratch::default();
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
