//! The partition of a series, a function of the fingerprint of its canonical key.
//!
//! ```text
//! fingerprint, lower half -> slot, one of 16,384 -> partition, a contiguous range of slots
//! ```
//!
//! The shards of a head use the upper half, so the series of a partition are spread over all of
//! them. Invariant: equal labels reach the same partition, regardless of the form in which a sender
//! encodes them. A received key is hashed only if it is plain: canonical, with labels that are
//! valid for certain. The labels of all other keys are decoded, and the key that the format creates
//! from them is hashed. No later step checks a key again.

use crate::ids::PartitionId;
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::Error;
use firn_model::fingerprint::{Fingerprint, SeriesHash};
use std::num::NonZeroU32;

/// Number of slots, and so the maximum number of partitions that have series.
pub const SLOTS: u32 = 1 << 14;

/// The number of a slot: series with the same slot are in the same partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionSlot(pub u32);

impl PartitionSlot {
    /// Returns the slot of a series, given the fingerprint of its canonical key.
    #[inline]
    pub fn from_fingerprint(print: Fingerprint) -> Self {
        Self(((u128::from(print.low) * u128::from(SLOTS)) >> 64) as u32)
    }
}

/// A rule of routing that a test breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(super) enum RoutingFlaw {
    /// Hashes received keys without a check that they are plain.
    TrustsKeys,
}

/// Assigns the series of batches to partitions. All stores and clients of a cluster use the same
/// hash and number of partitions.
#[derive(Clone, Debug)]
pub struct PartitionRouter {
    partitions: NonZeroU32,
    hash: SeriesHash,
    #[cfg(test)]
    pub(super) flaw: Option<RoutingFlaw>,
}

/// The partitions of the series of a batch. Reused for the next batch; each column has one entry
/// for each series.
#[derive(Debug, Default)]
pub(super) struct BatchRoutes {
    /// Fingerprints of the canonical keys.
    pub(super) prints: Vec<Fingerprint>,
    /// Partitions, or `None` for a series that was rejected because of its labels.
    pub(super) partitions: Vec<Option<PartitionId>>,
    /// Series whose labels must be decoded.
    unread: Vec<u32>,
    key: Vec<u8>,
}

impl PartitionRouter {
    /// Creates a router for `partitions`, whose stores hash series keys with `hash`.
    pub fn new(partitions: NonZeroU32, hash: SeriesHash) -> Self {
        Self {
            partitions,
            hash,
            #[cfg(test)]
            flaw: None,
        }
    }

    /// Returns the hash of all partitions for series keys.
    pub fn hash(&self) -> &SeriesHash {
        &self.hash
    }

    /// Returns the partition of a slot. Each partition has a contiguous range of slots, and the
    /// numbers of slots of two partitions differ by at most one.
    #[inline]
    pub fn partition_of_slot(&self, slot: PartitionSlot) -> PartitionId {
        let partitions = u64::from(self.partitions.get());
        PartitionId((u64::from(slot.0) * partitions / u64::from(SLOTS)) as u32)
    }

    /// Returns the partition of a series, given the fingerprint of its canonical key.
    #[inline]
    pub fn partition_of(&self, print: Fingerprint) -> PartitionId {
        self.partition_of_slot(PartitionSlot::from_fingerprint(print))
    }

    /// Finds the partitions of all series of a batch. Decodes labels whose keys are not plain or
    /// have another format; fails if they show that the batch is invalid as a whole. Costs a hash
    /// and a check of each key, or only the check if the source has the fingerprints.
    pub(super) fn route(
        &self,
        source: &mut dyn BatchSource,
        routes: &mut BatchRoutes,
    ) -> Result<(), Error> {
        routes.prints.clear();
        routes.unread.clear();
        self.hash_keys(source, routes);
        if !routes.unread.is_empty() {
            source.read_labels(&routes.unread)?;
        }
        let batch = source.batch();
        for series in &routes.unread {
            let series = *series as usize;
            let labels = batch.series(series).labels;
            routes.prints[series] = self.hash.hash_labels(labels, &mut routes.key);
        }
        routes.partitions.clear();
        let prints = routes.prints.iter().enumerate();
        routes.partitions.extend(
            prints.map(|(series, print)| {
                (!batch.is_refused(series)).then(|| self.partition_of(*print))
            }),
        );
        Ok(())
    }

    /// Computes the fingerprints of the canonical keys, and lists the series whose labels must be
    /// decoded first.
    fn hash_keys(&self, source: &dyn BatchSource, routes: &mut BatchRoutes) {
        let batch = source.batch();
        let known = source.fingerprints(&self.hash.keys);
        let known = known.filter(|known| known.len() == batch.series_count());
        let has_format = batch.has_key_format(self.hash.format);
        for series in 0..batch.series_count() {
            let known = known.map(|known| known[series]);
            let print = match batch.key(series) {
                Some(key) if has_format && self.is_plain(key) => {
                    known.unwrap_or_else(|| self.hash.keys.fingerprint(key))
                }
                Some(_) => {
                    routes.unread.push(series as u32);
                    Fingerprint::default()
                }
                None => self.hash_decoded(batch, series, known, &mut routes.key),
            };
            routes.prints.push(print);
        }
    }

    /// Returns the fingerprint of a series whose labels are decoded. `known` is that of its key,
    /// which may have been another one before the labels were decoded.
    fn hash_decoded(
        &self,
        batch: &Batch,
        series: usize,
        known: Option<Fingerprint>,
        key: &mut Vec<u8>,
    ) -> Fingerprint {
        known
            .filter(|_| !batch.key_may_differ(series))
            .unwrap_or_else(|| self.hash.hash_labels(batch.series(series).labels, key))
    }

    #[inline]
    fn is_plain(&self, key: &[u8]) -> bool {
        self.has(RoutingFlaw::TrustsKeys) || self.hash.format.is_plain(key)
    }

    /// Returns whether this router breaks a rule.
    #[cfg(test)]
    fn has(&self, flaw: RoutingFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Returns whether this router breaks a rule, which it does only in tests.
    #[cfg(not(test))]
    fn has(&self, _: RoutingFlaw) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;
    use firn_model::fingerprint::HashKeys;
    use firn_model::labels::Labels;
    use firn_model::series_key::CanonicalKeys;
    use std::sync::Arc;

    fn router(partitions: u32) -> PartitionRouter {
        let hash = SeriesHash {
            keys: Arc::new(HashKeys::new(&SimRng::new(1))),
            format: &CanonicalKeys,
        };
        PartitionRouter::new(NonZeroU32::new(partitions).expect("not zero"), hash)
    }

    #[test]
    fn slots_are_divided_evenly_into_contiguous_ranges() {
        for partitions in [1, 2, 3, 5, 7, 12, 64, 1_000, SLOTS] {
            let router = router(partitions);
            let mut counts = vec![0; partitions as usize];
            let mut last = PartitionId(0);
            for slot in 0..SLOTS {
                let partition = router.partition_of_slot(PartitionSlot(slot));
                assert!(partition == last || partition.0 == last.0 + 1, "{slot}");
                counts[partition.0 as usize] += 1;
                last = partition;
            }
            let (least, most) = (counts.iter().min(), counts.iter().max());
            let spread = most.zip(least).map(|(most, least)| most - least);
            assert!(spread.is_some_and(|spread| spread <= 1), "{partitions}");
        }
    }

    #[test]
    fn series_are_divided_evenly_among_partitions() {
        let router = router(7);
        let mut counts = [0usize; 7];
        let mut key = Vec::new();
        for number in 0..70_000 {
            let labels = Labels::from_pairs([("__name__", "up"), ("id", &number.to_string())]);
            let print = router.hash().hash_labels(labels.as_ref(), &mut key);
            counts[router.partition_of(print).0 as usize] += 1;
        }
        // Four standard deviations of a binomial distribution.
        let is_even = |count: &usize| count.abs_diff(10_000) < 4 * 93;
        assert!(counts.iter().all(is_even), "{counts:?}");
    }

    #[test]
    fn slot_of_a_fingerprint_is_its_lower_half_as_a_fraction() {
        for (low, slot) in [
            (0, 0),
            ((1 << 50) - 1, 0),
            (1 << 50, 1),
            (u64::MAX, SLOTS - 1),
        ] {
            let print = Fingerprint { high: 7, low };
            assert_eq!(PartitionSlot::from_fingerprint(print), PartitionSlot(slot));
        }
    }
}
