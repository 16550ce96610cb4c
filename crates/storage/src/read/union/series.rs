//! Which series of blocks are which series of a selection.
//!
//! A series of a block is that of the head with the same labels, if the head's selection has it;
//! the others are told apart by their labels, and come behind in the order in which blocks give
//! them. Labels are compared whole, as numbers of pairs: a hash finds, and never decides.

use super::pairs::{Pairs, SourcePairs};
use crate::block::Block;
use crate::ids::{SeriesRef, TermId};
use crate::index::{Index, SeriesCursor};
use firn_model::budget::Reservation;
use firn_model::cancel::Cancel;
use firn_model::error::Error;
use firn_model::labels::{Labels, LabelsRef};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;
use std::ops::Range;

/// What a series takes: its place in two lists and in a table, and the numbers of its pairs.
const SERIES_BYTES: usize = 96;

/// What a series of a block takes.
const FOUND_BYTES: usize = 16;

/// Series between looks at the cancel flag.
const CANCEL_EACH: usize = 4_096;

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
    pairs: Pairs,
    /// The numbers of the pairs of each series, one set after the other.
    sets: Vec<u32>,
    ends: Vec<usize>,
    /// Series by a hash of their set; where that is taken, by the next number that is free.
    by_hash: FxHashMap<u64, u32>,
}

impl Joined {
    /// The series of the head alone.
    pub(super) fn behind(
        index: &Index,
        head: &[SeriesRef],
        cancel: &Cancel,
        memory: &mut Reservation,
    ) -> Result<Self, Error> {
        let mut joined = Self {
            of_head: head.len(),
            ..Self::default()
        };
        let (mut cursor, mut source) = (SeriesCursor::new(index), SourcePairs::default());
        let write = |term: u32, out: &mut Vec<u8>| {
            index.push_term(TermId(term), out);
            Ok(())
        };
        for (number, slot) in head.iter().enumerate() {
            if number % CANCEL_EACH == 0 {
                cancel.check()?;
                memory.grow(CANCEL_EACH.min(head.len() - number) * SERIES_BYTES)?;
            }
            let terms = cursor.terms(*slot).iter().map(|term| term.0);
            let into = (&mut joined.pairs, &mut *memory);
            source.push_set(terms, write, into, &mut joined.sets)?;
            joined.keep_set(number as u32);
        }
        Ok(joined)
    }

    /// How many series there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds series of a block: all of them or none.
    pub(super) fn add(
        &mut self,
        number: usize,
        block: &Block,
        ordinals: &[u32],
        memory: &mut Reservation,
    ) -> Result<(), Error> {
        memory.grow(ordinals.len() * FOUND_BYTES)?;
        let before = self.found.len();
        let mut source = SourcePairs::default();
        let write = |term: u32, out: &mut Vec<u8>| Ok(block.push_pair(term, out)?);
        let mut outcome = Ok(());
        let read = block.label_terms(ordinals, &mut |at, terms| {
            if outcome.is_err() {
                return;
            }
            let of_block = BlockSeries {
                block: number as u32,
                ordinal: ordinals[at],
            };
            match self.series_of(terms, &write, &mut source, memory) {
                Ok(series) => self.found.push((series, of_block)),
                Err(e) => outcome = Err(e),
            }
        });
        let added = read.map_err(Error::from).and(outcome);
        if added.is_err() {
            // Another block may get the number.
            self.found.truncate(before);
        }
        added
    }

    /// The number of the series with these terms of a block.
    fn series_of(
        &mut self,
        terms: &[u32],
        write: &impl Fn(u32, &mut Vec<u8>) -> Result<(), Error>,
        source: &mut SourcePairs,
        memory: &mut Reservation,
    ) -> Result<u32, Error> {
        let start = self.sets.len();
        let into = (&mut self.pairs, &mut *memory);
        let pushed = source.push_set(terms.iter().copied(), write, into, &mut self.sets);
        if let Err(e) = pushed {
            self.sets.truncate(start);
            return Err(e);
        }
        let number = self.len() as u32;
        let series = self.keep_set(number);
        if series == number {
            memory.grow(SERIES_BYTES)?;
        }
        Ok(series)
    }

    /// The number of the series whose set stands behind the others: `number`, or that of the one
    /// that has the same set; then it is taken off again.
    fn keep_set(&mut self, number: u32) -> u32 {
        let start = self.ends.last().copied().unwrap_or(0);
        let mut hash = hash_of(&self.sets[start..]);
        while let Some(known) = self.by_hash.get(&hash).copied() {
            if number as usize >= self.of_head && *self.set(known as usize) == self.sets[start..] {
                self.sets.truncate(start);
                return known;
            }
            hash = hash.wrapping_add(1);
        }
        self.by_hash.insert(hash, number);
        self.ends.push(self.sets.len());
        number
    }

    /// All blocks were added.
    pub(super) fn settle(&mut self) {
        self.by_hash = FxHashMap::default();
        self.pairs.settle();
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
    pub(super) fn labels(&self, number: usize) -> Labels {
        let mut bytes = Vec::with_capacity(256);
        for pair in self.set(self.of_head + number) {
            bytes.extend_from_slice(self.pairs.get(*pair));
        }
        LabelsRef::from_canonical(&bytes).to_owned()
    }

    /// The numbers of the pairs of a series that the head does not have.
    pub(super) fn pairs_of(&self, number: usize) -> &[u32] {
        self.set(self.of_head + number)
    }

    /// All pairs of names and values.
    pub(super) fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// How many series the head does not have.
    pub(super) fn behind_head(&self) -> usize {
        self.ends.len() - self.of_head
    }

    fn set(&self, series: usize) -> &[u32] {
        let start = series.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.sets[start..self.ends[series]]
    }
}

fn hash_of(set: &[u32]) -> u64 {
    let mut hasher = FxHasher::default();
    set.iter().for_each(|pair| hasher.write_u32(*pair));
    hasher.finish()
}
