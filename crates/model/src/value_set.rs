//! A set of byte strings that was written down as a list: what `=~"a|b|c"` accepts.
//!
//! ```text
//! bytes   shared part of all | rest of the first | shared part | rest of the second | ...
//! keys    the first eight bytes of each rest, as a number: bisection reads nothing else
//! ```
//!
//! Dashboards write thousands of values, which begin alike, so that whole strings would be compared
//! in their equal parts. Values stand in one piece of memory. Invariant: sorted and unique; so are
//! the keys but for those of rests that begin alike, which are told apart by the bytes.

use std::cmp::Ordering;

/// The set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueSet {
    bytes: Vec<u8>,
    /// Where each value ends.
    ends: Vec<u32>,
    keys: Vec<u64>,
    /// Bytes that all values begin with.
    shared: usize,
}

/// A list under way, in any order.
#[derive(Debug, Default)]
pub(crate) struct ValueList {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl ValueList {
    /// An empty list with room for `values` values of `bytes` bytes together.
    pub(crate) fn with_capacity(values: usize, bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(values),
        }
    }

    /// Adds bytes to the value under way.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Ends the value under way, which may be empty.
    pub(crate) fn end(&mut self) {
        self.ends.push(self.bytes.len() as u32);
    }

    fn get(&self, at: usize) -> &[u8] {
        slice(&self.bytes, &self.ends, at)
    }

    /// The values in order, each once.
    pub(crate) fn into_set(self) -> ValueSet {
        let shared = self.shared_bytes();
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
            sorted.end();
        }
        ValueSet {
            keys: order.into_iter().map(|(key, _)| key).collect(),
            bytes: sorted.bytes,
            ends: sorted.ends,
            shared,
        }
    }

    /// How many bytes all values begin with.
    fn shared_bytes(&self) -> usize {
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
            list.end();
        }
        list.into_set()
    }
}

impl ValueSet {
    /// How many values.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The values in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Whether `value` is one of them.
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

    /// What all values begin with.
    pub fn shared_prefix(&self) -> &[u8] {
        match self.is_empty() {
            true => &[],
            false => &self.get(0)[..self.shared],
        }
    }

    /// Whether the empty value is the only one.
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

/// The first eight bytes as a number, which is ordered as they are but for zeros behind the end.
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
    use crate::env::sim::SimRng;
    use std::collections::BTreeSet;

    /// Values that share beginnings, end in zeros, or are empty.
    fn random_value(rng: &SimRng) -> Vec<u8> {
        let parts = [
            &b"a"[..],
            b"b",
            b"\0",
            b"service-0123",
            b"\xff",
            b"ab-ab-ab-",
        ];
        let count = rng.below(4) as usize;
        let part = |_| parts[rng.below(parts.len() as u64) as usize];
        (0..count).flat_map(part).copied().collect()
    }

    #[test]
    fn value_set_of_random_values_holds_them_and_no_others() {
        for seed in 0..2_000 {
            let rng = SimRng::new(seed);
            let begin = if rng.one_in(2) { &b"pod-"[..] } else { b"" };
            let value = || [begin, &random_value(&rng)].concat();
            let values: Vec<Vec<u8>> = (0..rng.below(60)).map(|_| value()).collect();
            let set: ValueSet = values.iter().cloned().collect();
            let expected: BTreeSet<&[u8]> = values.iter().map(Vec::as_slice).collect();
            assert!(set.iter().eq(expected.iter().copied()), "seed {seed}");
            assert_eq!(set.len(), expected.len(), "seed {seed}");
            let others = (0..60).flat_map(|_| [value(), random_value(&rng)]);
            for other in others.chain(values.iter().cloned()) {
                let is_in = expected.contains(other.as_slice());
                assert_eq!(set.contains(&other), is_in, "{other:?}, seed {seed}");
            }
            let prefix = set.shared_prefix();
            assert!(set.iter().all(|v| v.starts_with(prefix)), "seed {seed}");
            let again: ValueSet = set.iter().map(<[u8]>::to_vec).collect();
            assert_eq!(again, set, "seed {seed}");
        }
    }
}
