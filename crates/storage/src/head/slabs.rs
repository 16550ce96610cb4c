//! A growing array in slabs, so that growth never copies and never leaves half of its memory
//! unused. A slab none of whose items matters gives its memory back, and gets it again.

/// Items of a slab.
pub(crate) const SLAB_ITEMS: usize = 1_024;

/// The array.
#[derive(Debug)]
pub(crate) struct Slabs<T> {
    /// All but the last one are whole, or released and without memory.
    slabs: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Slabs<T> {
    fn default() -> Self {
        Self {
            slabs: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Slabs<T> {
    /// How many items, those of released slabs included.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item behind the others.
    pub(crate) fn push(&mut self, item: T) {
        let slab = self.len / SLAB_ITEMS;
        match self.slabs.get_mut(slab) {
            Some(slab) => slab.push(item),
            None => {
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
        self.len += 1;
    }

    /// The item with number `at`, unless its slab is released.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.slabs.get(at / SLAB_ITEMS)?.get(at % SLAB_ITEMS)
    }

    /// The item with number `at`, to change it, unless its slab is released.
    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.slabs
            .get_mut(at / SLAB_ITEMS)?
            .get_mut(at % SLAB_ITEMS)
    }

    /// All items with their numbers in order, but for those of released slabs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let slabs = self.slabs.iter().enumerate();
        slabs.flat_map(|(slab, items)| {
            let items = items.iter().enumerate();
            items.map(move |(at, item)| (slab * SLAB_ITEMS + at, item))
        })
    }

    /// Slabs, released ones included.
    pub(crate) fn slab_count(&self) -> usize {
        self.slabs.len()
    }

    /// Items of a slab that would go with its memory.
    pub(crate) fn held_in(&self, slab: usize) -> usize {
        self.slabs.get(slab).map_or(0, Vec::len)
    }

    /// Gives back the memory of a slab that is not the last one.
    pub(crate) fn release(&mut self, slab: usize) {
        assert!(slab + 1 < self.slabs.len(), "the last slab grows");
        self.slabs[slab] = Vec::new();
    }

    /// Makes a slab whole again if it was released, of `fresh` items.
    pub(crate) fn restore(&mut self, slab: usize, fresh: impl FnMut() -> T) {
        if let Some(slab) = self.slabs.get_mut(slab).filter(|slab| slab.is_empty()) {
            slab.reserve_exact(SLAB_ITEMS);
            slab.resize_with(SLAB_ITEMS, fresh);
        }
    }

    /// Removes the slabs from `end` on.
    pub(crate) fn truncate(&mut self, end: usize) {
        self.slabs.truncate(end);
        self.len = self.len.min(end * SLAB_ITEMS);
        if self.slabs.len() < self.slabs.capacity() / 2 {
            self.slabs.shrink_to_fit();
        }
    }

    /// Bytes of memory behind the struct.
    pub(crate) fn memory_bytes(&self) -> usize {
        let items: usize = self.slabs.iter().map(Vec::capacity).sum();
        items * size_of::<T>() + self.slabs.capacity() * size_of::<Vec<T>>()
    }
}
