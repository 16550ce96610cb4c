//! The terms of neighbouring series, each encoded relative to the previous one.
//!
//! The series of a target follow each other and differ in one or two labels. A series therefore
//! stores which of its terms differ, and only those; every sixteenth series stores all terms.
//! Access to one series decodes eight on average, and a scan of all series decodes each of them
//! once.
//!
//! ```text
//! series = count varint | which differ, varint, a bit a term | term varint *
//! ```
//!
//! A place without a series has the count 0 and no more bytes. Terms after the 64th are always
//! stored.

use crate::encoding::cursor::DecodeCursor;
use crate::encoding::{DecodeError, push_uvarint};
use crate::ids::TermId;

/// Number of series from one that stores all of its terms to the next such one.
const RUN: usize = 16;

/// Number of terms that have a bit.
const BITS: usize = 64;

/// The encoded terms of a leaf of series, immutable.
#[derive(Debug, Default)]
pub(super) struct PackedTerms {
    /// Offset in `bytes` at which each run of 16 series begins.
    starts: Box<[u32]>,
    bytes: Box<[u8]>,
}

impl PackedTerms {
    /// Returns the memory in bytes, the struct included.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.starts.len() * 4 + self.bytes.len()
    }
}

/// Encodes the terms of series one after the other.
#[derive(Debug, Default)]
pub(super) struct TermPacker {
    starts: Vec<u32>,
    bytes: Vec<u8>,
    count: usize,
    newest: Vec<TermId>,
}

impl TermPacker {
    /// Adds a series, or a place without one if `terms` is empty.
    pub(super) fn push(&mut self, terms: &[TermId]) {
        if self.count.is_multiple_of(RUN) {
            self.starts.push(self.bytes.len() as u32);
            self.newest.clear();
        }
        self.count += 1;
        push_uvarint(&mut self.bytes, terms.len() as u64);
        let newest = &self.newest;
        let differs = |i: usize| i >= BITS || newest.get(i) != terms.get(i);
        if !terms.is_empty() {
            let bits = (0..terms.len().min(BITS)).filter(|i| differs(*i));
            push_uvarint(&mut self.bytes, bits.fold(0, |all: u64, i| all | 1 << i));
        }
        for (_, term) in terms.iter().enumerate().filter(|(i, _)| differs(*i)) {
            push_uvarint(&mut self.bytes, u64::from(term.0));
        }
        self.newest.clear();
        self.newest.extend_from_slice(terms);
    }

    /// Returns an immutable copy of the series added so far.
    pub(super) fn build(&self) -> PackedTerms {
        PackedTerms {
            starts: self.starts.as_slice().into(),
            bytes: self.bytes.as_slice().into(),
        }
    }

    /// Removes all series and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.starts.clear();
        self.bytes.clear();
        self.count = 0;
        self.newest.clear();
    }
}

/// Decodes terms. Continues from the last position if possible, so that ascending access is cheap.
#[derive(Debug, Default)]
pub(super) struct TermReader {
    /// Place after the series that `terms` belongs to.
    next: usize,
    at: usize,
    terms: Vec<TermId>,
}

impl TermReader {
    /// Resets the reader to the start of another leaf. Keeps the allocated memory.
    pub(super) fn reset(&mut self) {
        self.next = 0;
        self.at = 0;
        self.terms.clear();
    }

    /// Returns the terms of the series at `place`; empty if there is no such series.
    pub(super) fn read_terms(&mut self, packed: &PackedTerms, place: usize) -> &[TermId] {
        let run = place / RUN;
        if place + 1 < self.next || run * RUN >= self.next {
            let Some(start) = packed.starts.get(run) else {
                return &[];
            };
            self.at = *start as usize;
            self.next = run * RUN;
        }
        while self.next <= place {
            if self.next.is_multiple_of(RUN) {
                self.terms.clear();
            }
            // Only this file writes these bytes, so decoding never fails.
            if self.decode_next(packed).is_err() {
                self.reset();
                return &[];
            }
            self.next += 1;
        }
        &self.terms
    }

    /// Decodes the terms of the next series relative to those of the previous one.
    fn decode_next(&mut self, packed: &PackedTerms) -> Result<(), DecodeError> {
        let mut cursor = DecodeCursor::new(packed.bytes.get(self.at..).unwrap_or_default());
        let count = cursor.read_count(0)?;
        self.terms.resize(count, TermId::default());
        let mut differ = if count == 0 {
            0
        } else {
            cursor.read_uvarint()?
        };
        while differ != 0
            && let Some(term) = self.terms.get_mut(differ.trailing_zeros() as usize)
        {
            *term = TermId(cursor.read_uvarint()? as u32);
            differ &= differ - 1;
        }
        for term in self.terms.iter_mut().skip(BITS) {
            *term = TermId(cursor.read_uvarint()? as u32);
        }
        self.at = packed.bytes.len() - cursor.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::{Rng, sim::SimRng};

    /// Returns a series that resembles the previous one, a different one, none, or one with many
    /// terms.
    fn next_terms(rng: &SimRng, before: &[TermId]) -> Vec<TermId> {
        match rng.next_below(12) {
            0 => Vec::new(),
            1 => (0..rng.next_below(100))
                .map(|_| TermId(rng.next_u64() as u32))
                .collect(),
            2 => before[..before.len() / 2].to_vec(),
            _ => {
                let mut terms = before.to_vec();
                terms.resize(terms.len().max(11), TermId(7));
                let at = rng.next_below(terms.len() as u64) as usize;
                terms[at] = TermId(rng.next_below(100_000) as u32);
                terms
            }
        }
    }

    #[test]
    fn terms_of_random_series_come_back_in_any_order() {
        for seed in 0..200 {
            let rng = SimRng::new(seed);
            let mut packer = TermPacker::default();
            let mut all: Vec<Vec<TermId>> = Vec::new();
            for _ in 0..rng.next_below(70) {
                let terms = next_terms(&rng, all.last().map_or(&[], |t| t));
                packer.push(&terms);
                all.push(terms);
            }
            let packed = packer.build();
            let mut reader = TermReader::default();
            for (place, terms) in all.iter().enumerate() {
                assert_eq!(
                    reader.read_terms(&packed, place),
                    terms,
                    "seed {seed}, {place}"
                );
            }
            for _ in 0..100 {
                let place = rng.next_below(all.len() as u64 + 40) as usize;
                let terms = all.get(place).map_or(&[][..], |t| t);
                assert_eq!(
                    reader.read_terms(&packed, place),
                    terms,
                    "seed {seed}, {place}"
                );
            }
        }
    }

    #[test]
    fn series_like_the_one_before_takes_three_bytes_and_its_term() {
        let mut packer = TermPacker::default();
        let mut terms = vec![TermId(1_000_000); 11];
        packer.push(&terms);
        let first = packer.bytes.len();
        terms[3] = TermId(5);
        packer.push(&terms);
        assert_eq!((first, packer.bytes.len() - first), (1 + 2 + 33, 3));
    }
}
