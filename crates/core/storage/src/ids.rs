//! Typed numbers for series, groups, terms and labels, so that they cannot be confused.
//!
//! Ranges and computed values are plain numbers: a run of series is `start..end` (see
//! [`crate::index::Run`]), and a bit or a cell is addressed by the number itself.

/// Identifies a series in a data folder and in its files. Slots are assigned in order of creation
/// and never reused, however often the folder is opened, so a page, a record or an exemplar of a
/// removed series is never attributed to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SeriesSlot(pub u64);

/// Identifies a series in an open store: in index, head and queries. Numbers are assigned in order
/// and never reused until the store is closed; [`crate::parts::numbers`] maps them to slots. Fields
/// and variables of this type are also named `slot`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SeriesRef(pub u32);

impl SeriesRef {
    /// All numbers are below this one, which is a multiple of the size of groups and of leaves.
    pub(crate) const END: u32 = !0xfff;
}

/// Place of a series within its shard. A number is reused after its series has left the shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct ShardLocalId(pub(crate) u32);

/// A group of neighbouring slots that are sealed together (see [`crate::sealed::group_of`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct GroupId(pub(crate) u64);

/// A pair of label name and value in the index. Numbers are never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct TermId(pub(crate) u32);

/// A label name in the index. Names are never removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct LabelId(pub(crate) u32);

impl ShardLocalId {
    /// Returns the index of the series in the arrays of its shard.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}
