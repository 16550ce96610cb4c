//! A growing array in pages, so that growth never copies and never leaves half of its memory
//! unused.

const PAGE: usize = 1_024;

/// The array.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Vec<T>>,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self { pages: Vec::new() }
    }
}

impl<T> Paged<T> {
    /// How many items.
    pub(crate) fn len(&self) -> usize {
        match self.pages.split_last() {
            Some((last, full)) => full.len() * PAGE + last.len(),
            None => 0,
        }
    }

    /// Adds an item behind the others.
    pub(crate) fn push(&mut self, item: T) {
        match self.pages.last_mut() {
            Some(page) if page.len() < PAGE => page.push(item),
            _ => {
                // The first page of a small store grows as a vector does, later ones are made
                // whole.
                let mut page = Vec::new();
                if !self.pages.is_empty() {
                    page.reserve_exact(PAGE);
                }
                page.push(item);
                self.pages.push(page);
            }
        }
    }

    /// The item with number `at`.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.pages.get(at / PAGE)?.get(at % PAGE)
    }

    /// The item with number `at`, to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.pages.get_mut(at / PAGE)?.get_mut(at % PAGE)
    }

    /// All items in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten()
    }

    /// Bytes of memory behind the struct.
    pub(crate) fn memory_bytes(&self) -> usize {
        let items: usize = self.pages.iter().map(Vec::capacity).sum();
        items * size_of::<T>() + self.pages.capacity() * size_of::<Vec<T>>()
    }
}
