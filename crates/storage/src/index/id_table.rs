//! An open-addressing table from hashes to ids that one writer fills and any number of readers
//! probe without a lock.
//!
//! A cell is `tag << 32 | id + 1`, the tag being the hash's high half; zero is free. The tag also
//! says where probing begins, so growth asks for no hash again: it copies the cells into a larger
//! table and swaps the pointer; readers finish on the table that they hold. A table of which nearly
//! all was removed gives its memory back in the same way.
//! Invariant: an id that was inserted before a reader began is found, unless it was removed.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use arc_swap::ArcSwap;
use std::sync::Arc;

/// A removed id: probing goes on behind it.
const REMOVED: u64 = u32::MAX as u64;

const CELLS_MIN: usize = 8;

/// Cells for each id beyond which a table is copied into a smaller one. A copy has two to four of
/// them, so that what comes and goes does not copy it each time.
const CELLS_EACH_MAX: usize = 16;

/// The table. Removing and inserting is for one writer at a time.
#[derive(Debug)]
pub(crate) struct IdTable {
    cells: ArcSwap<Box<[AtomicU64]>>,
    /// Cells that are not free, removed ones included: what growth goes by.
    used: AtomicU32,
    count: AtomicU32,
}

impl Default for IdTable {
    fn default() -> Self {
        Self {
            cells: ArcSwap::from_pointee(free_cells(CELLS_MIN)),
            used: AtomicU32::new(0),
            count: AtomicU32::new(0),
        }
    }
}

fn free_cells(cells: usize) -> Box<[AtomicU64]> {
    (0..cells).map(|_| AtomicU64::new(0)).collect()
}

/// Where probing begins for a hash or a cell with its tag.
fn home(tagged: u64, cells: usize) -> usize {
    (tagged >> 32) as usize & (cells - 1)
}

impl IdTable {
    /// The id under `hash` for which `is_it` says so.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let cells = self.cells.load();
        let mut at = home(hash, cells.len());
        loop {
            // Acquire: a reader that sees the id sees what it stands for.
            let cell = cells[at].load(Ordering::Acquire);
            if cell == 0 {
                return None;
            }
            if cell >> 32 == hash >> 32 && cell != REMOVED {
                let id = cell as u32 - 1;
                if is_it(id) {
                    return Some(id);
                }
            }
            at = (at + 1) & (cells.len() - 1);
        }
    }

    /// Inserts `id` under `hash`; it must not be there.
    pub(crate) fn insert(&self, hash: u64, id: u32) {
        let used = self.used.load(Ordering::Relaxed) as usize + 1;
        // At most two thirds full: a probe sees three cells on average.
        if used * 3 > self.cells.load().len() * 2 {
            self.rebuild();
        }
        place(&self.cells.load(), cell(hash, id));
        self.used.fetch_add(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn rebuild(&self) {
        let old = self.cells.load();
        let count = self.count();
        let cells = free_cells(((count + 1) * 2).next_power_of_two().max(CELLS_MIN));
        for cell in old.iter().map(|c| c.load(Ordering::Relaxed)) {
            if cell != 0 && cell != REMOVED {
                place(&cells, cell);
            }
        }
        self.used.store(count as u32, Ordering::Relaxed);
        self.cells.store(Arc::new(cells));
    }

    /// Forgets `id`.
    pub(crate) fn remove(&self, hash: u64, id: u32) {
        let cells = self.cells.load();
        let wanted = cell(hash, id);
        let mut at = home(hash, cells.len());
        loop {
            match cells[at].load(Ordering::Relaxed) {
                0 => return,
                found if found == wanted => {
                    cells[at].store(REMOVED, Ordering::Release);
                    self.count.fetch_sub(1, Ordering::Relaxed);
                    break;
                }
                _ => at = (at + 1) & (cells.len() - 1),
            }
        }
        if cells.len() > CELLS_MIN.max(self.count() * CELLS_EACH_MAX) {
            self.rebuild();
        }
    }

    /// How many ids there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    /// All ids, in no order.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let cells = self.cells.load();
        cells
            .iter()
            .map(|c| c.load(Ordering::Acquire))
            .filter(|c| *c != 0 && *c != REMOVED)
            .map(|c| c as u32 - 1)
            .collect()
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.cells.load().len() * 8
    }
}

fn cell(hash: u64, id: u32) -> u64 {
    hash >> 32 << 32 | u64::from(id + 1)
}

fn place(cells: &[AtomicU64], cell: u64) {
    let mut at = home(cell, cells.len());
    while cells[at].load(Ordering::Relaxed) != 0 {
        at = (at + 1) & (cells.len() - 1);
    }
    cells[at].store(cell, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few distinct hashes, so that probes run into each other.
    fn hash(id: u32) -> u64 {
        u64::from(id % 37) << 32
    }

    #[test]
    fn id_table_after_growth_and_removal_finds_what_is_left() {
        let table = IdTable::default();
        for id in 0..1_000 {
            table.insert(hash(id), id);
            if id % 3 == 0 {
                table.remove(hash(id / 2), id / 2);
            }
        }
        let removed = |id: u32| (0..1_000).any(|by| by % 3 == 0 && by / 2 == id);
        let mut left: Vec<u32> = (0..1_000).filter(|id| !removed(*id)).collect();
        for id in 0..1_000 {
            let found = table.find(hash(id), |found| found == id);
            assert_eq!(found, (!removed(id)).then_some(id), "{id}");
        }
        let mut ids = table.ids();
        ids.sort_unstable();
        left.sort_unstable();
        assert_eq!(ids, left);
    }

    #[test]
    fn id_table_gives_back_what_a_peak_took_and_finds_what_is_left() {
        let table = IdTable::default();
        let wide = |id: u32| u64::from(id) << 32;
        (0..100_000).for_each(|id| table.insert(wide(id), id));
        let peak = table.memory_bytes();
        for id in 100..100_000 {
            table.remove(wide(id), id);
            assert_eq!(
                table.find(wide(id % 100), |found| found == id % 100),
                Some(id % 100)
            );
        }
        assert!(
            table.memory_bytes() <= 16 * 8 * 128,
            "{}",
            table.memory_bytes()
        );
        assert!(peak > 100 * table.memory_bytes());
        (0..100).for_each(|id| table.remove(wide(id), id));
        assert_eq!(table.ids(), [0; 0]);
        table.insert(wide(7), 7);
        assert_eq!(table.find(wide(7), |_| true), Some(7));
    }
}
