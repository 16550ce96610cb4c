//! Divides a batch into one part for each partition, and decodes labels of a part on demand.
//!
//! ```text
//! routes of a batch -> series grouped by partition -> for each partition: part -> source of the
//! part
//! ```
//!
//! One part exists at a time, in memory that the next one reuses: samples are copied once, and keys
//! are not copied. Invariants: a part has its series in the order of the batch; labels that a
//! partition requests are decoded by the source of the whole batch, which records rejected series.

use super::routing::{BatchRoutes, PartitionRouter};
use crate::ids::PartitionId;
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::Error;
use firn_model::fingerprint::{Fingerprint, HashKeys};
use std::sync::Arc;

/// The series of a batch, grouped by partition.
#[derive(Debug)]
pub(super) struct PartitionGroups {
    /// Indexes of series in the batch, ascending within each partition.
    series: Vec<u32>,
    /// Ends of the partitions in `series`.
    ends: Vec<u32>,
}

impl PartitionGroups {
    /// Groups the series of a batch, given the partition of each of them, which is below `count`,
    /// or
    /// `None` for a rejected one, which is in no group.
    pub(super) fn new(partitions: &[Option<PartitionId>], count: usize) -> Self {
        // While series are assigned, the end of a partition is that of its predecessor plus the
        // series that it has already.
        let mut ends = vec![0u32; count + 1];
        for partition in partitions.iter().flatten() {
            ends[partition.0 as usize + 1] += 1;
        }
        for partition in 1..ends.len() {
            ends[partition] += ends[partition - 1];
        }
        let mut series = vec![0; ends[count] as usize];
        for (number, partition) in partitions.iter().enumerate() {
            if let Some(partition) = partition {
                let end = &mut ends[partition.0 as usize];
                series[*end as usize] = number as u32;
                *end += 1;
            }
        }
        ends.pop();
        Self { series, ends }
    }

    /// Returns the series of a partition as indexes in the batch, ascending.
    pub(super) fn series_of(&self, partition: PartitionId) -> &[u32] {
        let number = partition.0 as usize;
        let before = number.checked_sub(1);
        let start = before.map_or(0, |before| self.ends[before]);
        &self.series[start as usize..self.ends[number] as usize]
    }

    /// Returns the number of partitions, including those without series.
    pub(super) fn partition_count(&self) -> usize {
        self.ends.len()
    }
}

/// Memory for the division of a batch, reused for the next one.
#[derive(Debug, Default)]
pub(super) struct SplitScratch {
    pub(super) routes: BatchRoutes,
    part: Batch,
    series: Vec<u32>,
    prints: Vec<Fingerprint>,
}

impl SplitScratch {
    /// Makes the part of `partition` from the batch of `source`, whose routes are in this memory.
    /// Returns the source of the part.
    pub(super) fn make_part<'s>(
        &'s mut self,
        source: &'s mut dyn BatchSource,
        series: &[u32],
        router: &'s PartitionRouter,
    ) -> PartSource<'s> {
        let whole = source.batch();
        self.part.begin_part(whole);
        self.series.clear();
        self.series.extend_from_slice(series);
        self.prints.clear();
        for number in series {
            let number = *number as usize;
            self.part.push_series_of(whole, number);
            self.prints.push(self.routes.prints[number]);
        }
        PartSource {
            whole: source,
            part: &mut self.part,
            series: &mut self.series,
            prints: &mut self.prints,
            keys: &router.hash().keys,
            requested: Vec::new(),
        }
    }

    /// Releases the message that the part shares with its batch.
    pub(super) fn end_part(&mut self) {
        self.part.end_part();
    }
}

/// The part of one partition as a source.
pub(super) struct PartSource<'s> {
    whole: &'s mut dyn BatchSource,
    pub(super) part: &'s mut Batch,
    /// The series of the part as indexes in the whole batch, ascending.
    series: &'s mut Vec<u32>,
    /// The fingerprints of the canonical keys of the series, under `keys`.
    prints: &'s mut Vec<Fingerprint>,
    keys: &'s Arc<HashKeys>,
    requested: Vec<u32>,
}

impl BatchSource for PartSource<'_> {
    fn batch(&self) -> &Batch {
        self.part
    }

    fn read_labels(&mut self, series: &[u32]) -> Result<(), Error> {
        let numbers = series.iter().map(|index| self.series[*index as usize]);
        self.requested.clear();
        self.requested.extend(numbers);
        self.whole.read_labels(&self.requested)?;
        let whole = self.whole.batch();
        for (index, number) in series.iter().zip(&self.requested) {
            self.part
                .copy_labels(*index as usize, whole, *number as usize);
        }
        Ok(())
    }

    fn fingerprints(&self, keys: &HashKeys) -> Option<&[Fingerprint]> {
        (*keys == **self.keys).then_some(&**self.prints)
    }

    fn remove_series(&mut self, series: &[u32]) -> Option<Batch> {
        self.part.remove_series(series);
        remove_indexes(self.series, series);
        remove_indexes(self.prints, series);
        None
    }
}

/// Removes the items at `indexes`, which ascend.
fn remove_indexes<T>(items: &mut Vec<T>, indexes: &[u32]) {
    let (mut index, mut removed) = (0, indexes.iter().peekable());
    items.retain(|_| {
        let is_removed = removed.next_if(|removed| **removed == index).is_some();
        index += 1;
        !is_removed
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_grouped_in_their_order_without_rejected_ones() {
        let partitions = [Some(2), Some(0), None, Some(2), Some(0), Some(3)];
        let groups = PartitionGroups::new(&partitions.map(|p| p.map(PartitionId)), 5);
        let expected: [&[u32]; 5] = [&[1, 4], &[], &[0, 3], &[5], &[]];
        for (partition, series) in (0..).zip(expected) {
            assert_eq!(groups.series_of(PartitionId(partition)), series);
        }
        assert_eq!(groups.partition_count(), 5);
    }

    #[test]
    fn items_at_indexes_are_removed() {
        let mut items = vec!['a', 'b', 'c', 'd', 'e'];
        remove_indexes(&mut items, &[0, 2, 4]);
        assert_eq!(items, ['b', 'd']);
    }
}
