//! A set of byte strings that was written as a list: the values that `=~"a|b|c"` accepts.
//!
//! ```text
//! bytes   common prefix | rest of the first value | common prefix | rest of the second value | ...
//! keys    the first eight bytes of each rest as a number; a binary search reads only these
//! ```
//!
//! Dashboards contain lists of thousands of values with a long common prefix, on which comparisons
//! of whole strings would spend most of their time. All values are in one buffer. Invariant: values
//! are sorted and unique. Keys are sorted, and equal only for values whose rests start with the
//! same bytes; those are then compared as strings.

use std::cmp::Ordering;

/// A sorted set of byte strings with fast membership tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueSet {
    bytes: Vec<u8>,
    /// The end offset of each value in `bytes`; a value starts where the previous one ends.
    ends: Vec<u32>,
    keys: Vec<u64>,
    /// The length of the common prefix of all values.
    shared: usize,
}

/// A list of values in any order, which is converted to a set when it is complete.
#[derive(Debug, Default)]
pub(crate) struct ValueList {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl ValueList {
    /// Creates an empty list with capacity for `values` values of `bytes` bytes in total.
    pub(crate) fn with_capacity(values: usize, bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(values),
        }
    }

    /// Appends bytes to the current value, which may be built in several steps.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Ends the current value, which may be empty, and starts the next one.
    pub(crate) fn end_value(&mut self) {
        self.ends.push(self.bytes.len() as u32);
    }

    fn get(&self, at: usize) -> &[u8] {
        slice(&self.bytes, &self.ends, at)
    }

    /// Converts the list to a set: sorts the values and removes duplicates.
    pub(crate) fn into_set(self) -> ValueSet {
        let shared = self.common_prefix_len();
        let mut order: Vec<(u64, u32)> = (0..self.ends.len())
            .map(|at| (key(&self.get(at)[shared..]), at as u32))
            .collect();
        let compare = |(a_key, a): &(u64, u32), (b_key, b): &(u64, u32)| {
            let by_bytes = || self.get(*a as usize).cmp(self.get(*b as usize));
            a_key.cmp(b_key).then_with(by_bytes)
        };
        let is_in_order = order.is_sorted_by(|a, b| compare(a, b) == Ordering::Less);
        if is_in_order {
            return ValueSet {
                keys: order.into_iter().map(|(key, _)| key).collect(),
                bytes: self.bytes,
                ends: self.ends,
                shared,
            };
        }
        order.sort_unstable_by(compare);
        order.dedup_by(|next, last| compare(next, last) == Ordering::Equal);
        let mut sorted = Self::with_capacity(order.len(), self.bytes.len());
        for (_, at) in &order {
            sorted.extend(self.get(*at as usize));
            sorted.end_value();
        }
        ValueSet {
            keys: order.into_iter().map(|(key, _)| key).collect(),
            bytes: sorted.bytes,
            ends: sorted.ends,
            shared,
        }
    }

    /// Returns the length of the common prefix of all values.
    fn common_prefix_len(&self) -> usize {
        let Some(first) = (!self.ends.is_empty()).then(|| self.get(0)) else {
            return 0;
        };
        (1..self.ends.len()).fold(first.len(), |shared, at| {
            let pairs = first[..shared].iter().zip(self.get(at));
            pairs.take_while(|(a, b)| a == b).count()
        })
    }
}

impl FromIterator<Vec<u8>> for ValueSet {
    fn from_iter<I: IntoIterator<Item = Vec<u8>>>(values: I) -> Self {
        let mut list = ValueList::default();
        for value in values {
            list.extend(&value);
            list.end_value();
        }
        list.into_set()
    }
}

impl ValueSet {
    /// Returns the number of values in the set.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether the set contains no values.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the values in ascending order of bytes.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Returns whether the set contains `value`. O(log n), mostly by comparing integers.
    pub fn contains(&self, value: &[u8]) -> bool {
        let Some((begin, rest)) = value.split_at_checked(self.shared) else {
            return false;
        };
        if self.is_empty() || *begin != self.get(0)[..self.shared] {
            return false;
        }
        let key = key(rest);
        let mut at = self.keys.partition_point(|known| *known < key);
        let end = at + self.keys[at..].partition_point(|known| *known == key);
        let mut left = end - at;
        while left > 0 {
            let middle = at + left / 2;
            match self.get(middle).cmp(value) {
                Ordering::Equal => return true,
                Ordering::Less => {
                    left -= middle + 1 - at;
                    at = middle + 1;
                }
                Ordering::Greater => left = middle - at,
            }
        }
        false
    }

    /// Returns the common prefix of all values, empty if the set is empty.
    pub fn common_prefix(&self) -> &[u8] {
        if self.is_empty() {
            &[]
        } else {
            &self.get(0)[..self.shared]
        }
    }

    /// Returns whether the empty value is the only element.
    pub fn is_only_empty(&self) -> bool {
        self.len() == 1 && self.bytes.is_empty()
    }

    fn get(&self, at: usize) -> &[u8] {
        slice(&self.bytes, &self.ends, at)
    }
}

fn slice<'v>(bytes: &'v [u8], ends: &[u32], at: usize) -> &'v [u8] {
    let start = at.checked_sub(1).map_or(0, |before| ends[before]);
    &bytes[start as usize..ends[at] as usize]
}

/// Returns the first eight bytes as a big-endian number. Its order is that of the bytes, except for
/// trailing zeros.
fn key(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(first)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::random::SplitMixRng;
    use std::collections::BTreeSet;

    /// Returns a random value that shares prefixes with others, ends in zeros, or is empty.
    fn random_value(rng: &SplitMixRng) -> Vec<u8> {
        let parts = [
            &b"a"[..],
            b"b",
            b"\0",
            b"service-0123",
            b"\xff",
            b"ab-ab-ab-",
        ];
        let count = rng.next_below(4) as usize;
        let part = |_| parts[rng.next_below(parts.len() as u64) as usize];
        (0..count).flat_map(part).copied().collect()
    }

    #[test]
    fn value_set_of_random_values_holds_them_and_no_others() {
        for seed in 0..2_000 {
            let rng = SplitMixRng::new(seed);
            let begin = if rng.one_in(2) { &b"pod-"[..] } else { b"" };
            let value = || [begin, &random_value(&rng)].concat();
            let values: Vec<Vec<u8>> = (0..rng.next_below(60)).map(|_| value()).collect();
            let set: ValueSet = values.iter().cloned().collect();
            let expected: BTreeSet<&[u8]> = values.iter().map(Vec::as_slice).collect();
            assert!(set.iter().eq(expected.iter().copied()), "seed {seed}");
            assert_eq!(set.len(), expected.len(), "seed {seed}");
            let others = (0..60).flat_map(|_| [value(), random_value(&rng)]);
            for other in others.chain(values.iter().cloned()) {
                let is_in = expected.contains(other.as_slice());
                assert_eq!(set.contains(&other), is_in, "{other:?}, seed {seed}");
            }
            let prefix = set.common_prefix();
            assert!(set.iter().all(|v| v.starts_with(prefix)), "seed {seed}");
            let again: ValueSet = set.iter().map(<[u8]>::to_vec).collect();
            assert_eq!(again, set, "seed {seed}");
        }
    }
}
