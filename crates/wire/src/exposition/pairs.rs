//! The labels of one series as they are read, before relabelling.

/// Names and values in one buffer. Names may repeat, values may be empty and names need not be
/// UTF-8: what becomes of that is decided when the target's labels have been added. Reuse one to
/// keep its memory.
#[derive(Clone, Debug, Default)]
pub struct LabelPairs {
    bytes: Vec<u8>,
    ends: Vec<PairEnds>,
}

/// Where a pair's parts lie in the buffer; the value follows its name.
#[derive(Clone, Copy, Debug)]
struct PairEnds {
    start: usize,
    name_end: usize,
    value_end: usize,
}

impl LabelPairs {
    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a pair.
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

    /// Sorts by name; pairs of one name keep their order.
    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        let name = |pair: &PairEnds| &bytes[pair.start..pair.name_end];
        self.ends.sort_by(|a, b| name(a).cmp(name(b)));
    }

    /// Pairs in the list.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Names and values in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ends.iter().map(|pair| {
            let name = &self.bytes[pair.start..pair.name_end];
            (name, &self.bytes[pair.name_end..pair.value_end])
        })
    }
}
