//! From a fingerprint to the series of a shard: open addressing with 32 bits of the hash in the
//! cell.
//!
//! A cell is `tag << 32 | local + 1`, zero is free. The caller compares the whole fingerprint when
//! the tag fits, which fails once in four billion probes.

use crate::fingerprint::Fingerprint;

const CELLS_MIN: usize = 16;

/// A removed series: probing goes on behind it.
const REMOVED: u64 = u32::MAX as u64;

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    cells: Vec<u64>,
    /// Cells that are not free, removed ones included.
    used: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            cells: vec![0; CELLS_MIN],
            used: 0,
        }
    }
}

impl Table {
    /// The number under `print` for which `is_it` says so.
    #[inline]
    pub(crate) fn find(&self, print: Fingerprint, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.cells.len() - 1;
        let mut at = print.low as usize & mask;
        loop {
            let cell = self.cells[at];
            if cell == 0 {
                return None;
            }
            if cell >> 32 == print.low >> 32 && cell != REMOVED {
                let local = cell as u32 - 1;
                if is_it(local) {
                    return Some(local);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Inserts `local` under `print`; it must not be there. `print_of` gives the fingerprint of a
    /// number that is.
    pub(crate) fn insert(
        &mut self,
        print: Fingerprint,
        local: u32,
        print_of: impl Fn(u32) -> Fingerprint,
    ) {
        // At most three quarters full: a miss sees eight cells, one line of memory.
        if (self.used + 1) * 4 > self.cells.len() * 3 {
            self.rebuild(print_of);
        }
        self.used += 1;
        self.place(print, local);
    }

    fn place(&mut self, print: Fingerprint, local: u32) {
        let mask = self.cells.len() - 1;
        let mut at = print.low as usize & mask;
        while self.cells[at] != 0 {
            at = (at + 1) & mask;
        }
        self.cells[at] = cell(print, local);
    }

    fn rebuild(&mut self, print_of: impl Fn(u32) -> Fingerprint) {
        let is_alive = |c: &u64| *c != 0 && *c != REMOVED;
        let alive: Vec<u64> = self.cells.iter().copied().filter(is_alive).collect();
        let cells = ((alive.len() + 1) * 2).next_power_of_two().max(CELLS_MIN);
        self.used = alive.len();
        self.cells = vec![0; cells];
        for cell in alive {
            let local = cell as u32 - 1;
            self.place(print_of(local), local);
        }
    }

    /// Forgets `local`, which is under `print`.
    pub(crate) fn remove(&mut self, print: Fingerprint, local: u32) {
        let mask = self.cells.len() - 1;
        let mut at = print.low as usize & mask;
        while self.cells[at] != 0 {
            if self.cells[at] == cell(print, local) {
                self.cells[at] = REMOVED;
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

fn cell(print: Fingerprint, local: u32) -> u64 {
    print.low >> 32 << 32 | u64::from(local + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few distinct tags and homes, so that probes run into each other.
    fn print(n: u32) -> Fingerprint {
        Fingerprint {
            high: u64::from(n),
            low: u64::from(n % 11) << 32 | u64::from(n % 3),
        }
    }

    #[test]
    fn table_after_growth_and_removal_finds_what_is_left() {
        let mut table = Table::default();
        let mut left = Vec::new();
        for n in 0..500 {
            table.insert(print(n), n, print);
            left.push(n);
            if n % 3 == 2 {
                let gone = left.remove(n as usize % left.len());
                table.remove(print(gone), gone);
            }
        }
        for n in 0..500 {
            let found = table.find(print(n), |f| f == n);
            assert_eq!(found, left.contains(&n).then_some(n), "{n}");
        }
    }
}
