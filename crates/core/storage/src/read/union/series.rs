//! Maps the series of blocks to the series of a selection.
//!
//! A series of a block is identified with the series of the head with the same labels, if the
//! head's selection contains it. The others are identified by their labels, and follow in the order
//! of the blocks. Labels are compared in full, as numbers of pairs: a hash only finds candidates.

use super::pairs::{LabelPairTable, SourcePairMap};
use crate::block::Block;
use crate::ids::{SeriesRef, TermId};
use crate::index::{Index, SeriesCursor};
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::error::Error;
use firn_model::labels::{Labels, LabelsRef};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;
use std::ops::Range;

/// Memory of a series in bytes: its entries in two lists and a table, and the numbers of its pairs.
const SERIES_BYTES: usize = 96;

/// Memory of a series of a block, in bytes.
const FOUND_BYTES: usize = 16;

/// Number of series between checks of the cancel flag.
const CANCEL_EACH: usize = 4_096;

/// A series of a block in the selection, by its number in that block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockSeriesOrdinal {
    /// Index of the block in the selection.
    pub(super) block: u32,
    pub(super) ordinal: u32,
}

/// The series of a selection, with their counterparts in blocks.
#[derive(Debug, Default)]
pub(super) struct UnionSeriesTable {
    /// Number of series of the head, which come first.
    of_head: usize,
    /// Series of blocks, each with the number of its series; sorted by number after `settle`.
    found: Vec<(u32, BlockSeriesOrdinal)>,
    /// Start of each series in `found`.
    starts: Vec<u32>,
    pairs: LabelPairTable,
    /// The numbers of the pairs of each series, one set after the other.
    sets: Vec<u32>,
    ends: Vec<usize>,
    /// Series by a hash of their set; on a collision, by the next free hash.
    by_hash: FxHashMap<u64, u32>,
}

impl UnionSeriesTable {
    /// Returns the series of the head alone.
    pub(super) fn from_head(
        index: &Index,
        head: &[SeriesRef],
        cancel: &CancelToken,
        memory: &mut Reservation,
    ) -> Result<Self, Error> {
        let mut joined = Self {
            of_head: head.len(),
            ..Self::default()
        };
        let (mut cursor, mut source) = (
            SeriesCursor::new(&index.dictionary),
            SourcePairMap::default(),
        );
        let write = |term: u32, out: &mut Vec<u8>| {
            index.dictionary.push_term(TermId(term), out);
            Ok(())
        };
        for (number, slot) in head.iter().enumerate() {
            if number % CANCEL_EACH == 0 {
                cancel.check()?;
                memory.grow(CANCEL_EACH.min(head.len() - number) * SERIES_BYTES)?;
            }
            let terms = cursor.terms(*slot).iter().map(|term| term.0);
            source.push_set(terms, write, &mut joined.pairs, memory, &mut joined.sets)?;
            joined.intern_set(number as u32);
        }
        Ok(joined)
    }

    /// Returns the number of series.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds series of a block: all of them, or none on an error.
    pub(super) fn add(
        &mut self,
        number: usize,
        block: &Block,
        ordinals: &[u32],
        memory: &mut Reservation,
    ) -> Result<(), Error> {
        memory.grow(ordinals.len() * FOUND_BYTES)?;
        let before = self.found.len();
        let mut source = SourcePairMap::default();
        let write = |term: u32, out: &mut Vec<u8>| Ok(block.push_pair(term, out)?);
        let mut outcome = Ok(());
        let read = block.read_label_terms(ordinals, &mut |at, terms| {
            if outcome.is_err() {
                return;
            }
            let of_block = BlockSeriesOrdinal {
                block: number as u32,
                ordinal: ordinals[at],
            };
            match self.find_or_add_series(terms, &write, &mut source, memory) {
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

    /// Returns the number of the series with these terms of a block.
    fn find_or_add_series(
        &mut self,
        terms: &[u32],
        write: &impl Fn(u32, &mut Vec<u8>) -> Result<(), Error>,
        source: &mut SourcePairMap,
        memory: &mut Reservation,
    ) -> Result<u32, Error> {
        let start = self.sets.len();
        let (terms, pairs) = (terms.iter().copied(), &mut self.pairs);
        let pushed = source.push_set(terms, write, pairs, memory, &mut self.sets);
        if let Err(e) = pushed {
            self.sets.truncate(start);
            return Err(e);
        }
        let number = self.len() as u32;
        let series = self.intern_set(number);
        if series == number {
            memory.grow(SERIES_BYTES)?;
        }
        Ok(series)
    }

    /// Returns the number of the series with the set at the end of `sets`: `number` for a new set,
    /// or that of the series with an equal set, whose copy is then removed.
    fn intern_set(&mut self, number: u32) -> u32 {
        let start = self.ends.last().copied().unwrap_or(0);
        let mut hash = hash_set(&self.sets[start..]);
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

    /// Completes the mapping after all blocks were added.
    pub(super) fn complete(&mut self) {
        self.by_hash = FxHashMap::default();
        self.pairs.drop_index();
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

    /// Returns the counterparts of a series in blocks, in the order of the blocks.
    pub(super) fn block_series(
        &self,
        series: usize,
    ) -> impl Iterator<Item = BlockSeriesOrdinal> + Clone {
        let of_series = self.starts[series] as usize..self.starts[series + 1] as usize;
        self.found[of_series].iter().map(|(_, of)| *of)
    }

    fn has_blocks(&self, series: usize) -> bool {
        self.starts[series] < self.starts[series + 1]
    }

    /// Returns the longest prefix of `range` whose series are in no block.
    pub(super) fn prefix_without_blocks(&self, range: Range<usize>) -> Range<usize> {
        let count = range
            .clone()
            .take_while(|series| !self.has_blocks(*series))
            .count();
        range.start..range.start + count
    }

    /// Returns the end of the consecutive series from `first` on that must be merged.
    pub(super) fn merged_series_end(&self, first: usize, end: usize) -> usize {
        let is_merged = |series: &usize| *series >= self.of_head || self.has_blocks(*series);
        first + (first..end).take_while(is_merged).count()
    }

    /// Returns the ordinals of `series` in a block, in ascending order.
    pub(super) fn block_ordinals(&self, block: usize, series: Range<usize>) -> Vec<u32> {
        let found = self.starts[series.start] as usize..self.starts[series.end] as usize;
        let of_block = self.found[found]
            .iter()
            .filter(|(_, of)| of.block as usize == block);
        let mut ordinals: Vec<u32> = of_block.map(|(_, of)| of.ordinal).collect();
        ordinals.sort_unstable();
        ordinals
    }

    /// Returns the labels of a series that is only in blocks, counted from the first such series.
    pub(super) fn labels(&self, number: usize) -> Labels {
        let mut bytes = Vec::with_capacity(256);
        for pair in self.set(self.of_head + number) {
            bytes.extend_from_slice(self.pairs.get(*pair));
        }
        LabelsRef::from_canonical(&bytes).to_owned()
    }

    /// Returns the numbers of the pairs of a series that is only in blocks.
    pub(super) fn pairs_of(&self, number: usize) -> &[u32] {
        self.set(self.of_head + number)
    }

    /// Returns all pairs of names and values.
    pub(super) fn pairs(&self) -> &LabelPairTable {
        &self.pairs
    }

    /// Returns the number of series that are only in blocks.
    pub(super) fn block_only_count(&self) -> usize {
        self.ends.len() - self.of_head
    }

    fn set(&self, series: usize) -> &[u32] {
        let start = series.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.sets[start..self.ends[series]]
    }
}

fn hash_set(set: &[u32]) -> u64 {
    let mut hasher = FxHasher::default();
    set.iter().for_each(|pair| hasher.write_u32(*pair));
    hasher.finish()
}
