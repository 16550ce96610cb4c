//! The free place numbers of a shard. The lowest number is used first, so that series gather at the
//! low end and slabs at the high end become free.

use super::slabs::SLAB_ITEMS;
use crate::ids::ShardLocalId;

const WORDS: usize = SLAB_ITEMS / 64;

/// The free place numbers within the range of one slab.
#[derive(Debug, Default)]
struct SlabVacancies {
    count: u32,
    /// One bit per number, set if it is free.
    words: [u64; WORDS],
}

/// The set of free numbers, with a bitmap per slab.
#[derive(Debug, Default)]
pub(crate) struct ShardVacancies {
    slabs: Vec<SlabVacancies>,
    /// All slabs before this one have no free number.
    first: usize,
    count: usize,
}

impl ShardVacancies {
    /// Adds a number, which must not be in the set.
    pub(crate) fn push(&mut self, local: ShardLocalId) {
        let (slab, at) = (local.index() / SLAB_ITEMS, local.index() % SLAB_ITEMS);
        if self.slabs.len() <= slab {
            self.slabs.resize_with(slab + 1, SlabVacancies::default);
        }
        let of_slab = &mut self.slabs[slab];
        of_slab.words[at / 64] |= 1 << (at % 64);
        of_slab.count += 1;
        self.count += 1;
        self.first = self.first.min(slab);
    }

    /// Removes and returns the lowest free number, if there is one.
    pub(crate) fn pop(&mut self) -> Option<ShardLocalId> {
        if self.count == 0 {
            return None;
        }
        while self.slabs.get(self.first)?.count == 0 {
            self.first += 1;
        }
        let of_slab = &mut self.slabs[self.first];
        let word = of_slab.words.iter().position(|word| *word != 0)?;
        let bit = of_slab.words[word].trailing_zeros();
        of_slab.words[word] &= of_slab.words[word] - 1;
        of_slab.count -= 1;
        self.count -= 1;
        let at = self.first * SLAB_ITEMS + word * 64 + bit as usize;
        Some(ShardLocalId(at as u32))
    }

    /// Returns the number of free places in a slab.
    pub(crate) fn count_in(&self, slab: usize) -> usize {
        self.slabs
            .get(slab)
            .map_or(0, |of_slab| of_slab.count as usize)
    }

    /// Removes the numbers of the slabs from `end` on.
    pub(crate) fn truncate(&mut self, end: usize) {
        let gone = self.slabs.drain(end.min(self.slabs.len())..);
        self.count -= gone.map(|of_slab| of_slab.count as usize).sum::<usize>();
        if self.slabs.len() < self.slabs.capacity() / 2 {
            self.slabs.shrink_to_fit();
        }
        self.first = self.first.min(end);
    }

    /// Returns the memory of the bitmaps in bytes, without the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slabs.capacity() * size_of::<SlabVacancies>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;
    use std::collections::BTreeSet;

    #[test]
    fn vacancies_give_the_lowest_number_of_those_that_are_left() {
        for seed in 0..50 {
            let rng = SimRng::new(seed);
            let mut model = BTreeSet::new();
            let mut vacancies = ShardVacancies::default();
            for _ in 0..400 {
                let local = rng.next_below(5 * SLAB_ITEMS as u64) as u32;
                if model.insert(local) {
                    vacancies.push(ShardLocalId(local));
                }
                if rng.one_in(3) {
                    let lowest = vacancies.pop().map(|local| local.0);
                    assert_eq!(lowest, model.pop_first(), "seed {seed}");
                }
                if rng.one_in(60) {
                    let end = rng.next_below(6) as usize;
                    vacancies.truncate(end);
                    model.retain(|local| (*local as usize) < end * SLAB_ITEMS);
                }
                let of_slab = |slab: usize| {
                    let numbers = (slab * SLAB_ITEMS) as u32..((slab + 1) * SLAB_ITEMS) as u32;
                    model.range(numbers).count()
                };
                assert_eq!(vacancies.count, model.len(), "seed {seed}");
                for slab in 0..6 {
                    assert_eq!(vacancies.count_in(slab), of_slab(slab), "seed {seed}");
                }
            }
        }
    }
}
