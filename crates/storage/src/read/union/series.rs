//! Which series of blocks are which series of a selection.
//!
//! A series of a block is that of the head with the same labels, if the head's selection has it;
//! the others are told apart by their labels, and come behind in the order in which blocks give
//! them. Labels are compared whole: a hash finds, and never decides.

use crate::block::Block;
use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::labels::{Labels, LabelsRef};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// What a series of a block takes beside its labels: its place in two lists and in a table.
const SERIES_BYTES: usize = 48;

/// A series of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockSeries {
    /// The number of the block in the selection.
    pub(super) block: u32,
    pub(super) ordinal: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// Series of the head, which come first.
    of_head: usize,
    /// Series of blocks, each with the number of its series; by number once settled.
    found: Vec<(u32, BlockSeries)>,
    /// Where in `found` those of a series begin.
    starts: Vec<u32>,
    /// The labels of series that the head does not have, one set after the other.
    labels: Vec<u8>,
    ends: Vec<usize>,
    by_labels: FxHashMap<Box<[u8]>, u32>,
}

impl Joined {
    /// The series of the head alone.
    pub(super) fn behind(head: usize) -> Self {
        Self {
            of_head: head,
            ..Self::default()
        }
    }

    /// How many series there are.
    pub(super) fn len(&self) -> usize {
        self.of_head + self.ends.len()
    }

    /// Adds series of a block; `place` finds a series of the head by its labels.
    pub(super) fn add(
        &mut self,
        number: usize,
        block: &Block,
        ordinals: &[u32],
        place: impl Fn(LabelsRef<'_>) -> Option<usize>,
        memory: &mut Reservation,
    ) -> Result<(), Error> {
        memory.grow(ordinals.len() * SERIES_BYTES)?;
        let mut outcome = Ok(());
        block.labels(ordinals, &mut |at, labels| {
            if outcome.is_err() {
                return;
            }
            let series = match place(labels) {
                Some(series) => series,
                None => match self.number_of(labels, memory) {
                    Ok(series) => series,
                    Err(e) => {
                        outcome = Err(e);
                        return;
                    }
                },
            };
            let of_block = BlockSeries {
                block: number as u32,
                ordinal: ordinals[at],
            };
            self.found.push((series as u32, of_block));
        })?;
        outcome
    }

    /// The number of a series that the head does not have.
    fn number_of(
        &mut self,
        labels: LabelsRef<'_>,
        memory: &mut Reservation,
    ) -> Result<usize, Error> {
        let bytes = labels.as_bytes();
        if let Some(known) = self.by_labels.get(bytes) {
            return Ok(*known as usize);
        }
        memory.grow(2 * bytes.len() + SERIES_BYTES)?;
        let number = self.len();
        self.labels.extend_from_slice(bytes);
        self.ends.push(self.labels.len());
        self.by_labels.insert(bytes.into(), number as u32);
        Ok(number)
    }

    /// All blocks were added.
    pub(super) fn settle(&mut self) {
        self.by_labels = FxHashMap::default();
        // By series, then by block.
        self.found
            .sort_unstable_by_key(|(series, of)| (*series, of.block));
        self.starts = vec![0; self.len() + 1];
        for (series, _) in &self.found {
            self.starts[*series as usize + 1] += 1;
        }
        for at in 1..self.starts.len() {
            self.starts[at] += self.starts[at - 1];
        }
    }

    /// What blocks hold of a series, in the order of the blocks.
    pub(super) fn of(&self, series: usize) -> impl Iterator<Item = BlockSeries> + Clone {
        let of_series = self.starts[series] as usize..self.starts[series + 1] as usize;
        self.found[of_series].iter().map(|(_, of)| *of)
    }

    fn has_blocks(&self, series: usize) -> bool {
        self.starts[series] < self.starts[series + 1]
    }

    /// The series from the first of `range` on that no block has.
    pub(super) fn without_blocks(&self, range: Range<usize>) -> Range<usize> {
        let count = range
            .clone()
            .take_while(|series| !self.has_blocks(*series))
            .count();
        range.start..range.start + count
    }

    /// The end of the series from `first` on that have to be merged.
    pub(super) fn with_blocks_until(&self, first: usize, end: usize) -> usize {
        let is_merged = |series: &usize| *series >= self.of_head || self.has_blocks(*series);
        first + (first..end).take_while(is_merged).count()
    }

    /// The ordinals that `series` have in a block, ascending.
    pub(super) fn ordinals_of(&self, block: usize, series: Range<usize>) -> Vec<u32> {
        let found = self.starts[series.start] as usize..self.starts[series.end] as usize;
        let of_block = self.found[found]
            .iter()
            .filter(|(_, of)| of.block as usize == block);
        let mut ordinals: Vec<u32> = of_block.map(|(_, of)| of.ordinal).collect();
        ordinals.sort_unstable();
        ordinals
    }

    /// The labels of a series that the head does not have, counted from the first of those.
    pub(super) fn labels_of(&self, number: usize) -> LabelsRef<'_> {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        LabelsRef::from_canonical(&self.labels[start..self.ends[number]])
    }

    /// The same, as a set of its own.
    pub(super) fn labels(&self, number: usize) -> Labels {
        self.labels_of(number).to_owned()
    }

    /// How many series the head does not have.
    pub(super) fn behind_head(&self) -> usize {
        self.ends.len()
    }
}
