//! The labels of one parsed series, before relabelling.

/// Label names and values in one buffer. Names may repeat and need not be UTF-8, and values may be
/// empty: the caller validates them after it has added the labels of the target. Reuse one list for
/// many series to keep its memory.
#[derive(Clone, Debug, Default)]
pub struct LabelPairs {
    bytes: Vec<u8>,
    ends: Vec<PairEnds>,
}

/// Offsets of one pair in the buffer; the value follows its name directly.
#[derive(Clone, Copy, Debug)]
struct PairEnds {
    start: usize,
    name_end: usize,
    value_end: usize,
}

impl LabelPairs {
    /// Removes all pairs but keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends a pair of name and value. Neither part is validated or compared with other pairs.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        let name_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        let value_end = self.bytes.len();
        self.ends.push(PairEnds {
            start,
            name_end,
            value_end,
        });
    }

    /// Sorts the pairs by name; pairs with equal names keep their order.
    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        let name = |pair: &PairEnds| &bytes[pair.start..pair.name_end];
        self.ends.sort_by(|a, b| name(a).cmp(name(b)));
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether the list has no pairs.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Iterates over the names and values in list order. Pairs are sorted only after
    /// [`LabelPairs::sort`].
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ends.iter().map(|pair| {
            let name = &self.bytes[pair.start..pair.name_end];
            (name, &self.bytes[pair.name_end..pair.value_end])
        })
    }
}
