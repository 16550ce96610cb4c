//! Validation of encoded label sets without decoding them.
//!
//! Only the order of names depends on the previous set, so only its names are stored. A set with
//! the same names as the previous one, which is frequent, needs no comparison of names. Invariant:
//! accepts exactly the same bytes as [`super::LabelsDecoder`].

use super::{
    COUNT_MAX, END, MalformedLabels, NOT_CANONICAL, NOT_THERE, PAIR, SKIP, TRUNCATED, UNKNOWN,
    VALUE, take_byte,
};
use crate::labels::take_prefixed;

/// Validates label sets, each relative to the previous one.
#[derive(Debug, Default)]
pub(super) struct LabelsChecker<'a> {
    /// The names of the previous set, in ascending order.
    before: Vec<&'a [u8]>,
    /// The names of the current set, as soon as they differ from those of the previous one.
    names: Vec<&'a [u8]>,
}

impl<'a> LabelsChecker<'a> {
    /// Validates the next set and removes it from `rest`.
    pub(super) fn check_next(&mut self, rest: &mut &'a [u8]) -> Result<(), MalformedLabels> {
        let mut at = 0;
        // True as long as all names equal those of the previous set, up to `at`.
        let mut is_alike = true;
        loop {
            let op = take_byte(rest).ok_or(TRUNCATED)?;
            let count = usize::from(op & COUNT_MAX);
            match (op & !COUNT_MAX, count) {
                (END, 0) => break,
                (END, _) => self.copy_names(at, count, is_alike)?,
                (SKIP, 1..) => self.separate_names(at, &mut is_alike),
                (VALUE, 0) => {
                    self.copy_names(at, 1, is_alike)?;
                    check_value(rest)?;
                }
                (PAIR, 0) => {
                    self.separate_names(at, &mut is_alike);
                    let name = take_prefixed(rest).ok_or(TRUNCATED)?;
                    if std::str::from_utf8(name).is_err() {
                        return Err(NOT_CANONICAL);
                    }
                    self.check(name)?;
                    self.names.push(name);
                    check_value(rest)?;
                    continue;
                }
                _ => return Err(UNKNOWN),
            }
            at += count.max(1);
        }
        if is_alike {
            self.before.truncate(at)
        } else {
            std::mem::swap(&mut self.before, &mut self.names)
        }
        Ok(())
    }

    /// Starts a separate list of names, because they now differ from those of the previous set.
    fn separate_names(&mut self, at: usize, is_alike: &mut bool) {
        if std::mem::take(is_alike) {
            self.names.clear();
            self.names.extend_from_slice(&self.before[..at]);
        }
    }

    /// Copies names of the previous set. Fails if they do not exist or are out of order.
    fn copy_names(
        &mut self,
        at: usize,
        count: usize,
        is_alike: bool,
    ) -> Result<(), MalformedLabels> {
        let names = self.before.get(at..at + count).ok_or(NOT_THERE)?;
        if let (false, Some(first)) = (is_alike, names.first()) {
            self.check(first)?;
            self.names.extend_from_slice(names);
        }
        Ok(())
    }

    /// Checks that `name` is after the last name of the current set.
    fn check(&self, name: &[u8]) -> Result<(), MalformedLabels> {
        let is_behind = match self.names.last() {
            Some(last) => *last < name,
            None => !name.is_empty(),
        };
        is_behind.then_some(()).ok_or(NOT_CANONICAL)
    }
}

fn check_value(rest: &mut &[u8]) -> Result<(), MalformedLabels> {
    let value = take_prefixed(rest).ok_or(TRUNCATED)?;
    (!value.is_empty()).then_some(()).ok_or(NOT_CANONICAL)
}

#[cfg(test)]
mod tests {
    use super::super::{LabelsDecoder, LabelsEncoder};
    use super::*;
    use crate::env::Rng;
    use crate::env::sim::SimRng;
    use crate::labels::Labels;

    /// Returns encoded sets in which some bytes were changed.
    fn random_sets(rng: &SimRng) -> Vec<u8> {
        let (mut encoder, mut bytes) = (LabelsEncoder::default(), Vec::new());
        for _ in 0..rng.next_below(5) {
            let pairs = (0..rng.next_below(6)).map(|_| {
                let name = ["a", "ab", "b", "c", "d", "z"][rng.next_below(6) as usize];
                (name, ["1", "12", "2"][rng.next_below(3) as usize])
            });
            let labels = Labels::from_pairs(pairs.collect::<Vec<_>>());
            encoder.push(&mut bytes, labels.as_ref());
        }
        for _ in 0..rng.next_below(3) {
            if let Some(byte) = bytes.get_mut(rng.next_below(64) as usize) {
                *byte = if rng.one_in(2) {
                    [0, 1, 2, 0x41, 0x42, 0x80, 0xc0][rng.next_below(7) as usize]
                } else {
                    rng.next_u64() as u8
                };
            }
        }
        bytes
    }

    #[test]
    fn checker_of_changed_bytes_accepts_what_the_decoder_accepts() {
        let mut accepted = 0;
        for seed in 0..100_000 {
            let bytes = random_sets(&SimRng::new(seed));
            let (mut decoded, mut checked) = (&bytes[..], &bytes[..]);
            let (mut decoder, mut checker) = (LabelsDecoder::default(), LabelsChecker::default());
            while !decoded.is_empty() {
                let expected = decoder.read(&mut decoded).map(|_| ());
                let found = checker.check_next(&mut checked);
                assert_eq!(found.is_ok(), expected.is_ok(), "{bytes:x?}, seed {seed}");
                if found.is_err() {
                    break;
                }
                accepted += 1;
                assert_eq!(checked, decoded, "seed {seed}");
            }
        }
        assert!(accepted > 100_000, "only {accepted} sets are sound");
    }
}
