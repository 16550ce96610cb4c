//! The numbers by which the parts of a store name things, each of a type of its own, so that none
//! is taken for another.
//!
//! Ranges and sums of them are plain numbers again: a run of series is `start..end` (see
//! [`crate::index::Run`]), a bit or a cell is found by the number itself.

/// A series of a store: numbers are given in order of creation and never twice. In the names of
/// fields, and in the stored formats, it is the series' *slot*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SeriesRef(pub u32);

/// A series within its shard: a number is given again once its series left the shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct Local(pub(crate) u32);

/// A group: neighbouring series that are sealed together (see [`crate::sealed::group_of`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct GroupId(pub(crate) u32);

/// A pair of label name and value in the index. Numbers are never given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct TermId(pub(crate) u32);

/// A label name in the index. Names are never removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct LabelId(pub(crate) u32);

impl Local {
    /// The series' place in the arrays of its shard.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}
