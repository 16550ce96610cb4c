//! The labels of the rows of a frame: label sets, or the place to make them from.
//!
//! A query looks at few of its label sets: a join at the labels that it pairs by, an aggregation at
//! those it groups by, `topk` at those of the chosen series. So rows of samples carry the number of
//! their series, and an [`Origin`] makes a label set when a caller asks for it; single labels of
//! all rows come as columns of numbers.

use crate::eval::account::{Account, grow};
use crate::eval::rows::label_sets::{is_metadata, without_metadata};
use crate::value::QueryError;
use firn_model::budget::Reservation;
use firn_model::columns::{COLUMN_VALUE_BYTES, LabelColumn};
use firn_model::labels::Labels;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The bytes of a label set beside its text: lengths, counts and the overhead of the allocator.
pub(crate) const ALLOCATION_BYTES: usize = 32;

/// The labels of one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowLabels {
    /// The labels.
    pub(crate) labels: Labels,
    /// Whether the labels that name the metric go at the end of the evaluation.
    pub(crate) drops_name: bool,
}

impl RowLabels {
    /// Labels that keep the name of the metric.
    pub(crate) fn kept(labels: Labels) -> Self {
        let drops_name = false;
        RowLabels { labels, drops_name }
    }
}

/// One label of many rows, and the memory that it takes.
pub(crate) type HeldColumn = (LabelColumn, Reservation);

/// Members whose labels can be asked for.
pub(crate) trait Origin: Send + Sync {
    /// How many members.
    fn len(&self) -> usize;

    /// The labels of a member; allocates.
    fn labels(&self, member: usize) -> Labels;

    /// One label of all members.
    fn label_column(&self, name: &str, account: &Account<'_>) -> Result<HeldColumn, QueryError>;

    /// Whether the member is to lose its name at the end of the evaluation.
    fn drops_name(&self, member: usize) -> bool;

    /// How many origins a look at a label goes through, this one included.
    fn depth(&self) -> u32 {
        1
    }
}

/// The most origins that a look at a label goes through: deeper ones are made into label sets
/// first.
const DEPTH_MAX: u32 = 64;

/// Members of another origin that lost their names, or are to lose them.
pub(crate) struct Renamed {
    /// The members with their names.
    pub(crate) origin: Arc<dyn Origin>,
    /// Whether the labels that name the metric are gone.
    pub(crate) strips: bool,
    /// Whether they go at the end of the evaluation.
    pub(crate) drops: bool,
}

impl Origin for Renamed {
    fn len(&self) -> usize {
        self.origin.len()
    }

    fn labels(&self, member: usize) -> Labels {
        let labels = self.origin.labels(member);
        match self.strips {
            true => without_metadata(labels.as_ref()),
            false => labels,
        }
    }

    fn label_column(&self, name: &str, account: &Account<'_>) -> Result<HeldColumn, QueryError> {
        match self.strips && is_metadata(name) {
            true => no_label(self.len(), account),
            false => self.origin.label_column(name, account),
        }
    }

    fn drops_name(&self, member: usize) -> bool {
        self.drops || self.origin.drops_name(member)
    }

    fn depth(&self) -> u32 {
        self.origin.depth() + 1
    }
}

/// The column of a label that no member has.
pub(crate) fn no_label(members: usize, account: &Account<'_>) -> Result<HeldColumn, QueryError> {
    let memory = account.reserve(members * size_of::<u32>() + COLUMN_VALUE_BYTES)?;
    let column = LabelColumn {
        ids: vec![0; members],
        values: vec![[].into()],
    };
    Ok((column, memory))
}

/// One label of some members of an origin.
pub(crate) fn gather(
    (origin, members): (&dyn Origin, &[u32]),
    name: &str,
    account: &Account<'_>,
) -> Result<HeldColumn, QueryError> {
    let (mut column, mut memory) = origin.label_column(name, account)?;
    grow(&mut memory, size_of_val(members))?;
    let of_member = |member: &u32| column.ids[*member as usize];
    column.ids = members.iter().map(of_member).collect();
    Ok((column, memory))
}

/// The labels of all rows of a frame.
pub(crate) enum FrameLabels {
    /// Label sets in memory.
    Made(Vec<RowLabels>),
    /// Members of an origin.
    Late(Arc<dyn Origin>, Vec<u32>),
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
    /// An empty list for labels of this one.
    pub(crate) fn like(&self) -> Self {
        match self {
            FrameLabels::Made(_) => FrameLabels::Made(Vec::new()),
            FrameLabels::Late(origin, _) => FrameLabels::Late(origin.clone(), Vec::new()),
        }
    }

    /// Adds the labels of a row of another list.
    pub(crate) fn push_of(&mut self, other: &FrameLabels, row: usize) {
        match (&mut *self, other) {
            (FrameLabels::Late(own, members), FrameLabels::Late(origin, all))
                if Arc::ptr_eq(own, origin) =>
            {
                members.push(all[row]);
            }
            _ => self.make().push(other.get(row)),
        }
    }

    /// Adds a label set in memory.
    pub(crate) fn push(&mut self, row_labels: RowLabels) {
        self.make().push(row_labels);
    }

    /// How many rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            FrameLabels::Made(made) => made.len(),
            FrameLabels::Late(_, members) => members.len(),
        }
    }

    /// The labels of a row; allocates if they are not made yet.
    pub(crate) fn get(&self, row: usize) -> RowLabels {
        match self {
            FrameLabels::Made(made) => made[row].clone(),
            FrameLabels::Late(origin, members) => RowLabels {
                labels: origin.labels(members[row] as usize),
                drops_name: origin.drops_name(members[row] as usize),
            },
        }
    }

    /// Whether the name goes at the end of the evaluation.
    pub(crate) fn drops_name(&self, row: usize) -> bool {
        match self {
            FrameLabels::Made(made) => made[row].drops_name,
            FrameLabels::Late(origin, members) => origin.drops_name(members[row] as usize),
        }
    }

    /// All label sets, in memory.
    fn make(&mut self) -> &mut Vec<RowLabels> {
        if let FrameLabels::Late(..) = self {
            *self = FrameLabels::Made((0..self.len()).map(|row| self.get(row)).collect());
        }
        match self {
            FrameLabels::Made(made) => made,
            FrameLabels::Late(..) => unreachable!("labels were made above"),
        }
    }

    /// Whether a look at a label goes through more than [`DEPTH_MAX`] origins.
    pub(crate) fn is_deep(&self) -> bool {
        match self {
            FrameLabels::Made(_) => false,
            FrameLabels::Late(origin, _) => origin.depth() > DEPTH_MAX,
        }
    }

    /// Like `make`, but reserves each label set in `memory` before it makes it.
    pub(crate) fn make_all(
        &mut self,
        account: &Account<'_>,
        memory: &mut Reservation,
    ) -> Result<&mut Vec<RowLabels>, QueryError> {
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
        Ok(self.make())
    }

    /// One label of all rows.
    pub(crate) fn label_column(
        &self,
        name: &str,
        account: &Account<'_>,
    ) -> Result<HeldColumn, QueryError> {
        match self {
            FrameLabels::Made(made) => column_of(made, name, account),
            FrameLabels::Late(origin, members) => gather((&**origin, members), name, account),
        }
    }

    /// Appends the labels of other rows.
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
            _ => self.make().append(other.make()),
        }
    }

    /// The rows as members of an origin.
    pub(crate) fn origin(&self) -> (Arc<dyn Origin>, Vec<u32>) {
        match self {
            FrameLabels::Made(made) => {
                let members = (0..made.len() as u32).collect();
                (Arc::new(Made(made.clone())), members)
            }
            FrameLabels::Late(origin, members) => (origin.clone(), members.clone()),
        }
    }

    /// The bytes of the list without its label sets, which all lists share.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            FrameLabels::Made(made) => size_of_val(&made[..]),
            FrameLabels::Late(_, members) => size_of_val(&members[..]),
        }
    }
}

/// Label sets that are in memory.
struct Made(Vec<RowLabels>);

impl Origin for Made {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn labels(&self, member: usize) -> Labels {
        self.0[member].labels.clone()
    }

    fn label_column(&self, name: &str, account: &Account<'_>) -> Result<HeldColumn, QueryError> {
        column_of(&self.0, name, account)
    }

    fn drops_name(&self, member: usize) -> bool {
        self.0[member].drops_name
    }
}

fn column_of(
    all: &[RowLabels],
    name: &str,
    account: &Account<'_>,
) -> Result<HeldColumn, QueryError> {
    // A number, in a map that may have room for twice as many.
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
