//! Pairs of a label's name and value, numbered across the head and all blocks of a selection, so
//! that label sets are told apart by a few numbers.
//!
//! Invariant: equal numbers are equal pairs, and the other way around.

use firn_model::budget::Reservation;
use firn_model::error::Error;
use firn_model::labels::LabelsRef;
use rustc_hash::FxHashMap;

/// What a pair takes beside its bytes, which are there twice until all are known.
const PAIR_BYTES: usize = 64;

/// What the number of a pair by the term of a source takes.
const TERM_BYTES: usize = 24;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    by_bytes: FxHashMap<Box<[u8]>, u32>,
}

impl Pairs {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// A pair as it stands in a label set.
    pub(super) fn get(&self, number: u32) -> &[u8] {
        let at = number as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }

    /// The name and the value of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let pairs =
            (0..self.len() as u32).map(|number| LabelsRef::from_canonical(self.get(number)));
        pairs.map(|pair| pair.pairs().next().unwrap_or_default())
    }

    /// The number of a pair.
    fn number(&mut self, pair: &[u8], memory: &mut Reservation) -> Result<u32, Error> {
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

    /// No pair follows.
    pub(super) fn settle(&mut self) {
        self.by_bytes = FxHashMap::default();
    }
}

/// The pairs of a source by its own numbers for them: each is looked at once.
#[derive(Debug, Default)]
pub(super) struct SourcePairs {
    known: FxHashMap<u32, u32>,
    /// What stood last at a place of a label set: mostly the next series has it too.
    newest: Vec<(u32, u32)>,
    /// The bytes of a pair under way.
    pair: Vec<u8>,
}

impl SourcePairs {
    /// Appends the pairs of a label set, in order, of which the source has the numbers `terms`.
    /// `write` appends the bytes of one.
    pub(super) fn push_set(
        &mut self,
        terms: impl IntoIterator<Item = u32>,
        write: impl Fn(u32, &mut Vec<u8>) -> Result<(), Error>,
        (pairs, memory): (&mut Pairs, &mut Reservation),
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
                    let pair = pairs.number(&self.pair, memory)?;
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
