//! Series on their way to a consumer: a base that makes rows, and operations on each row.
//!
//! A consumer that needs one row at a time (an aggregation, `absent`) scans parts and nothing is
//! materialised; one that needs all rows asks for a [`Frame`].
//!
//! Two series may become one when they lose their names. Then the stream is made a frame, so that a
//! consumer may rely on series being distinct wherever upstream relies on it.

use crate::eval::account::{Account, grow};
use crate::eval::annotations::Annotations;
use crate::eval::kernels::elementwise::RowOp;
use crate::eval::kernels::leaf::{Each, Leaf, LeafKind};
use crate::eval::rows::frame::Frame;
use crate::eval::rows::label_sets::{is_metadata, without_metadata};
use crate::eval::rows::parts::{in_parts, series_per_part};
use crate::eval::rows::row::{ABSENT, RowBuffer, is_absent};
use crate::eval::rows::row_labels::{HeldColumn, Origin, Renamed, no_label};
use crate::eval::run::Run;
use crate::eval::tally::RowTally;
use crate::value::QueryError;
use firn_model::labels::Labels;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use std::sync::Arc;

/// What a frame keeps of a row beside its values, in lists that may have room for twice as many.
const ROW_BYTES: usize = 6 * size_of::<u32>();

/// What makes rows.
pub(crate) enum Base {
    /// Samples of a source.
    Leaf(Box<Leaf>),
    /// Rows in memory, which other streams may share.
    Frame(Arc<Frame>),
}

/// What happens to series that become equal by losing their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collision {
    /// They may not exist both.
    Refused,
    /// They may not have a value at the same step.
    Merged,
    /// They may not have a float, nor a histogram, at the same step, but one of each. The
    /// consumer must take whole rows, which may hold both.
    MergedByKind,
}

/// Series and what is done to their rows.
pub(crate) struct Stream {
    base: Base,
    ops: Vec<RowOp>,
    /// Set if names go here; not if they go at the end of the evaluation.
    strips_names: Option<Collision>,
    /// After how many operations they go.
    strips_after: usize,
    /// Whether names go at the end of the evaluation.
    drops_names: bool,
}

impl From<Frame> for Stream {
    fn from(frame: Frame) -> Self {
        Arc::new(frame).into()
    }
}

impl From<Arc<Frame>> for Stream {
    fn from(frame: Arc<Frame>) -> Self {
        Self {
            base: Base::Frame(frame),
            ops: Vec::new(),
            strips_names: None,
            strips_after: 0,
            drops_names: false,
        }
    }
}

impl Stream {
    /// The rows of a leaf. With `delayed` names go at the end of the evaluation.
    pub(crate) fn from_leaf(leaf: Leaf, delayed: bool) -> Self {
        let (strips, drops) = match &leaf.kind {
            LeafKind::Newest | LeafKind::Smoothed(_) => (None, false),
            LeafKind::Range(call) if call.keeps_name => (None, false),
            LeafKind::Range(_) => (Some(Collision::Refused), true),
            LeafKind::NewestTime | LeafKind::NewestStart => (Some(Collision::Merged), true),
        };
        Self {
            base: Base::Leaf(Box::new(leaf)),
            ops: Vec::new(),
            strips_names: strips.filter(|_| !delayed),
            strips_after: 0,
            drops_names: drops,
        }
    }

    /// Adds an operation on each row.
    pub(crate) fn then(mut self, op: RowOp, delayed: bool) -> Self {
        if op.drops_name() {
            self.drops_names = true;
            if !delayed && self.strips_names.is_none() {
                self.strips_names = Some(match op {
                    RowOp::Negate => Collision::MergedByKind,
                    _ => Collision::Merged,
                });
                self.strips_after = self.ops.len() + 1;
            }
        }
        self.ops.push(op);
        self
    }

    /// The same rows, each noted in `tally`: at once if they are in memory, else when they pass.
    pub(crate) fn counted(mut self, tally: Arc<RowTally>) -> Self {
        match &self.base {
            Base::Frame(frame) if self.ops.is_empty() => {
                (0..frame.len()).for_each(|series| tally.add(frame.row(series)));
            }
            _ => self.ops.push(RowOp::Count(tally)),
        }
        self
    }

    /// Counts no row any more: all have passed, and are looked at again.
    pub(crate) fn close_tallies(&self) {
        for op in &self.ops {
            if let RowOp::Count(tally) = op {
                tally.close();
            }
        }
        if let Base::Leaf(leaf) = &self.base
            && let Some(tally) = &leaf.tally
        {
            tally.close();
        }
    }

    /// Sets how many samples operators that go step by step see, after [`Stream::of_one_kind`].
    pub(crate) fn recount(&self, tally: &RowTally) {
        if let Base::Frame(frame) = &self.base {
            tally.recount((0..frame.len()).map(|series| frame.row(series)));
        }
    }

    /// Whether some row in memory has a float and a histogram at one step.
    pub(crate) fn holds_both(&self) -> bool {
        matches!(&self.base, Base::Frame(frame) if frame.holds_both())
    }

    /// How many series, those without a value included.
    pub(crate) fn len(&self) -> usize {
        match &self.base {
            Base::Leaf(leaf) => leaf.source.len(),
            Base::Frame(frame) => frame.len(),
        }
    }

    /// How many steps.
    pub(crate) fn steps(&self) -> usize {
        match &self.base {
            Base::Leaf(leaf) => leaf.grid.count,
            Base::Frame(frame) => frame.steps(),
        }
    }

    /// The labels of a series; may allocate.
    pub(crate) fn labels(&self, series: usize) -> Labels {
        let labels = match &self.base {
            Base::Leaf(leaf) => leaf.source.labels(series),
            Base::Frame(frame) => frame.labels(series),
        };
        match self.strips_names {
            Some(_) => without_metadata(labels.as_ref()),
            None => labels,
        }
    }

    /// One label of all series.
    pub(crate) fn label_column(
        &self,
        name: &str,
        account: &Account<'_>,
    ) -> Result<HeldColumn, QueryError> {
        if self.strips_names.is_some() && is_metadata(name) {
            return no_label(self.len(), account);
        }
        match &self.base {
            Base::Leaf(leaf) => leaf.source.label_column(name, account),
            Base::Frame(frame) => frame.label_column(name, account),
        }
    }

    /// Whether the series is to lose its name at the end of the evaluation.
    pub(crate) fn drops_name(&self, series: usize) -> bool {
        self.drops_names
            || match &self.base {
                Base::Leaf(leaf) => leaf.source.drops_name(series),
                Base::Frame(frame) => frame.drops_name(series),
            }
    }

    /// Hands the row of every series of `part` to `each`, in order.
    pub(crate) fn scan(
        &self,
        part: Range<usize>,
        account: &Account<'_>,
        notes: &mut Annotations,
        each: &mut Each<'_>,
    ) -> Result<(), QueryError> {
        let mut after_ops = |series: usize, row: &mut RowBuffer, notes: &mut Annotations| {
            for op in &self.ops {
                row.is_full = false;
                op.apply(row, notes)?;
            }
            each(series, row, notes)
        };
        match &self.base {
            Base::Leaf(leaf) if self.ops.is_empty() => leaf.scan(part, account, notes, each),
            Base::Leaf(leaf) => leaf.scan(part, account, notes, &mut after_ops),
            Base::Frame(frame) => {
                let mut row = RowBuffer::default();
                for series in part {
                    account.check()?;
                    row.copy_from(frame.row(series));
                    after_ops(series, &mut row, notes)?;
                }
                Ok(())
            }
        }
    }

    /// Makes sure that no two series are equal: streams go on, others become frames.
    pub(crate) fn with_distinct_series(self, run: &mut Run<'_>) -> Result<Self, QueryError> {
        let account = run.account;
        if self.is_certainly_distinct(account)? || self.has_distinct_labels(account)? {
            return Ok(self);
        }
        self.into_frame(run).map(Stream::from)
    }

    /// The stream without histograms that stand at or behind a step at which their row has a float
    /// too.
    pub(crate) fn of_one_kind(mut self, account: &Account<'_>) -> Result<Self, QueryError> {
        if let Base::Frame(frame) = &self.base
            && frame.holds_both()
        {
            let mut cut = frame.of_one_kind();
            cut.keep(account.reserve(cut.bytes())?);
            self.base = Base::Frame(Arc::new(cut));
        }
        Ok(self)
    }

    /// All rows. Series without a value are left out.
    pub(crate) fn into_frame(mut self, run: &mut Run<'_>) -> Result<Arc<Frame>, QueryError> {
        let account = run.account;
        if self.ops.is_empty()
            && let Base::Frame(frame) = self.base
        {
            return Ok(frame);
        }
        let is_distinct = self.is_certainly_distinct(account)?;
        let Some(collision) = self.strips_names.filter(|_| !is_distinct) else {
            return self.all_rows(run).map(Arc::new);
        };
        // Series collide where names go, whatever later operations leave of them.
        let later = self.ops.split_off(self.strips_after);
        let frame = merge_equal(self.all_rows(run)?, collision, account)?;
        let mut rest = Stream::from(frame);
        rest.ops = later;
        rest.drops_names = true;
        rest.into_frame(run)
    }

    fn all_rows(&self, run: &mut Run<'_>) -> Result<Frame, QueryError> {
        let account = run.account;
        let notes = &mut run.notes;
        let mut out = Frame::new(self.steps());
        let mut room = account.reserve(0)?;
        let (origin, members) = self.origin();
        let task = |part| self.materialise(part, (&origin, members.as_deref()), account);
        let merge = |(part, part_notes): (Frame, Annotations)| {
            // The parts' own reservations go with them; this is for what is free behind them.
            grow(&mut room, part.free_bytes())?;
            out.append(part);
            notes.merge(part_notes);
            Ok(())
        };
        let part_len = series_per_part(self.len(), self.steps());
        in_parts(run.ctx.compute, self.len(), part_len, task, merge)?;
        if let Base::Frame(input) = &self.base {
            account.release(input.samples());
        }
        out.keep(room);
        Ok(out)
    }

    /// Whose rows they are, and which member of it each series is if that is not its number.
    fn origin(&self) -> (Arc<dyn Origin>, Option<Vec<u32>>) {
        let (origin, members) = match &self.base {
            Base::Leaf(leaf) => (leaf.source.clone() as Arc<dyn Origin>, None),
            Base::Frame(frame) => {
                let (origin, members) = frame.all_labels().origin();
                (origin, Some(members))
            }
        };
        let strips = self.strips_names.is_some();
        if !strips && !self.drops_names {
            return (origin, members);
        }
        let renamed = Renamed {
            origin,
            strips,
            drops: self.drops_names,
        };
        (Arc::new(renamed), members)
    }

    fn materialise(
        &self,
        part: Range<usize>,
        (origin, members): (&Arc<dyn Origin>, Option<&[u32]>),
        account: &Account<'_>,
    ) -> Result<(Frame, Annotations), QueryError> {
        let row_bytes = self.steps() * size_of::<f64>() + ROW_BYTES;
        // At once for all rows, as the frame has room for all of them.
        let mut memory = account.reserve(part.len() * row_bytes)?;
        let mut frame = Frame::late(self.steps(), origin.clone(), part.len());
        let mut notes = Annotations::default();
        let mut samples = 0;
        let mut each = |series: usize, row: &mut RowBuffer, _: &mut Annotations| {
            let row = row.row();
            if row.is_empty() {
                return Ok(());
            }
            grow(&mut memory, row.histogram_bytes())?;
            samples += row.samples();
            let member = members.map_or(series, |members| members[series] as usize);
            frame.push_member(member, row);
            Ok(())
        };
        let room = part.len();
        self.scan(part, account, &mut notes, &mut each)?;
        account.hold(samples)?;
        memory.shrink_to(memory.bytes() - (room - frame.len()) * row_bytes);
        frame.keep(memory);
        Ok((frame, notes))
    }

    /// Whether series are distinct without looking at each.
    fn is_certainly_distinct(&self, account: &Account<'_>) -> Result<bool, QueryError> {
        if self.strips_names.is_none() {
            return Ok(true);
        }
        let Base::Leaf(leaf) = &self.base else {
            return Ok(self.len() <= 1);
        };
        let is_one = |name: &str| {
            let (column, _memory) = leaf.source.label_column(name, account)?;
            Ok::<_, QueryError>(column.values.len() <= 1)
        };
        let one_name = leaf.source.has_one_name() || is_one("__name__")?;
        Ok(one_name && is_one("__type__")? && is_one("__unit__")?)
    }

    fn has_distinct_labels(&self, account: &Account<'_>) -> Result<bool, QueryError> {
        // A set that grew has room for twice as many.
        const PLACE_BYTES: usize = 3 * size_of::<Labels>();
        let mut memory = account.reserve(self.len() * PLACE_BYTES)?;
        let mut seen = FxHashSet::default();
        for series in 0..self.len() {
            account.check()?;
            let labels = self.labels(series);
            grow(&mut memory, labels.as_bytes().len())?;
            if !seen.insert(labels) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The error of two series that are one.
pub(crate) fn same_labelset() -> QueryError {
    QueryError::Execution("vector cannot contain metrics with the same labelset".into())
}

/// Makes one series of those with equal labels.
pub(crate) fn merge_equal(
    frame: Frame,
    collision: Collision,
    account: &Account<'_>,
) -> Result<Frame, QueryError> {
    // An entry with a list of one, in a map that may have room for twice as many, and its place in
    // the order.
    const PLACE_BYTES: usize = 2 * size_of::<(&[u8], Vec<usize>)>() + 64;
    let mut places = account.reserve(frame.len() * PLACE_BYTES)?;
    let mut labels = Vec::with_capacity(frame.len());
    for series in 0..frame.len() {
        account.check()?;
        let of_series = frame.labels(series);
        grow(&mut places, of_series.as_bytes().len())?;
        labels.push(of_series);
    }
    let mut members: FxHashMap<&[u8], Vec<usize>> = FxHashMap::default();
    let mut order = Vec::new();
    for (series, labels) in labels.iter().enumerate() {
        account.check()?;
        let group = members.entry(labels.as_bytes()).or_default();
        if group.is_empty() {
            order.push(series);
        }
        group.push(series);
    }
    if order.len() == frame.len() {
        drop(members);
        return Ok(frame);
    }
    if collision == Collision::Refused {
        return Err(same_labelset());
    }
    let mut out = frame.like(frame.steps());
    // Both frames are in memory until the copy is made.
    let _copied = account.reserve(frame.bytes())?;
    let mut row = RowBuffer::default();
    for first in order {
        account.check()?;
        row.copy_from(frame.row(first));
        for other in &members[labels[first].as_bytes()][1..] {
            account.check()?;
            merge_rows(&mut row, &frame, *other, collision)?;
        }
        out.push_as(&frame, first, row.row());
    }
    drop(members);
    out.replace(frame.into(), account)?;
    Ok(out)
}

/// Adds the values of a series to a row that has none at those steps.
fn merge_rows(
    row: &mut RowBuffer,
    frame: &Frame,
    series: usize,
    collision: Collision,
) -> Result<(), QueryError> {
    let other = frame.row(series);
    for (step, value) in other.values.iter().enumerate() {
        let own = (
            !is_absent(row.values[step]),
            row.row().histogram(step).is_some(),
        );
        let more = (!is_absent(*value), other.histogram(step).is_some());
        let of_one_kind = (own.0 && more.0) || (own.1 && more.1);
        let of_two_kinds = (own.0 && more.1) || (own.1 && more.0);
        if of_one_kind || (of_two_kinds && collision != Collision::MergedByKind) {
            return Err(same_labelset());
        }
        if value.to_bits() != ABSENT.to_bits() {
            row.values[step] = *value;
        }
    }
    row.histograms.extend_from_slice(other.histograms);
    row.histograms.sort_by_key(|(step, _)| *step);
    Ok(())
}
