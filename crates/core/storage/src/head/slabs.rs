//! A growable array in slabs of fixed size. Growth never copies items and never leaves half of the
//! memory unused. A slab that has no live items can release its memory and allocate it again later.

/// Number of items in a slab, the unit in which the array allocates and releases memory.
pub(crate) const SLAB_ITEMS: usize = 1_024;

/// The array. Items are addressed by their index, which never changes.
#[derive(Debug)]
pub(crate) struct SlabVec<T> {
    /// Every slab except the last one is full, or released and without memory.
    slabs: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for SlabVec<T> {
    fn default() -> Self {
        Self {
            slabs: Vec::new(),
            len: 0,
        }
    }
}

impl<T> SlabVec<T> {
    /// Returns the number of items, those of released slabs included.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item at the end.
    pub(crate) fn push(&mut self, item: T) {
        let slab = self.len / SLAB_ITEMS;
        match self.slabs.get_mut(slab) {
            Some(slab) => slab.push(item),
            None => {
                // The first slab of a small store grows like a vector; later ones are allocated in
                // full.
                let mut slab = Vec::new();
                if !self.slabs.is_empty() {
                    slab.reserve_exact(SLAB_ITEMS);
                }
                slab.push(item);
                self.slabs.push(slab);
            }
        }
        self.len += 1;
    }

    /// Returns the item at index `at`, unless its slab is released.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.slabs.get(at / SLAB_ITEMS)?.get(at % SLAB_ITEMS)
    }

    /// Returns the item at index `at` for modification, unless its slab is released.
    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.slabs
            .get_mut(at / SLAB_ITEMS)?
            .get_mut(at % SLAB_ITEMS)
    }

    /// Returns all items with their indices in order, except those of released slabs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let slabs = self.slabs.iter().enumerate();
        slabs.flat_map(|(slab, items)| {
            let items = items.iter().enumerate();
            items.map(move |(at, item)| (slab * SLAB_ITEMS + at, item))
        })
    }

    /// Returns the number of slabs, released ones included.
    pub(crate) fn slab_count(&self) -> usize {
        self.slabs.len()
    }

    /// Returns the number of items of a slab; 0 if it is released.
    pub(crate) fn count_items(&self, slab: usize) -> usize {
        self.slabs.get(slab).map_or(0, Vec::len)
    }

    /// Releases the memory of a slab, which must not be the last one.
    pub(crate) fn release(&mut self, slab: usize) {
        assert!(slab + 1 < self.slabs.len(), "the last slab grows");
        self.slabs[slab] = Vec::new();
    }

    /// Allocates a slab again if it was released, and fills it with items from `fresh`.
    pub(crate) fn restore(&mut self, slab: usize, fresh: impl FnMut() -> T) {
        if let Some(slab) = self.slabs.get_mut(slab).filter(|slab| slab.is_empty()) {
            slab.reserve_exact(SLAB_ITEMS);
            slab.resize_with(SLAB_ITEMS, fresh);
        }
    }

    /// Removes the slabs from number `end` on, with all of their items.
    pub(crate) fn truncate(&mut self, end: usize) {
        self.slabs.truncate(end);
        self.len = self.len.min(end * SLAB_ITEMS);
        if self.slabs.len() < self.slabs.capacity() / 2 {
            self.slabs.shrink_to_fit();
        }
    }

    /// Returns the memory of the slabs in bytes, without the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        let items: usize = self.slabs.iter().map(Vec::capacity).sum();
        items * size_of::<T>() + self.slabs.capacity() * size_of::<Vec<T>>()
    }
}
