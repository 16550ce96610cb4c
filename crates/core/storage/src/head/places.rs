//! The places of a shard: numbered entries, each with a fingerprint and a series.
//!
//! A place is free, reserved for a series that is being created, or occupied. Free numbers are
//! reused, lowest first, so that after a peak the places at the high end become free and
//! [`ShardPlaces::shrink`] can release their memory. Invariant: the number of a place does not
//! change until the place is freed.

use super::series::MemSeries;
use super::slabs::{SLAB_ITEMS, SlabVec};
use super::vacancies::ShardVacancies;
use crate::ids::ShardLocalId;
use firn_model::fingerprint::Fingerprint;

/// The places of one shard, stored as parallel columns of fingerprints and series.
#[derive(Debug, Default)]
pub(crate) struct ShardPlaces {
    prints: SlabVec<Fingerprint>,
    series: SlabVec<Option<MemSeries>>,
    free: ShardVacancies,
}

impl ShardPlaces {
    /// Returns whether the place at `local` belongs to the series with this fingerprint.
    #[inline]
    pub(crate) fn is_series_at(&self, local: ShardLocalId, print: Fingerprint) -> bool {
        self.prints.get(local.index()) == Some(&print)
    }

    /// Returns a place, which may be free or reserved; `None` if the number does not exist.
    #[inline]
    pub(crate) fn get(&self, local: ShardLocalId) -> Option<&Option<MemSeries>> {
        self.series.get(local.index())
    }

    /// Returns a place that is not free for the insertion or removal of its series.
    #[inline]
    pub(crate) fn get_mut(&mut self, local: ShardLocalId) -> Option<&mut Option<MemSeries>> {
        self.series.get_mut(local.index())
    }

    /// Reserves the free place with the lowest number, or a new one at the end.
    pub(crate) fn reserve(&mut self, print: Fingerprint) -> ShardLocalId {
        let Some(local) = self.free.pop() else {
            self.prints.push(print);
            self.series.push(None);
            return ShardLocalId(self.series.len() as u32 - 1);
        };
        let slab = local.index() / SLAB_ITEMS;
        self.prints.restore(slab, Fingerprint::default);
        self.series.restore(slab, || None);
        if let Some(place) = self.prints.get_mut(local.index()) {
            *place = print;
        }
        local
    }

    /// Frees a reserved place and returns its fingerprint.
    pub(crate) fn free(&mut self, local: ShardLocalId) -> Option<Fingerprint> {
        let print = self.prints.get_mut(local.index())?;
        self.free.push(local);
        Some(std::mem::take(print))
    }

    /// Returns all series with their numbers, in order of the numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ShardLocalId, &MemSeries)> {
        let numbered = self.series.iter();
        numbered.filter_map(|(local, s)| Some((ShardLocalId(local as u32), s.as_ref()?)))
    }

    /// Returns one past the highest number.
    pub(crate) fn end(&self) -> u32 {
        self.series.len() as u32
    }

    /// Releases the memory of slabs that have no occupied or reserved place, except for one slab,
    /// which remains for the next series.
    pub(crate) fn shrink(&mut self) {
        let slabs = self.series.slab_count();
        let mut free = (0..slabs).filter(|slab| self.is_free(*slab));
        if free.next().is_none() {
            return;
        }
        let free: Vec<usize> = free.collect();
        let mut end = slabs;
        for slab in free.into_iter().rev() {
            if slab + 1 == end {
                end = slab;
            } else if self.series.count_items(slab) > 0 {
                self.prints.release(slab);
                self.series.release(slab);
            }
        }
        self.prints.truncate(end);
        self.series.truncate(end);
        self.free.truncate(end);
    }

    /// Returns whether all places of a slab are free, which includes released slabs.
    fn is_free(&self, slab: usize) -> bool {
        let items = self.series.count_items(slab);
        items == 0 || items == self.free.count_in(slab)
    }

    /// Returns the memory of the columns in bytes, without the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.prints.memory_bytes() + self.series.memory_bytes() + self.free.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SeriesRef;
    use firn_model::env::sim::SimRng;
    use std::collections::BTreeMap;

    fn print(number: u32) -> Fingerprint {
        Fingerprint {
            high: u64::from(number) + 1,
            low: 0,
        }
    }

    /// Returns the occupied places with the slots of their series.
    fn taken(places: &ShardPlaces) -> BTreeMap<u32, u32> {
        let series = places.iter();
        series
            .map(|(local, series)| (local.0, series.slot.0))
            .collect()
    }

    #[test]
    fn places_after_peaks_and_shrinking_are_those_that_were_taken() {
        for seed in 0..20 {
            let rng = SimRng::new(seed);
            let mut places = ShardPlaces::default();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            let mut number = 0;
            for _ in 0..12 {
                for _ in 0..rng.next_below(5_000) {
                    let local = places.reserve(print(number));
                    *places.get_mut(local).unwrap() = Some(MemSeries::new(SeriesRef(number)));
                    assert_eq!(model.insert(local.0, number), None, "seed {seed}");
                    number += 1;
                }
                let one_in = 1 + rng.next_below(4);
                let going: Vec<u32> = model.keys().copied().collect();
                for local in going {
                    if !rng.one_in(one_in) {
                        continue;
                    }
                    places.get_mut(ShardLocalId(local)).unwrap().take();
                    let whose = places.free(ShardLocalId(local));
                    assert_eq!(whose, model.remove(&local).map(print), "seed {seed}");
                }
                if rng.one_in(2) {
                    places.shrink();
                }
                assert_eq!(taken(&places), model, "seed {seed}");
                for (local, number) in &model {
                    assert!(
                        places.is_series_at(ShardLocalId(*local), print(*number)),
                        "seed {seed}"
                    );
                }
            }
        }
    }

    #[test]
    fn places_of_few_series_behind_a_peak_take_the_memory_of_few() {
        let mut places = ShardPlaces::default();
        let mut bytes = Vec::new();
        for peak in [100, 40_000] {
            for number in 0..peak {
                places.reserve(print(number));
            }
            for local in 100..peak {
                places.free(ShardLocalId(local));
            }
            places.shrink();
            bytes.push(places.memory_bytes());
            for local in 0..100 {
                places.free(ShardLocalId(local));
            }
        }
        let slab = SLAB_ITEMS * (size_of::<Option<MemSeries>>() + size_of::<Fingerprint>());
        assert!(bytes[1] <= bytes[0] + 2 * slab, "{bytes:?}");
    }
}
