//! The numbers by which the parts of a store name things, each of a type of its own, so that none
//! is taken for another.
//!
//! Ranges and sums of them are plain numbers again: a run of series is `start..end` (see
//! [`crate::index::Run`]), a bit or a cell is found by the number itself.

/// A series of a folder: what is stored names it so. Slots are given in order of creation and never
/// twice, however often the folder is opened: a page, a record or an exemplar of a series that is
/// gone is never taken for one of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Slot(pub u64);

/// A series of a store that is open: index, head and queries name it so. Numbers are given in order
/// and never twice until the store is closed; [`crate::parts::numbers`] says which slots they stand
/// for. In the names of fields it is the series' slot too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SeriesRef(pub u32);

impl SeriesRef {
    /// Numbers are below: a multiple of what groups and leaves of tables have.
    pub(crate) const END: u32 = !0xfff;
}

/// A series within its shard: a number is given again once its series left the shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct Local(pub(crate) u32);

/// A group: neighbouring slots that are sealed together (see [`crate::sealed::group_of`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub(crate) struct GroupId(pub(crate) u64);

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
