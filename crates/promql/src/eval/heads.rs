//! Whose rows a frame holds: label sets, or where they are to be made.
//!
//! Most label sets of a query are never looked at: of a join only the labels that it pairs by, of
//! an aggregation those it groups by, of `topk` those of what is chosen. So rows of samples carry
//! the number of their series, and label sets are made from the place that they come from when
//! somebody asks; single labels of all rows come as columns of numbers.

use crate::eval::account::{Account, grow};
use crate::eval::label_sets::{is_metadata, without_metadata};
use crate::value::QueryError;
use firn_model::budget::Reservation;
use firn_model::columns::{COLUMN_VALUE_BYTES, LabelColumn};
use firn_model::labels::Labels;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What a label set takes beside its bytes: lengths, counts, what the allocator adds.
pub(crate) const ALLOCATION_BYTES: usize = 32;

/// Whose values a row holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    /// The labels.
    pub(crate) labels: Labels,
    /// Whether the labels that name the metric go at the end of the evaluation.
    pub(crate) drops_name: bool,
}

/// Members whose labels can be asked for.
pub(crate) trait Origin: Send + Sync {
    /// How many members.
    fn len(&self) -> usize;

    /// The labels of a member; allocates.
    fn labels(&self, member: usize) -> Labels;

    /// One label of all members; what it takes is reserved in `memory` first.
    fn label_column(
        &self,
        name: &str,
        account: &Account<'_>,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, QueryError>;

    /// Whether the member is to lose its name at the end of the evaluation.
    fn drops_name(&self, member: usize) -> bool;

    /// How many origins are asked one through the other, this one included.
    fn height(&self) -> u32 {
        1
    }
}

/// Origins that are asked one through the other: what a chain of operators makes is made into
/// labels before each look goes through all of them.
const HEIGHT_MAX: u32 = 64;

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

    fn label_column(
        &self,
        name: &str,
        account: &Account<'_>,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, QueryError> {
        match self.strips && is_metadata(name) {
            true => no_label(self.len(), memory),
            false => self.origin.label_column(name, account, memory),
        }
    }

    fn drops_name(&self, member: usize) -> bool {
        self.drops || self.origin.drops_name(member)
    }

    fn height(&self) -> u32 {
        self.origin.height() + 1
    }
}

/// The column of a label that no member has.
pub(crate) fn no_label(
    members: usize,
    memory: &mut Reservation,
) -> Result<LabelColumn, QueryError> {
    grow(memory, members * size_of::<u32>() + COLUMN_VALUE_BYTES)?;
    Ok(LabelColumn {
        ids: vec![0; members],
        values: vec![[].into()],
    })
}

/// One label of some members of an origin.
pub(crate) fn gather(
    (origin, members): (&dyn Origin, &[u32]),
    name: &str,
    account: &Account<'_>,
    memory: &mut Reservation,
) -> Result<LabelColumn, QueryError> {
    let column = origin.label_column(name, account, memory)?;
    grow(memory, size_of_val(members))?;
    let of_member = |member: &u32| column.ids[*member as usize];
    Ok(LabelColumn {
        ids: members.iter().map(of_member).collect(),
        values: column.values,
    })
}

/// The heads of a frame, one a row.
pub(crate) enum Heads {
    /// All there.
    Made(Vec<Head>),
    /// Members of an origin.
    Late(Arc<dyn Origin>, Vec<u32>),
}

impl Default for Heads {
    fn default() -> Self {
        Heads::Made(Vec::new())
    }
}

impl Clone for Heads {
    fn clone(&self) -> Self {
        match self {
            Heads::Made(heads) => Heads::Made(heads.clone()),
            Heads::Late(origin, members) => Heads::Late(origin.clone(), members.clone()),
        }
    }
}

impl Heads {
    /// An empty list for heads of this one.
    pub(crate) fn like(&self) -> Self {
        match self {
            Heads::Made(_) => Heads::Made(Vec::new()),
            Heads::Late(origin, _) => Heads::Late(origin.clone(), Vec::new()),
        }
    }

    /// Adds a head of another list.
    pub(crate) fn push_of(&mut self, other: &Heads, row: usize) {
        match (&mut *self, other) {
            (Heads::Late(own, members), Heads::Late(origin, all)) if Arc::ptr_eq(own, origin) => {
                members.push(all[row]);
            }
            _ => self.make().push(other.get(row)),
        }
    }

    /// Adds a head that is made.
    pub(crate) fn push(&mut self, head: Head) {
        self.make().push(head);
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        match self {
            Heads::Made(heads) => heads.len(),
            Heads::Late(_, members) => members.len(),
        }
    }

    /// A head; allocates if it is not made yet.
    pub(crate) fn get(&self, row: usize) -> Head {
        match self {
            Heads::Made(heads) => heads[row].clone(),
            Heads::Late(origin, members) => Head {
                labels: origin.labels(members[row] as usize),
                drops_name: origin.drops_name(members[row] as usize),
            },
        }
    }

    /// Whether the name goes at the end of the evaluation.
    pub(crate) fn drops_name(&self, row: usize) -> bool {
        match self {
            Heads::Made(heads) => heads[row].drops_name,
            Heads::Late(origin, members) => origin.drops_name(members[row] as usize),
        }
    }

    /// All heads, made.
    fn make(&mut self) -> &mut Vec<Head> {
        if let Heads::Late(..) = self {
            *self = Heads::Made((0..self.len()).map(|row| self.get(row)).collect());
        }
        match self {
            Heads::Made(heads) => heads,
            Heads::Late(..) => unreachable!("heads were made above"),
        }
    }

    /// Whether to ask for a label goes through many origins.
    pub(crate) fn is_high(&self) -> bool {
        match self {
            Heads::Made(_) => false,
            Heads::Late(origin, _) => origin.height() > HEIGHT_MAX,
        }
    }

    /// The same; each is reserved in `memory` before it is made.
    pub(crate) fn make_all(
        &mut self,
        account: &Account<'_>,
        memory: &mut Reservation,
    ) -> Result<&mut Vec<Head>, QueryError> {
        if let Heads::Late(..) = self {
            grow(memory, self.len() * size_of::<Head>())?;
            let mut made = Vec::with_capacity(self.len());
            for row in 0..self.len() {
                account.check()?;
                let head = self.get(row);
                grow(memory, head.labels.as_bytes().len() + ALLOCATION_BYTES)?;
                made.push(head);
            }
            *self = Heads::Made(made);
        }
        Ok(self.make())
    }

    /// One label of all rows.
    pub(crate) fn label_column(
        &self,
        name: &str,
        account: &Account<'_>,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, QueryError> {
        match self {
            Heads::Made(heads) => column_of(heads, name, account, memory),
            Heads::Late(origin, members) => {
                gather((&**origin, &members[..]), name, account, memory)
            }
        }
    }

    /// Appends the heads of other rows.
    pub(crate) fn append(&mut self, mut other: Heads) {
        if self.len() == 0 {
            *self = other;
            return;
        }
        match (&mut *self, &mut other) {
            (Heads::Late(own, members), Heads::Late(origin, more)) if Arc::ptr_eq(own, origin) => {
                members.append(more);
            }
            _ => self.make().append(other.make()),
        }
    }

    /// The heads as members of an origin.
    pub(crate) fn origin(&self) -> (Arc<dyn Origin>, Vec<u32>) {
        match self {
            Heads::Made(heads) => {
                let members = (0..heads.len() as u32).collect();
                (Arc::new(Made(heads.clone())), members)
            }
            Heads::Late(origin, members) => (origin.clone(), members.clone()),
        }
    }

    /// What the list takes; label sets are there once for all lists.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Heads::Made(heads) => size_of_val(&heads[..]),
            Heads::Late(_, members) => size_of_val(&members[..]),
        }
    }
}

/// Heads that are there.
struct Made(Vec<Head>);

impl Origin for Made {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn labels(&self, member: usize) -> Labels {
        self.0[member].labels.clone()
    }

    fn label_column(
        &self,
        name: &str,
        account: &Account<'_>,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, QueryError> {
        column_of(&self.0, name, account, memory)
    }

    fn drops_name(&self, member: usize) -> bool {
        self.0[member].drops_name
    }
}

fn column_of(
    heads: &[Head],
    name: &str,
    account: &Account<'_>,
    memory: &mut Reservation,
) -> Result<LabelColumn, QueryError> {
    // A number, in a map that may have room for twice as many.
    const NUMBER_BYTES: usize = 2 * size_of::<(&[u8], u32)>();
    grow(memory, heads.len() * size_of::<u32>())?;
    let mut known: FxHashMap<&[u8], u32> = FxHashMap::default();
    let mut column = LabelColumn {
        ids: Vec::with_capacity(heads.len()),
        values: Vec::new(),
    };
    for head in heads {
        account.check()?;
        let value = head.labels.get(name);
        let next = column.values.len() as u32;
        let id = *known.entry(value).or_insert(next);
        if id == next {
            grow(memory, COLUMN_VALUE_BYTES + NUMBER_BYTES + value.len())?;
            column.values.push(value.into());
        }
        column.ids.push(id);
    }
    Ok(column)
}
