//! A stream: a base that produces rows, and a list of operations applied to each row.
//!
//! A consumer that needs one row at a time (an aggregation, `absent`) scans the stream in parts,
//! and nothing is materialized. A consumer that needs all rows converts the stream to a
//! [`SeriesFrame`].
//!
//! Two series may become equal when their metric names are removed. The stream is then converted to
//! a frame, so that consumers can rely on distinct series wherever Prometheus does.

mod merging;

pub(crate) use merging::{merge_equal, same_labelset_error};

use crate::eval::account::{QueryAccount, grow};
use crate::eval::annotations::QueryAnnotations;
use crate::eval::kernels::elementwise::RowOp;
use crate::eval::kernels::leaf::{Each, EvalLeaf, EvalLeafKind};
use crate::eval::meter::RowTimer;
use crate::eval::rows::frame::SeriesFrame;
use crate::eval::rows::label_sets::{is_metadata, without_metadata};
use crate::eval::rows::parts::{run_in_parts, series_per_part};
use crate::eval::rows::row::StepRowBuffer;
use crate::eval::rows::row_labels::{HeldColumn, LabelSource, NamelessLabelSource, empty_column};
use crate::eval::run::EvalContext;
use crate::eval::tally::{RecordedRows, RowTally};
use crate::value::PromqlError;
use firn_model::labels::Labels;
use rustc_hash::FxHashSet;
use std::ops::Range;
use std::sync::Arc;

/// Memory of a row in a frame in bytes, in addition to its values, in lists with capacity for twice
/// as many.
const ROW_BYTES: usize = 6 * size_of::<u32>();

/// The producer of a stream's rows: samples or rows in memory.
pub(crate) enum StreamBase {
    /// Samples of a source, which are converted to rows on demand.
    Leaf(Box<EvalLeaf>),
    /// Rows in memory, which may be shared with other streams.
    Frame(Arc<SeriesFrame>),
}

/// The rule for series that become equal when their metric names are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameCollisionRule {
    /// It is an error if two series are equal.
    Refused,
    /// Equal series are merged. It is an error if they have values at the same step.
    Merged,
    /// Equal series are merged. It is an error if they have two floats or two histograms at the
    /// same step, but one of each is allowed. The consumer must accept rows that contain both.
    MergedByKind,
}

/// A set of series, and the operations on their rows.
pub(crate) struct SeriesStream {
    base: StreamBase,
    ops: Vec<RowOp>,
    /// Set if metric names are removed by an operation of the stream, and not only at the end of
    /// the evaluation.
    strips_names: Option<NameCollisionRule>,
    /// Number of operations before the metric names are removed.
    strips_after: usize,
    /// True if metric names are removed at the end of the evaluation.
    drops_names: bool,
}

impl From<SeriesFrame> for SeriesStream {
    fn from(frame: SeriesFrame) -> Self {
        Arc::new(frame).into()
    }
}

impl From<Arc<SeriesFrame>> for SeriesStream {
    fn from(frame: Arc<SeriesFrame>) -> Self {
        Self {
            base: StreamBase::Frame(frame),
            ops: Vec::new(),
            strips_names: None,
            strips_after: 0,
            drops_names: false,
        }
    }
}

impl SeriesStream {
    /// Creates a stream from a leaf. If `delayed` is set, metric names are removed at the end of
    /// the evaluation.
    pub(crate) fn from_leaf(leaf: EvalLeaf, delayed: bool) -> Self {
        let (strips, drops) = match &leaf.kind {
            EvalLeafKind::Newest | EvalLeafKind::Smoothed(_) => (None, false),
            EvalLeafKind::Range(call) if call.keeps_name => (None, false),
            EvalLeafKind::Range(_) => (Some(NameCollisionRule::Refused), true),
            EvalLeafKind::NewestTime | EvalLeafKind::NewestStart => {
                (Some(NameCollisionRule::Merged), true)
            }
        };
        Self {
            base: StreamBase::Leaf(Box::new(leaf)),
            ops: Vec::new(),
            strips_names: strips.filter(|_| !delayed),
            strips_after: 0,
            drops_names: drops,
        }
    }

    /// Adds an operation that is applied to each row.
    pub(crate) fn add_operation(mut self, op: RowOp, delayed: bool) -> Self {
        if op.drops_name() {
            self.drops_names = true;
            if !delayed && self.strips_names.is_none() {
                self.strips_names = Some(match op {
                    RowOp::Negate => NameCollisionRule::MergedByKind,
                    _ => NameCollisionRule::Merged,
                });
                self.strips_after = self.ops.len() + 1;
            }
        }
        self.ops.push(op);
        self
    }

    /// Records all rows in `tally`: immediately if they are in memory, otherwise when they are
    /// produced.
    pub(crate) fn with_tally(mut self, tally: Arc<RowTally>) -> Self {
        match &self.base {
            StreamBase::Frame(frame) if self.ops.is_empty() => {
                let mut rows = RecordedRows::empty(frame.steps());
                (0..frame.len()).for_each(|series| rows.add(frame.row(series)));
                tally.add(&rows);
            }
            _ => self.ops.push(RowOp::Count(tally)),
        }
        self
    }

    /// Stops recording rows, because all rows have been recorded and will be read again.
    pub(crate) fn close_tallies(&self) {
        self.tallies().for_each(RowTally::close);
        if let StreamBase::Leaf(leaf) = &self.base
            && let Some(tally) = &leaf.tally
        {
            tally.close();
        }
    }

    /// Records the number of samples that operators use when they iterate over steps, after
    /// [`SeriesStream::keep_one_kind`].
    pub(crate) fn recount(&self, tally: &RowTally) {
        if let StreamBase::Frame(frame) = &self.base {
            tally.recount((0..frame.len()).map(|series| frame.row(series)));
        }
    }

    /// Returns whether any row in memory has a float and a histogram at the same step.
    pub(crate) fn has_mixed_steps(&self) -> bool {
        matches!(&self.base, StreamBase::Frame(frame) if frame.has_mixed_steps())
    }

    /// Returns the number of series, including those without a value.
    pub(crate) fn len(&self) -> usize {
        match &self.base {
            StreamBase::Leaf(leaf) => leaf.source.len(),
            StreamBase::Frame(frame) => frame.len(),
        }
    }

    /// Returns the number of steps of each row.
    pub(crate) fn steps(&self) -> usize {
        match &self.base {
            StreamBase::Leaf(leaf) => leaf.grid.count,
            StreamBase::Frame(frame) => frame.steps(),
        }
    }

    /// Returns the labels of a series, without the metric name if an operation removed it. May
    /// allocate.
    pub(crate) fn labels(&self, series: usize) -> Labels {
        let labels = match &self.base {
            StreamBase::Leaf(leaf) => leaf.source.labels(series),
            StreamBase::Frame(frame) => frame.labels(series),
        };
        match self.strips_names {
            Some(_) => without_metadata(labels.as_ref()),
            None => labels,
        }
    }

    /// Returns the values of one label for all series.
    pub(crate) fn label_column(
        &self,
        name: &str,
        account: &QueryAccount<'_>,
    ) -> Result<HeldColumn, PromqlError> {
        if self.strips_names.is_some() && is_metadata(name) {
            return empty_column(self.len(), account);
        }
        match &self.base {
            StreamBase::Leaf(leaf) => leaf.source.label_column(name, account),
            StreamBase::Frame(frame) => frame.label_column(name, account),
        }
    }

    /// Returns whether the metric name of the series is removed at the end of the evaluation.
    pub(crate) fn drops_name(&self, series: usize) -> bool {
        self.drops_names
            || match &self.base {
                StreamBase::Leaf(leaf) => leaf.source.drops_name(series),
                StreamBase::Frame(frame) => frame.drops_name(series),
            }
    }

    /// Computes the rows of all series of `part` and passes them to `each`, in order.
    pub(crate) fn scan(
        &self,
        part: Range<usize>,
        account: &QueryAccount<'_>,
        notes: &mut QueryAnnotations,
        each: &mut Each<'_>,
    ) -> Result<(), PromqlError> {
        if let StreamBase::Leaf(leaf) = &self.base
            && self.ops.is_empty()
        {
            return leaf.scan(part, account, notes, each);
        }
        let tallies: Vec<&RowTally> = self.tallies().collect();
        if tallies.is_empty() {
            return self.scan_base(part, account, notes, &mut |series, row, notes| {
                for op in &self.ops {
                    row.is_full = false;
                    op.apply(row, notes)?;
                }
                each(series, row, notes)
            });
        }
        self.scan_recorded(&tallies, part, account, notes, each)
    }

    /// Scans a stream like [`SeriesStream::scan`], records the rows of its nodes in `tallies` and
    /// measures their time if the query has a meter.
    fn scan_recorded(
        &self,
        tallies: &[&RowTally],
        part: Range<usize>,
        account: &QueryAccount<'_>,
        notes: &mut QueryAnnotations,
        each: &mut Each<'_>,
    ) -> Result<(), PromqlError> {
        let record_bytes = self.steps().saturating_mul(RecordedRows::STEP_BYTES);
        let _records = account.reserve(record_bytes.saturating_mul(tallies.len()))?;
        let mut records: Vec<RecordedRows> = (tallies.iter())
            .map(|_| RecordedRows::empty(self.steps()))
            .collect();
        let mut timer = account.meter().map(|meter| {
            let places = tallies.iter().map(|tally| meter.place_at(tally.node));
            RowTimer::begin(meter, places.collect())
        });
        let outcome = self.scan_base(part, account, notes, &mut |series, row, notes| {
            if let Some(timer) = &mut timer {
                timer.begin_row();
            }
            let mut node = 0;
            for op in &self.ops {
                if let RowOp::Count(_) = op {
                    records[node].add(row.row());
                    if let Some(timer) = &mut timer {
                        timer.end_node(node);
                    }
                    node += 1;
                } else {
                    row.is_full = false;
                    op.apply(row, notes)?;
                }
            }
            each(series, row, notes)?;
            if let Some(timer) = &mut timer {
                timer.end_row();
            }
            Ok(())
        });
        for (tally, record) in tallies.iter().zip(&records) {
            tally.add(record);
        }
        if let Some(timer) = timer {
            timer.finish();
        }
        outcome
    }

    /// Returns the tallies of the nodes whose operations the rows pass through, in their order.
    fn tallies(&self) -> impl Iterator<Item = &RowTally> {
        self.ops.iter().filter_map(|op| match op {
            RowOp::Count(tally) => Some(&**tally),
            _ => None,
        })
    }

    /// Produces the rows of `part` without the operations of the stream.
    fn scan_base(
        &self,
        part: Range<usize>,
        account: &QueryAccount<'_>,
        notes: &mut QueryAnnotations,
        each: &mut Each<'_>,
    ) -> Result<(), PromqlError> {
        match &self.base {
            StreamBase::Leaf(leaf) => leaf.scan(part, account, notes, each),
            StreamBase::Frame(frame) => {
                let mut row = StepRowBuffer::default();
                for series in part {
                    account.check()?;
                    row.copy_from(frame.row(series));
                    each(series, &mut row, notes)?;
                }
                Ok(())
            }
        }
    }

    /// Ensures that no two series are equal. Converts the stream to a frame if they might be.
    pub(crate) fn with_distinct_series(
        self,
        run: &mut EvalContext<'_>,
    ) -> Result<Self, PromqlError> {
        let account = run.account;
        if self.is_certainly_distinct(account)? || self.has_distinct_labels(account)? {
            return Ok(self);
        }
        self.into_frame(run).map(SeriesStream::from)
    }

    /// Removes the histograms that are at or after a step at which their row also has a float.
    pub(crate) fn keep_one_kind(mut self, account: &QueryAccount<'_>) -> Result<Self, PromqlError> {
        if let StreamBase::Frame(frame) = &self.base
            && frame.has_mixed_steps()
        {
            let mut cut = frame.keep_one_kind();
            cut.hold_reservation(account.reserve(cut.bytes())?);
            self.base = StreamBase::Frame(Arc::new(cut));
        }
        Ok(self)
    }

    /// Computes all rows. Series without a value are dropped.
    pub(crate) fn into_frame(
        mut self,
        run: &mut EvalContext<'_>,
    ) -> Result<Arc<SeriesFrame>, PromqlError> {
        let account = run.account;
        if self.ops.is_empty()
            && let StreamBase::Frame(frame) = self.base
        {
            return Ok(frame);
        }
        let is_distinct = self.is_certainly_distinct(account)?;
        let Some(collision) = self.strips_names.filter(|_| !is_distinct) else {
            return self.collect_rows(run).map(Arc::new);
        };
        // Series are merged where their metric names are removed, regardless of the later
        // operations.
        let later = self.ops.split_off(self.strips_after);
        let frame = merge_equal(self.collect_rows(run)?, collision, account)?;
        let mut rest = SeriesStream::from(frame);
        rest.ops = later;
        rest.drops_names = true;
        rest.into_frame(run)
    }

    fn collect_rows(&self, run: &mut EvalContext<'_>) -> Result<SeriesFrame, PromqlError> {
        let account = run.account;
        let notes = &mut run.notes;
        let mut out = SeriesFrame::new(self.steps());
        let mut room = account.reserve(0)?;
        let (origin, members) = self.label_source();
        let task = |part| self.materialise(part, &origin, members.as_deref(), account);
        let merge = |(part, part_notes): (SeriesFrame, QueryAnnotations)| {
            // The reservations of the parts are moved to the frame. This one is for the unused
            // capacity.
            grow(&mut room, part.free_bytes())?;
            out.append(part);
            notes.merge(part_notes);
            Ok(())
        };
        let part_len = series_per_part(self.len(), self.steps());
        run_in_parts(run.ctx.compute, self.len(), part_len, task, merge)?;
        if let StreamBase::Frame(input) = &self.base {
            account.release(input.samples());
        }
        out.hold_reservation(room);
        Ok(out)
    }

    /// Returns the origin of the labels, and the member index of each series if it differs from the
    /// index of the series.
    fn label_source(&self) -> (Arc<dyn LabelSource>, Option<Vec<u32>>) {
        let (origin, members) = match &self.base {
            StreamBase::Leaf(leaf) => (leaf.source.clone() as Arc<dyn LabelSource>, None),
            StreamBase::Frame(frame) => {
                let (origin, members) = frame.all_labels().to_label_source();
                (origin, Some(members))
            }
        };
        let strips = self.strips_names.is_some();
        if !strips && !self.drops_names {
            return (origin, members);
        }
        let renamed = NamelessLabelSource {
            origin,
            strips,
            drops: self.drops_names,
        };
        (Arc::new(renamed), members)
    }

    fn materialise(
        &self,
        part: Range<usize>,
        origin: &Arc<dyn LabelSource>,
        members: Option<&[u32]>,
        account: &QueryAccount<'_>,
    ) -> Result<(SeriesFrame, QueryAnnotations), PromqlError> {
        let row_bytes = self.steps() * size_of::<f64>() + ROW_BYTES;
        // Reserved for all rows at once, because the frame has capacity for all of them.
        let mut memory = account.reserve(part.len() * row_bytes)?;
        let mut frame = SeriesFrame::with_label_source(self.steps(), origin.clone(), part.len());
        let mut notes = QueryAnnotations::default();
        let mut samples = 0;
        let mut each = |series: usize, row: &mut StepRowBuffer, _: &mut QueryAnnotations| {
            let row = row.row();
            if row.is_empty() {
                return Ok(());
            }
            grow(&mut memory, row.histogram_bytes())?;
            samples += row.count_samples();
            let member = members.map_or(series, |members| members[series] as usize);
            debug_assert!(member < origin.len(), "member {member} of {}", origin.len());
            frame.push_member(member, row);
            Ok(())
        };
        let room = part.len();
        self.scan(part, account, &mut notes, &mut each)?;
        let rows = frame.len();
        assert!(rows <= room, "{rows} rows of {room} series");
        account.hold_samples(samples)?;
        memory.shrink_to(memory.bytes() - (room - frame.len()) * row_bytes);
        frame.hold_reservation(memory);
        Ok((frame, notes))
    }

    /// Returns whether all series are distinct, without comparing their labels.
    fn is_certainly_distinct(&self, account: &QueryAccount<'_>) -> Result<bool, PromqlError> {
        if self.strips_names.is_none() {
            return Ok(true);
        }
        let StreamBase::Leaf(leaf) = &self.base else {
            return Ok(self.len() <= 1);
        };
        let is_one = |name: &str| {
            let (column, _memory) = leaf.source.label_column(name, account)?;
            Ok::<_, PromqlError>(column.values.len() <= 1)
        };
        let one_name = leaf.source.has_one_name() || is_one("__name__")?;
        Ok(one_name && is_one("__type__")? && is_one("__unit__")?)
    }

    fn has_distinct_labels(&self, account: &QueryAccount<'_>) -> Result<bool, PromqlError> {
        // A set that has grown may have capacity for twice as many.
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
