//! The difference between a label set and the previous one.
//!
//! Pairs are stored with their lengths, so pairs are equal exactly if their bytes are. A single
//! comparison of bytes therefore finds a run of equal pairs without decoding them. Invariant:
//! applying the steps of a set to the previous set gives the set.

use crate::labels::{LabelsRef, take_prefixed};

/// One step from the previous set to the next one. The pairs of both sets are processed in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelStep<'l> {
    /// The next pair equals that of the previous set.
    Same,
    /// The next pair of the previous set is not in this set.
    Skip,
    /// The next pair has the same name as that of the previous set, with this value.
    Value(&'l [u8]),
    /// A new pair, which the previous set does not contain: name and value.
    Pair(&'l [u8], &'l [u8]),
}

/// The previous set, to which the next one is compared.
#[derive(Clone, Debug, Default)]
pub struct PreviousLabels {
    bytes: Vec<u8>,
    /// The end offset of each pair in `bytes`.
    ends: Vec<u32>,
    /// The end offset of each pair in the current set.
    next_ends: Vec<u32>,
}

impl PreviousLabels {
    /// Discards the previous set, so that the next one is encoded completely.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns the steps to `labels`. [`LabelSteps::commit`] makes it the previous set. There are
    /// no steps for remaining pairs of the previous set.
    pub fn steps<'b, 'l>(&'b mut self, labels: LabelsRef<'l>) -> LabelSteps<'b, 'l> {
        self.next_ends.clear();
        let mut steps = LabelSteps {
            before: self,
            bytes: labels.as_bytes(),
            at: 0,
            pair_before: 0,
            at_before: 0,
            same_until: 0,
        };
        steps.compare();
        steps
    }
}

/// An iterator over the steps from the previous set to another one.
#[derive(Debug)]
pub struct LabelSteps<'b, 'l> {
    before: &'b mut PreviousLabels,
    bytes: &'l [u8],
    at: usize,
    pair_before: usize,
    at_before: usize,
    /// The offset in the previous set up to which both sets are equal from here on.
    same_until: usize,
}

impl<'l> LabelSteps<'_, 'l> {
    /// Makes the set the previous one. All steps must have been read.
    pub fn commit(self) {
        debug_assert_eq!(self.at, self.bytes.len(), "steps are left");
        std::mem::swap(&mut self.before.ends, &mut self.before.next_ends);
        self.before.bytes.clear();
        self.before.bytes.extend_from_slice(self.bytes);
    }

    fn compare(&mut self) {
        let before = self.before.bytes.get(self.at_before..).unwrap_or(&[]);
        let here = self.bytes.get(self.at..).unwrap_or(&[]);
        self.same_until = self.at_before + common_prefix_len(here, before);
    }

    /// Returns the name of the next pair in the previous set, and the end of the pair.
    fn next_before(&self) -> Option<(&[u8], usize)> {
        let end = *self.before.ends.get(self.pair_before)? as usize;
        let mut pair = self.before.bytes.get(self.at_before..end)?;
        Some((take_prefixed(&mut pair)?, end))
    }
}

impl<'l> Iterator for LabelSteps<'_, 'l> {
    type Item = LabelStep<'l>;

    #[inline]
    fn next(&mut self) -> Option<LabelStep<'l>> {
        if let Some(end) = self.before.ends.get(self.pair_before).map(|e| *e as usize)
            && end <= self.same_until
        {
            self.at += end - self.at_before;
            (self.at_before, self.pair_before) = (end, self.pair_before + 1);
            self.before.next_ends.push(self.at as u32);
            return Some(LabelStep::Same);
        }
        let mut rest = self.bytes.get(self.at..)?;
        let (name, value) = (take_prefixed(&mut rest)?, take_prefixed(&mut rest)?);
        let step = match self.next_before() {
            Some((before, end)) if before <= name => {
                let is_it = before == name;
                (self.at_before, self.pair_before) = (end, self.pair_before + 1);
                if is_it {
                    LabelStep::Value(value)
                } else {
                    LabelStep::Skip
                }
            }
            _ => LabelStep::Pair(name, value),
        };
        if step != LabelStep::Skip {
            self.at = self.bytes.len() - rest.len();
            self.before.next_ends.push(self.at as u32);
        }
        self.compare();
        Some(step)
    }
}

/// Returns the length of the common prefix of `a` and `b`.
fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let (words_a, words_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let mut same = 0;
    for (x, y) in words_a.iter().zip(words_b) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return same + differing.trailing_zeros() as usize / 8;
        }
        same += 8;
    }
    let (rest_a, rest_b) = (&a[same..], &b[same..]);
    same + rest_a
        .iter()
        .zip(rest_b)
        .take_while(|(x, y)| x == y)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Rng;
    use crate::env::sim::SimRng;
    use crate::labels::Labels;

    /// Returns random labels with few names and values, so that neighbours share some. Long values
    /// cross word boundaries.
    fn random_labels(rng: &SimRng) -> Labels {
        let long = "v".repeat(20);
        let pairs = (0..rng.next_u64() % 8).map(|_| {
            let name = ["a", "ab", "b", "c", "long_name_of_a_label", "z"];
            let value = ["1", "12", "2", &long, &long[1..], "x"];
            let of = |from: [&str; 6]| from[(rng.next_u64() % 6) as usize].to_owned();
            (of(name), of(value))
        });
        Labels::from_pairs(pairs.collect::<Vec<_>>())
    }

    fn apply<'l>(before: &'l Labels, steps: &[LabelStep<'l>]) -> Labels {
        let mut before = before.as_ref().pairs();
        let mut pairs: Vec<(&[u8], &[u8])> = Vec::new();
        for step in steps {
            match *step {
                LabelStep::Same => pairs.extend(before.next()),
                LabelStep::Skip => drop(before.next()),
                LabelStep::Value(value) => {
                    pairs.extend(before.next().map(|(name, _)| (name, value)))
                }
                LabelStep::Pair(name, value) => pairs.push((name, value)),
            }
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Labels::from_pairs(pairs.into_iter().map(|(n, v)| (text(n), text(v))))
    }

    #[test]
    fn steps_of_random_neighbours_give_the_set_back() {
        for seed in 0..500 {
            let rng = SimRng::new(seed);
            let mut known = PreviousLabels::default();
            let mut before = Labels::empty();
            for _ in 0..20 {
                let labels = random_labels(&rng);
                let mut walk = known.steps(labels.as_ref());
                let steps: Vec<LabelStep<'_>> = walk.by_ref().collect();
                walk.commit();
                assert_eq!(apply(&before, &steps), labels, "{steps:?}, seed {seed}");
                let pairs = before.as_ref().pairs();
                let shared = pairs.filter(|p| labels.as_ref().pairs().any(|q| q == *p));
                let same = steps.iter().filter(|s| **s == LabelStep::Same).count();
                assert_eq!(same, shared.count(), "{before:?}, {labels:?}, seed {seed}");
                before = labels;
            }
        }
    }
}
