//! From a fingerprint to the series of a shard: open addressing with 32 bits of the hash in the
//! cell.
//!
//! A cell is `tag << 32 | local + 1`, zero is free. The caller compares the whole fingerprint when
//! the tag fits. The tag also says where probing begins, so growth looks at nothing but cells; of
//! neighbours in a large table it tells apart by what is left: one probe in some ten thousand
//! compares a fingerprint in vain.

use crate::ids::Local;
use firn_model::fingerprint::Fingerprint;

const CELLS_MIN: usize = 16;

/// A removed series: probing goes on behind it.
const REMOVED: u64 = u32::MAX as u64;

/// Where a number goes that is not there yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vacancy(usize);

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    cells: Vec<u64>,
    /// Cells that are not free, removed ones included.
    used: usize,
    /// Series in it.
    count: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            cells: vec![0; CELLS_MIN],
            used: 0,
            count: 0,
        }
    }
}

impl Table {
    /// The number under `print` for which `is_it` says so.
    #[inline]
    pub(crate) fn find(&self, print: Fingerprint, is_it: impl Fn(Local) -> bool) -> Option<Local> {
        self.probe(print, is_it).ok()
    }

    /// The number under `print` for which `is_it` says so, or where one would go.
    #[inline]
    pub(crate) fn probe(
        &self,
        print: Fingerprint,
        is_it: impl Fn(Local) -> bool,
    ) -> Result<Local, Vacancy> {
        let mask = self.cells.len() - 1;
        let mut at = home(print.low, mask);
        loop {
            let cell = self.cells[at];
            if cell == 0 {
                return Err(Vacancy(at));
            }
            if cell >> 32 == print.low >> 32 && cell != REMOVED {
                let local = Local(cell as u32 - 1);
                if is_it(local) {
                    return Ok(local);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Reads what [`Table::probe`] reads first for each of `prints`: the processor waits for all
    /// of them together, instead of for one after the other.
    #[inline]
    pub(crate) fn warm(&self, prints: impl Iterator<Item = Fingerprint>) {
        let mask = self.cells.len() - 1;
        let cells = prints.map(|print| self.cells[home(print.low, mask)]);
        std::hint::black_box(cells.fold(0, |all, cell| all ^ cell));
    }

    /// Inserts `local` under `print`, for which there is a vacancy; nothing was inserted since.
    #[inline]
    pub(crate) fn insert(&mut self, print: Fingerprint, local: Local, vacancy: Vacancy) {
        self.used += 1;
        self.count += 1;
        // At most three quarters full: a miss sees eight cells, one line of memory.
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

    /// Gets smaller if a table for what is in it has a quarter of its cells at most.
    pub(crate) fn shrink(&mut self) {
        let cells = cells_for(self.count);
        if cells <= self.cells.len() / 4 {
            self.rebuild(cells);
        }
    }

    fn rebuild(&mut self, cells: usize) {
        let is_alive = |c: &u64| *c != 0 && *c != REMOVED;
        let old = std::mem::replace(&mut self.cells, written_zeros(cells));
        self.used = 0;
        for alive in old.into_iter().filter(is_alive) {
            self.used += 1;
            self.place(alive);
        }
    }

    /// Forgets `local`, which is under `print`.
    pub(crate) fn remove(&mut self, print: Fingerprint, local: Local) {
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

    /// Bytes of memory behind the struct.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.cells.capacity() * 8
    }
}

/// Cells of a table for so many series: half of it or more stays free.
fn cells_for(count: usize) -> usize {
    ((count + 1) * 2).next_power_of_two().max(CELLS_MIN)
}

/// Free cells, in memory that was written to. Placing reads a cell first, and a page that is read
/// before it is written to costs two faults, of which the second one stops all other threads.
fn written_zeros(cells: usize) -> Vec<u64> {
    const PAGE_CELLS: usize = 4_096 / size_of::<u64>();
    let mut zeros = vec![0; cells];
    for page in zeros.chunks_mut(PAGE_CELLS) {
        page[0] = std::hint::black_box(0);
    }
    zeros
}

/// Where probing begins for a hash or a cell with its tag.
fn home(tagged: u64, mask: usize) -> usize {
    (tagged >> 32) as usize & mask
}

fn cell(print: Fingerprint, local: Local) -> u64 {
    print.low >> 32 << 32 | u64::from(local.0 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few distinct tags, so that probes run into each other.
    fn print(n: u32) -> Fingerprint {
        Fingerprint {
            high: u64::from(n),
            low: u64::from(n % 11) << 32,
        }
    }

    #[test]
    fn table_after_growth_and_removal_finds_what_is_left() {
        let mut table = Table::default();
        let mut left = Vec::new();
        for n in 0..500 {
            let vacancy = table.probe(print(n), |_| false).unwrap_err();
            table.insert(print(n), Local(n), vacancy);
            left.push(n);
            if n % 3 == 2 {
                let gone = left.remove(n as usize % left.len());
                table.remove(print(gone), Local(gone));
            }
        }
        for n in 0..500 {
            let found = table.find(print(n), |found| found == Local(n));
            assert_eq!(found, left.contains(&n).then_some(Local(n)), "{n}");
        }
    }
}
