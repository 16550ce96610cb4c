//! Columns of start timestamps: each distinct column is stored once.
//!
//! ```text
//! starts = integer column | samples varint
//! ```

use super::equal::hash_numbers;
use super::ints;
use super::planner::IntRunPlanner;
use crate::encoding::push_uvarint;
use firn_model::sample::TimestampMs;
use std::collections::BTreeMap;

/// The distinct start columns of a page under construction, in encoded form.
#[derive(Debug, Default)]
pub(crate) struct StartColumns {
    columns: Vec<Vec<u8>>,
    by_hash: BTreeMap<u64, Vec<usize>>,
}

impl StartColumns {
    /// Returns the number of the start column plus one; zero if `starts` is empty.
    pub(crate) fn intern_starts(
        &mut self,
        planner: &mut IntRunPlanner,
        starts: &[TimestampMs],
    ) -> usize {
        if starts.is_empty() {
            return 0;
        }
        let mut bytes = Vec::new();
        ints::push_column(&mut bytes, planner, starts);
        // Columns are compared by their bytes, which include their length.
        push_uvarint(&mut bytes, starts.len() as u64);
        let hash = hash_numbers(bytes.iter().map(|b| u64::from(*b)));
        let same = self.by_hash.entry(hash).or_default();
        let known = same.iter().find(|i| self.columns[**i] == bytes);
        let number = *known.unwrap_or(&self.columns.len());
        if number == self.columns.len() {
            same.push(number);
            self.columns.push(bytes);
        }
        number + 1
    }

    /// Returns the encoded columns, by number.
    pub(crate) fn columns(&self) -> &[Vec<u8>] {
        &self.columns
    }

    /// Removes all columns, so that the next page can be encoded.
    pub(crate) fn clear(&mut self) {
        self.columns.clear();
        self.by_hash.clear();
    }
}
