//! Pairs of label name and value, numbered across the head and all blocks of a selection, so that
//! label sets can be compared by a few numbers.
//!
//! Invariant: two pairs have equal numbers if and only if they are equal.

use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use rustc_hash::FxHashMap;

/// Memory of a pair in bytes, without its content, which is stored twice until all pairs are added.
const PAIR_BYTES: usize = 64;

/// Memory of the mapping from a term of a source to its pair, in bytes.
const TERM_BYTES: usize = 24;

/// The distinct pairs of label name and value, by number, and their numbers by content.
#[derive(Debug, Default)]
pub(super) struct LabelPairTable {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    by_bytes: FxHashMap<Box<[u8]>, u32>,
}

impl LabelPairTable {
    /// Returns the number of pairs.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a pair in the encoding of a label set.
    pub(super) fn get(&self, number: u32) -> &[u8] {
        let at = number as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }

    /// Returns name and value of each pair.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let pairs =
            (0..self.len() as u32).map(|number| LabelsRef::from_canonical(self.get(number)));
        pairs.map(|pair| pair.pairs().next().unwrap_or_default())
    }

    /// Returns the number of a pair; adds it if necessary.
    fn intern_pair(&mut self, pair: &[u8], memory: &mut Reservation) -> Result<u32, Error> {
        if let Some(known) = self.by_bytes.get(pair) {
            return Ok(*known);
        }
        memory.grow(2 * pair.len() + PAIR_BYTES)?;
        let number = self.len() as u32;
        self.bytes.extend_from_slice(pair);
        self.ends.push(self.bytes.len());
        self.by_bytes.insert(pair.into(), number);
        Ok(number)
    }

    /// Drops the table that is needed only to add pairs.
    pub(super) fn drop_index(&mut self) {
        self.by_bytes = FxHashMap::default();
    }
}

/// Maps the terms of a source to pairs, so that each term is decoded once.
#[derive(Debug, Default)]
pub(super) struct SourcePairMap {
    known: FxHashMap<u32, u32>,
    /// The last term and pair at each position of a label set; usually the same in the next series.
    newest: Vec<(u32, u32)>,
    /// Buffer for the bytes of a pair.
    pair: Vec<u8>,
}

impl SourcePairMap {
    /// Appends the numbers of the pairs of a label set to `set`, in order. `terms` are the numbers
    /// of the source; `write` appends the bytes of one.
    pub(super) fn push_set(
        &mut self,
        terms: impl IntoIterator<Item = u32>,
        write: impl Fn(u32, &mut Vec<u8>) -> Result<(), Error>,
        pairs: &mut LabelPairTable,
        memory: &mut Reservation,
        set: &mut Vec<u32>,
    ) -> Result<(), Error> {
        for (place, term) in terms.into_iter().enumerate() {
            if let Some((_, pair)) = self.newest.get(place).filter(|(known, _)| *known == term) {
                set.push(*pair);
                continue;
            }
            let pair = match self.known.get(&term) {
                Some(pair) => *pair,
                None => {
                    self.pair.clear();
                    write(term, &mut self.pair)?;
                    memory.grow(TERM_BYTES)?;
                    let pair = pairs.intern_pair(&self.pair, memory)?;
                    self.known.insert(term, pair);
                    pair
                }
            };
            match self.newest.get_mut(place) {
                Some(newest) => *newest = (term, pair),
                None => self.newest.push((term, pair)),
            }
            set.push(pair);
        }
        Ok(())
    }
}
