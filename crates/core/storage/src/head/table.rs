//! Hash table from fingerprints to the series of a shard, with open addressing and 32 bits of the
//! fingerprint in each cell.
//!
//! A cell is `tag << 32 | local + 1`; zero is a free cell. If the tag matches, the caller compares
//! the whole fingerprint. The tag also determines where probing begins, so the table can grow
//! without access to the series. In a large table the remaining bits of the tag distinguish
//! neighbouring cells: about one probe in ten thousand compares a fingerprint that differs.

use crate::ids::ShardLocalId;
use firn_model::fingerprint::Fingerprint;

const CELLS_MIN: usize = 16;

/// Cell of a removed series; probing continues after it.
const REMOVED: u64 = u32::MAX as u64;

/// Index of the free cell at which a missing fingerprint can be inserted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FingerprintVacancy(usize);

/// The table, which stores places and not the fingerprints themselves.
#[derive(Debug)]
pub(crate) struct FingerprintTable {
    cells: Vec<u64>,
    /// Number of cells that are not free, removed ones included.
    used: usize,
    /// Number of series in the table.
    count: usize,
}

impl Default for FingerprintTable {
    fn default() -> Self {
        Self {
            cells: vec![0; CELLS_MIN],
            used: 0,
            count: 0,
        }
    }
}

impl FingerprintTable {
    /// Returns the place with the tag of `print` for which `is_it` returns true.
    #[inline]
    pub(crate) fn find(
        &self,
        print: Fingerprint,
        is_it: impl Fn(ShardLocalId) -> bool,
    ) -> Option<ShardLocalId> {
        self.probe(print, is_it).ok()
    }

    /// Returns the place with the tag of `print` for which `is_it` returns true, or the cell at
    /// which it can be inserted.
    #[inline]
    pub(crate) fn probe(
        &self,
        print: Fingerprint,
        is_it: impl Fn(ShardLocalId) -> bool,
    ) -> Result<ShardLocalId, FingerprintVacancy> {
        let mask = self.cells.len() - 1;
        let mut at = home(print.low, mask);
        loop {
            let cell = self.cells[at];
            if cell == 0 {
                return Err(FingerprintVacancy(at));
            }
            if cell >> 32 == print.low >> 32 && cell != REMOVED {
                let local = ShardLocalId(cell as u32 - 1);
                if is_it(local) {
                    return Ok(local);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Loads the first cell that [`FingerprintTable::probe`] reads for each of `prints`, so that
    /// the cache misses overlap instead of following one another.
    #[inline]
    pub(crate) fn prefetch_cells(&self, prints: impl Iterator<Item = Fingerprint>) {
        let mask = self.cells.len() - 1;
        let cells = prints.map(|print| self.cells[home(print.low, mask)]);
        std::hint::black_box(cells.fold(0, |all, cell| all ^ cell));
    }

    /// Inserts `local` under `print` at the vacancy that [`FingerprintTable::probe`] returned. No
    /// other insertion may happen in between.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        print: Fingerprint,
        local: ShardLocalId,
        vacancy: FingerprintVacancy,
    ) {
        self.used += 1;
        self.count += 1;
        // At most three quarters full: a miss reads about eight cells, one cache line.
        if self.used * 4 > self.cells.len() * 3 {
            self.rebuild(cells_for(self.count));
            self.used += 1;
            return self.place(cell(print, local));
        }
        self.cells[vacancy.0] = cell(print, local);
    }

    fn place(&mut self, cell: u64) {
        let mask = self.cells.len() - 1;
        let mut at = home(cell, mask);
        while self.cells[at] != 0 {
            at = (at + 1) & mask;
        }
        self.cells[at] = cell;
    }

    /// Shrinks the table if a new table for its series would have at most a quarter of its cells.
    pub(crate) fn shrink(&mut self) {
        let cells = cells_for(self.count);
        if cells <= self.cells.len() / 4 {
            self.rebuild(cells);
        }
    }

    /// Moves all series to a table with `cells` cells, without the cells of removed ones.
    fn rebuild(&mut self, cells: usize) {
        let is_alive = |c: &u64| *c != 0 && *c != REMOVED;
        let old = std::mem::replace(&mut self.cells, written_zeros(cells));
        self.used = 0;
        for alive in old.into_iter().filter(is_alive) {
            self.used += 1;
            self.place(alive);
        }
    }

    /// Removes `local`, which was inserted under `print`.
    pub(crate) fn remove(&mut self, print: Fingerprint, local: ShardLocalId) {
        let mask = self.cells.len() - 1;
        let mut at = home(print.low, mask);
        while self.cells[at] != 0 {
            if self.cells[at] == cell(print, local) {
                self.cells[at] = REMOVED;
                self.count -= 1;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns the memory of the cells in bytes, without the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.cells.capacity() * 8
    }
}

/// Returns the number of cells for `count` series, at least half of which are free.
fn cells_for(count: usize) -> usize {
    ((count + 1) * 2).next_power_of_two().max(CELLS_MIN)
}

/// Returns free cells in memory that has been written to. Insertion reads a cell first, and a page
/// that is read before it is written costs two page faults, of which the second one interrupts all
/// threads.
fn written_zeros(cells: usize) -> Vec<u64> {
    const PAGE_CELLS: usize = 4_096 / size_of::<u64>();
    let mut zeros = vec![0; cells];
    for page in zeros.chunks_mut(PAGE_CELLS) {
        page[0] = std::hint::black_box(0);
    }
    zeros
}

/// Returns the cell at which probing begins for a hash, or for a cell that contains its tag.
fn home(tagged: u64, mask: usize) -> usize {
    (tagged >> 32) as usize & mask
}

fn cell(print: Fingerprint, local: ShardLocalId) -> u64 {
    print.low >> 32 << 32 | u64::from(local.0 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns fingerprints with few distinct tags, so that probes collide.
    fn print(n: u32) -> Fingerprint {
        Fingerprint {
            high: u64::from(n),
            low: u64::from(n % 11) << 32,
        }
    }

    #[test]
    fn table_after_growth_and_removal_finds_what_is_left() {
        let mut table = FingerprintTable::default();
        let mut left = Vec::new();
        for n in 0..500 {
            let vacancy = table.probe(print(n), |_| false).unwrap_err();
            table.insert(print(n), ShardLocalId(n), vacancy);
            left.push(n);
            if n % 3 == 2 {
                let gone = left.remove(n as usize % left.len());
                table.remove(print(gone), ShardLocalId(gone));
            }
        }
        for n in 0..500 {
            let found = table.find(print(n), |found| found == ShardLocalId(n));
            assert_eq!(found, left.contains(&n).then_some(ShardLocalId(n)), "{n}");
        }
    }
}
