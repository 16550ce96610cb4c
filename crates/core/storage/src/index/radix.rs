//! A growable array that is read without a lock: its cells are allocated on first use and never
//! move.

use std::sync::OnceLock;

const LEAF_BITS: u32 = 12;
const LEAF_CELLS: usize = 1 << LEAF_BITS;

type Leaf<T> = Box<[OnceLock<T>]>;

/// An array of up to 2^24 cells, in leaves of 4,096.
#[derive(Debug)]
pub(crate) struct RadixArray<T> {
    leaves: Box<[OnceLock<Leaf<T>>]>,
}

impl<T> Default for RadixArray<T> {
    fn default() -> Self {
        Self {
            leaves: new_leaf(1 << (24 - LEAF_BITS)),
        }
    }
}

fn new_leaf<U>(cells: usize) -> Leaf<U> {
    (0..cells).map(|_| OnceLock::new()).collect()
}

impl<T> RadixArray<T> {
    /// Returns the cell at index `at`, if it was initialized.
    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.leaves
            .get((at >> LEAF_BITS) as usize)?
            .get()?
            .get(at as usize % LEAF_CELLS)?
            .get()
    }

    /// Returns the cell at index `at`, and initializes it with `make` if necessary. Panics if `at`
    /// is 2^24 or more.
    pub(crate) fn get_or_init(&self, at: u32, make: impl FnOnce() -> T) -> &T {
        let leaf = self.leaves[(at >> LEAF_BITS) as usize].get_or_init(|| new_leaf(LEAF_CELLS));
        leaf[at as usize % LEAF_CELLS].get_or_init(make)
    }
}
