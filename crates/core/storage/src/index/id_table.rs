//! A hash table from hashes to ids, with open addressing. One writer fills it; any number of
//! readers search it without a lock.
//!
//! A cell is `tag << 32 | id + 1`, where the tag is the high half of the hash; zero is a free cell.
//! The tag also determines where probing begins, so the table grows without the hashes: it copies
//! the cells into a larger table and swaps the pointer. Readers finish on the table that they hold.
//! A table that is almost empty after removals shrinks in the same way. Invariant: an id that was
//! inserted before a reader began is found, unless it was removed.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use arc_swap::ArcSwap;
use std::sync::Arc;

/// Cell of a removed id; probing continues after it.
const REMOVED: u64 = u32::MAX as u64;

const CELLS_MIN: usize = 8;

/// Number of cells per id above which the table is copied into a smaller one. A copy has two to
/// four cells per id, so that a changing number of ids does not cause repeated copies.
const CELLS_EACH_MAX: usize = 16;

/// The table. Insertions and removals require that there is only one writer at a time.
#[derive(Debug)]
pub(crate) struct IdTable {
    cells: ArcSwap<Box<[AtomicU64]>>,
    /// Number of cells that are not free, removed ones included; it determines when the table
    /// grows.
    used: AtomicU32,
    count: AtomicU32,
}

impl Default for IdTable {
    fn default() -> Self {
        Self {
            cells: ArcSwap::from_pointee(new_cells(CELLS_MIN)),
            used: AtomicU32::new(0),
            count: AtomicU32::new(0),
        }
    }
}

fn new_cells(cells: usize) -> Box<[AtomicU64]> {
    (0..cells).map(|_| AtomicU64::new(0)).collect()
}

/// Returns the cell at which probing begins for a hash, or for a cell that contains its tag.
fn home_cell(tagged: u64, cells: usize) -> usize {
    (tagged >> 32) as usize & (cells - 1)
}

impl IdTable {
    /// Returns the id under `hash` for which `is_it` returns true.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let cells = self.cells.load();
        let mut at = home_cell(hash, cells.len());
        loop {
            // Acquire: a reader that sees the id sees the object behind it.
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

    /// Inserts `id` under `hash`. The id must not be in the table.
    pub(crate) fn insert(&self, hash: u64, id: u32) {
        let used = self.used.load(Ordering::Relaxed) as usize + 1;
        // At most two thirds full: a probe reads three cells on average.
        if used * 3 > self.cells.load().len() * 2 {
            self.rebuild();
        }
        insert_cell(&self.cells.load(), pack_cell(hash, id));
        self.used.fetch_add(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn rebuild(&self) {
        let old = self.cells.load();
        let count = self.count();
        let cells = new_cells(((count + 1) * 2).next_power_of_two().max(CELLS_MIN));
        for cell in old.iter().map(|c| c.load(Ordering::Relaxed)) {
            if cell != 0 && cell != REMOVED {
                insert_cell(&cells, cell);
            }
        }
        self.used.store(count as u32, Ordering::Relaxed);
        self.cells.store(Arc::new(cells));
    }

    /// Removes `id`, which was inserted under `hash`.
    pub(crate) fn remove(&self, hash: u64, id: u32) {
        let cells = self.cells.load();
        let wanted = pack_cell(hash, id);
        let mut at = home_cell(hash, cells.len());
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

    /// Returns the number of ids.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize
    }

    /// Returns all ids in an arbitrary order.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let cells = self.cells.load();
        cells
            .iter()
            .map(|c| c.load(Ordering::Acquire))
            .filter(|c| *c != 0 && *c != REMOVED)
            .map(|c| c as u32 - 1)
            .collect()
    }

    /// Returns the memory of the table in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.cells.load().len() * 8
    }
}

fn pack_cell(hash: u64, id: u32) -> u64 {
    hash >> 32 << 32 | u64::from(id + 1)
}

fn insert_cell(cells: &[AtomicU64], cell: u64) {
    let mut at = home_cell(cell, cells.len());
    while cells[at].load(Ordering::Relaxed) != 0 {
        at = (at + 1) & (cells.len() - 1);
    }
    cells[at].store(cell, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns few distinct hashes, so that probes collide.
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
