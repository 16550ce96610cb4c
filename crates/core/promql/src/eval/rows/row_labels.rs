//! The labels of a frame's rows: label sets in memory, or references from which they can be
//! created.
//!
//! A query needs few label sets: a join needs the matched labels, an aggregation those of its
//! grouping, and `topk` those of the selected series. Rows of samples therefore contain only the
//! index of their series. An [`LabelSource`] creates the label set of a row on request, and returns
//! single labels of all rows as columns.

use crate::eval::account::{QueryAccount, grow};
use crate::eval::rows::label_sets::{is_metadata, without_metadata};
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::columns::{COLUMN_VALUE_BYTES, LabelColumn};
use firn_model::labels::Labels;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Memory of a label set in addition to its text: lengths, reference counts and overhead of the
/// allocator, in bytes.
pub(crate) const ALLOCATION_BYTES: usize = 32;

/// The labels of one row, and whether its metric name is still to be removed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowLabels {
    /// The label set, which still contains the metric name if `drops_name` is set.
    pub(crate) labels: Labels,
    /// True if the metadata labels, such as the metric name, are removed at the end of the
    /// evaluation.
    pub(crate) drops_name: bool,
}

impl RowLabels {
    /// Creates the labels of a row that keeps its metric name.
    pub(crate) fn from_labels(labels: Labels) -> Self {
        let drops_name = false;
        RowLabels { labels, drops_name }
    }
}

/// The values of one label for many rows, and the reservation for their memory.
pub(crate) type HeldColumn = (LabelColumn, Reservation);

/// A list of members, usually series, whose labels are created on request.
pub(crate) trait LabelSource: Send + Sync {
    /// Returns the number of members, including those that no row refers to.
    fn len(&self) -> usize;

    /// Returns the label set of a member. Allocates in each call.
    fn labels(&self, member: usize) -> Labels;

    /// Returns the values of one label for all members.
    fn label_column(
        &self,
        name: &str,
        account: &QueryAccount<'_>,
    ) -> Result<HeldColumn, PromqlError>;

    /// Returns whether the metric name of the member is removed at the end of the evaluation.
    fn drops_name(&self, member: usize) -> bool;

    /// Returns the number of origins through which a read of a label passes, including this one.
    fn depth(&self) -> u32 {
        1
    }
}

/// Maximum number of origins through which a read of a label passes. Deeper chains are converted to
/// label sets.
const DEPTH_MAX: u32 = 64;

/// Members of another origin whose metric names are removed, now or at the end of the evaluation.
pub(crate) struct NamelessLabelSource {
    /// The members with their metric names, which are not changed.
    pub(crate) origin: Arc<dyn LabelSource>,
    /// True if the metadata labels are removed from all label sets.
    pub(crate) strips: bool,
    /// True if the metadata labels are removed at the end of the evaluation.
    pub(crate) drops: bool,
}

impl LabelSource for NamelessLabelSource {
    fn len(&self) -> usize {
        self.origin.len()
    }

    fn labels(&self, member: usize) -> Labels {
        let labels = self.origin.labels(member);
        if self.strips {
            without_metadata(labels.as_ref())
        } else {
            labels
        }
    }

    fn label_column(
        &self,
        name: &str,
        account: &QueryAccount<'_>,
    ) -> Result<HeldColumn, PromqlError> {
        if self.strips && is_metadata(name) {
            empty_column(self.len(), account)
        } else {
            self.origin.label_column(name, account)
        }
    }

    fn drops_name(&self, member: usize) -> bool {
        self.drops || self.origin.drops_name(member)
    }

    fn depth(&self) -> u32 {
        self.origin.depth() + 1
    }
}

/// Returns the column of a label that no member has.
pub(crate) fn empty_column(
    members: usize,
    account: &QueryAccount<'_>,
) -> Result<HeldColumn, PromqlError> {
    let memory = account.reserve(members * size_of::<u32>() + COLUMN_VALUE_BYTES)?;
    let column = LabelColumn {
        ids: vec![0; members],
        values: vec![[].into()],
    };
    Ok((column, memory))
}

/// Returns the values of one label for some members of an origin.
pub(crate) fn gather_column(
    origin: &dyn LabelSource,
    members: &[u32],
    name: &str,
    account: &QueryAccount<'_>,
) -> Result<HeldColumn, PromqlError> {
    let (mut column, mut memory) = origin.label_column(name, account)?;
    let (ids, len) = (column.ids.len(), origin.len());
    debug_assert_eq!(ids, len, "values of a label, and members of the origin");
    grow(&mut memory, size_of_val(members))?;
    let of_member = |member: &u32| column.ids[*member as usize];
    column.ids = members.iter().map(of_member).collect();
    Ok((column, memory))
}

/// The labels of all rows of a frame, in memory or as references to an origin.
pub(crate) enum FrameLabels {
    /// Label sets in memory, one for each row.
    Made(Vec<RowLabels>),
    /// Indexes of members of an origin, one per row. Label sets are created on request.
    Late(Arc<dyn LabelSource>, Vec<u32>),
}

impl Default for FrameLabels {
    fn default() -> Self {
        FrameLabels::Made(Vec::new())
    }
}

impl Clone for FrameLabels {
    fn clone(&self) -> Self {
        match self {
            FrameLabels::Made(made) => FrameLabels::Made(made.clone()),
            FrameLabels::Late(origin, members) => {
                FrameLabels::Late(origin.clone(), members.clone())
            }
        }
    }
}

impl FrameLabels {
    /// Returns an empty list for labels of this one.
    pub(crate) fn new_like(&self) -> Self {
        match self {
            FrameLabels::Made(_) => FrameLabels::Made(Vec::new()),
            FrameLabels::Late(origin, _) => FrameLabels::Late(origin.clone(), Vec::new()),
        }
    }

    /// Adds the labels of a row of another list.
    pub(crate) fn push_from(&mut self, other: &FrameLabels, row: usize) {
        match (&mut *self, other) {
            (FrameLabels::Late(own, members), FrameLabels::Late(origin, all))
                if Arc::ptr_eq(own, origin) =>
            {
                members.push(all[row]);
            }
            _ => self.materialize().push(other.get(row)),
        }
    }

    /// Adds a label set in memory. Creates all other label sets, too.
    pub(crate) fn push(&mut self, row_labels: RowLabels) {
        self.materialize().push(row_labels);
    }

    /// Returns the number of rows that have labels.
    pub(crate) fn len(&self) -> usize {
        match self {
            FrameLabels::Made(made) => made.len(),
            FrameLabels::Late(_, members) => members.len(),
        }
    }

    /// Returns the labels of a row. Allocates if they have not been created yet.
    pub(crate) fn get(&self, row: usize) -> RowLabels {
        match self {
            FrameLabels::Made(made) => made[row].clone(),
            FrameLabels::Late(origin, members) => RowLabels {
                labels: origin.labels(members[row] as usize),
                drops_name: origin.drops_name(members[row] as usize),
            },
        }
    }

    /// Returns whether the metric name of the row is removed at the end of the evaluation.
    pub(crate) fn drops_name(&self, row: usize) -> bool {
        match self {
            FrameLabels::Made(made) => made[row].drops_name,
            FrameLabels::Late(origin, members) => origin.drops_name(members[row] as usize),
        }
    }

    /// Creates all label sets without reserving memory, and returns them.
    fn materialize(&mut self) -> &mut Vec<RowLabels> {
        if let FrameLabels::Late(..) = self {
            *self = FrameLabels::Made((0..self.len()).map(|row| self.get(row)).collect());
        }
        match self {
            FrameLabels::Made(made) => made,
            FrameLabels::Late(..) => unreachable!("labels were made above"),
        }
    }

    /// Returns whether a read of a label passes through more than [`DEPTH_MAX`] origins.
    pub(crate) fn is_deep(&self) -> bool {
        match self {
            FrameLabels::Made(_) => false,
            FrameLabels::Late(origin, _) => origin.depth() > DEPTH_MAX,
        }
    }

    /// Creates all label sets like `materialize`, but reserves each of them in `memory` first.
    pub(crate) fn materialize_reserved(
        &mut self,
        account: &QueryAccount<'_>,
        memory: &mut Reservation,
    ) -> Result<&mut Vec<RowLabels>, PromqlError> {
        if let FrameLabels::Late(..) = self {
            grow(memory, self.len() * size_of::<RowLabels>())?;
            let mut made = Vec::with_capacity(self.len());
            for row in 0..self.len() {
                account.check()?;
                let row_labels = self.get(row);
                grow(
                    memory,
                    row_labels.labels.as_bytes().len() + ALLOCATION_BYTES,
                )?;
                made.push(row_labels);
            }
            *self = FrameLabels::Made(made);
        }
        Ok(self.materialize())
    }

    /// Returns the values of one label for all rows.
    pub(crate) fn label_column(
        &self,
        name: &str,
        account: &QueryAccount<'_>,
    ) -> Result<HeldColumn, PromqlError> {
        match self {
            FrameLabels::Made(made) => build_column(made, name, account),
            FrameLabels::Late(origin, members) => gather_column(&**origin, members, name, account),
        }
    }

    /// Appends the labels of other rows. References are kept if both lists have the same origin.
    pub(crate) fn append(&mut self, mut other: FrameLabels) {
        if self.len() == 0 {
            *self = other;
            return;
        }
        match (&mut *self, &mut other) {
            (FrameLabels::Late(own, members), FrameLabels::Late(origin, more))
                if Arc::ptr_eq(own, origin) =>
            {
                members.append(more);
            }
            _ => self.materialize().append(other.materialize()),
        }
    }

    /// Returns the rows as an origin and the index of each row's member in it.
    pub(crate) fn to_label_source(&self) -> (Arc<dyn LabelSource>, Vec<u32>) {
        match self {
            FrameLabels::Made(made) => {
                let members = (0..made.len() as u32).collect();
                (Arc::new(StoredLabelSource(made.clone())), members)
            }
            FrameLabels::Late(origin, members) => (origin.clone(), members.clone()),
        }
    }

    /// Returns the size of the list in bytes, without its label sets, which all lists share.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            FrameLabels::Made(made) => size_of_val(&made[..]),
            FrameLabels::Late(_, members) => size_of_val(&members[..]),
        }
    }
}

/// An origin whose label sets are in memory, for frames that have created them.
struct StoredLabelSource(Vec<RowLabels>);

impl LabelSource for StoredLabelSource {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn labels(&self, member: usize) -> Labels {
        self.0[member].labels.clone()
    }

    fn label_column(
        &self,
        name: &str,
        account: &QueryAccount<'_>,
    ) -> Result<HeldColumn, PromqlError> {
        build_column(&self.0, name, account)
    }

    fn drops_name(&self, member: usize) -> bool {
        self.0[member].drops_name
    }
}

fn build_column(
    all: &[RowLabels],
    name: &str,
    account: &QueryAccount<'_>,
) -> Result<HeldColumn, PromqlError> {
    // Bytes of an entry in the map, which may have capacity for twice as many.
    const NUMBER_BYTES: usize = 2 * size_of::<(&[u8], u32)>();
    let mut memory = account.reserve(all.len() * size_of::<u32>())?;
    let mut known: FxHashMap<&[u8], u32> = FxHashMap::default();
    let mut column = LabelColumn {
        ids: Vec::with_capacity(all.len()),
        values: Vec::new(),
    };
    for row_labels in all {
        account.check()?;
        let value = row_labels.labels.get(name);
        let next = column.values.len() as u32;
        let id = *known.entry(value).or_insert(next);
        if id == next {
            grow(&mut memory, COLUMN_VALUE_BYTES + NUMBER_BYTES + value.len())?;
            column.values.push(value.into());
        }
        column.ids.push(id);
    }
    Ok((column, memory))
}
