//! A growing array in slabs, so that growth never copies and never leaves half of its memory
//! unused.

const SLAB_ITEMS: usize = 1_024;

/// The array.
#[derive(Debug)]
pub(crate) struct Slabs<T> {
    slabs: Vec<Vec<T>>,
}

impl<T> Default for Slabs<T> {
    fn default() -> Self {
        Self { slabs: Vec::new() }
    }
}

impl<T> Slabs<T> {
    /// How many items.
    pub(crate) fn len(&self) -> usize {
        match self.slabs.split_last() {
            Some((last, full)) => full.len() * SLAB_ITEMS + last.len(),
            None => 0,
        }
    }

    /// Adds an item behind the others.
    pub(crate) fn push(&mut self, item: T) {
        match self.slabs.last_mut() {
            Some(slab) if slab.len() < SLAB_ITEMS => slab.push(item),
            _ => {
                // The first slab of a small store grows as a vector does, later ones are made
                // whole.
                let mut slab = Vec::new();
                if !self.slabs.is_empty() {
                    slab.reserve_exact(SLAB_ITEMS);
                }
                slab.push(item);
                self.slabs.push(slab);
            }
        }
    }

    /// The item with number `at`.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.slabs.get(at / SLAB_ITEMS)?.get(at % SLAB_ITEMS)
    }

    /// The item with number `at`, to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.slabs
            .get_mut(at / SLAB_ITEMS)?
            .get_mut(at % SLAB_ITEMS)
    }

    /// All items in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slabs.iter().flatten()
    }

    /// Bytes of memory behind the struct.
    pub(crate) fn memory_bytes(&self) -> usize {
        let items: usize = self.slabs.iter().map(Vec::capacity).sum();
        items * size_of::<T>() + self.slabs.capacity() * size_of::<Vec<T>>()
    }
}
