//! Values of many series at the same steps: one dense row of floats per series.
//!
//! ```text
//!            step 0  step 1  step 2
//! {a="1"}  |  3.0  |  3.5  |   -   |      "-" is ABSENT
//! {a="2"}  |   -   |   -   |  7.0  |      histograms are in a separate list
//! ```
//!
//! Invariants: the number of labels equals the number of rows, and no row is empty.

use crate::eval::account::QueryAccount;
use crate::eval::rows::row::{HistogramPoint, StepRow, StepRowBuffer};
use crate::eval::rows::row_labels::{FrameLabels, HeldColumn, LabelSource, RowLabels};
use crate::value::PromqlError;
use firn_model::budget::Reservation;
use firn_model::labels::Labels;
use std::sync::Arc;

/// Number of values copied between two checks of the cancel flag: one megabyte.
const COPIED_VALUES: usize = 1 << 17;

/// Rows of non-empty series. Their order is significant only for instant vectors.
#[derive(Default)]
pub(crate) struct SeriesFrame {
    steps: usize,
    row_labels: FrameLabels,
    /// The location of each row: the index of its chunk, and its index in the chunk.
    places: Vec<(u32, u32)>,
    /// The values of consecutive rows. Each chunk belonged to a frame that was appended to this
    /// one.
    chunks: Vec<Vec<f64>>,
    /// One list per series. Empty if there is no histogram at all.
    histograms: Vec<Vec<HistogramPoint>>,
    memory: Vec<Reservation>,
}

impl SeriesFrame {
    /// Creates a frame without series whose rows have `steps` steps.
    pub(crate) fn new(steps: usize) -> Self {
        Self {
            steps,
            ..Self::default()
        }
    }

    /// Creates a frame with a single series without labels.
    pub(crate) fn from_scalars(values: &[f64]) -> Self {
        let mut frame = Self::new(values.len());
        frame.push(
            RowLabels::from_labels(Labels::empty()),
            StepRow::from_floats(values),
        );
        frame
    }

    /// Creates a frame without series, with capacity for `rows` rows.
    pub(crate) fn with_capacity(steps: usize, rows: usize) -> Self {
        Self {
            steps,
            chunks: vec![Vec::with_capacity(rows * steps)],
            ..Self::default()
        }
    }

    /// Creates a frame without series whose rows will be members of `origin`, with capacity for
    /// `rows` rows. Add them with [`SeriesFrame::push_member`].
    pub(crate) fn with_label_source(
        steps: usize,
        origin: Arc<dyn LabelSource>,
        rows: usize,
    ) -> Self {
        Self {
            steps,
            row_labels: FrameLabels::Late(origin, Vec::with_capacity(rows)),
            chunks: vec![Vec::with_capacity(rows * steps)],
            ..Self::default()
        }
    }

    /// Creates a frame without series whose rows will have labels of this frame.
    pub(crate) fn new_like(&self, steps: usize) -> Self {
        Self {
            steps,
            row_labels: self.row_labels.new_like(),
            ..Self::default()
        }
    }

    /// Adds a reservation that is held until the frame is dropped.
    pub(crate) fn hold_reservation(&mut self, memory: Reservation) {
        self.memory.push(memory);
    }

    /// Takes over the memory of `input`, from which this frame was created and which is at least as
    /// large. If other owners hold `input`, reserves additional memory instead.
    pub(crate) fn take_memory_of(
        &mut self,
        input: Arc<SeriesFrame>,
        account: &QueryAccount<'_>,
    ) -> Result<(), PromqlError> {
        match Arc::try_unwrap(input) {
            Ok(mut input) => self.memory.append(&mut input.memory),
            Err(_) => self.memory.push(account.reserve(self.bytes())?),
        }
        Ok(())
    }

    /// Returns a copy of the rows with a memory reservation of its own.
    pub(crate) fn duplicate(&self, account: &QueryAccount<'_>) -> Result<SeriesFrame, PromqlError> {
        let memory = vec![account.reserve(self.bytes())?];
        let mut chunks = Vec::with_capacity(self.chunks.len());
        for chunk in &self.chunks {
            chunks.push(copy_values(chunk, account)?);
        }
        Ok(SeriesFrame {
            steps: self.steps,
            row_labels: self.row_labels.clone(),
            places: self.places.clone(),
            chunks,
            histograms: self.histograms.clone(),
            memory,
        })
    }

    /// Returns the bytes of the rows, without label sets and histograms, which all frames share.
    pub(crate) fn bytes(&self) -> usize {
        let points = self
            .histograms
            .iter()
            .map(|points| size_of_val(&points[..]));
        let values = self.len() * self.steps * size_of::<f64>();
        values + self.row_labels.bytes() + size_of_val(&self.places[..]) + points.sum::<usize>()
    }

    /// Adds a series with labels in memory. An empty row is ignored.
    pub(crate) fn push(&mut self, row_labels: RowLabels, row: StepRow<'_>) {
        if !row.is_empty() {
            self.row_labels.push(row_labels);
            self.push_row(row);
        }
    }

    /// Adds a series to a frame created by [`SeriesFrame::with_label_source`]. The row must not be
    /// empty.
    pub(crate) fn push_member(&mut self, member: usize, row: StepRow<'_>) {
        if let FrameLabels::Late(_, members) = &mut self.row_labels {
            members.push(member as u32);
            self.push_row(row);
        }
    }

    /// Adds a row with the labels of a series in another frame. An empty row is ignored.
    pub(crate) fn push_with_labels_of(
        &mut self,
        other: &SeriesFrame,
        series: usize,
        row: StepRow<'_>,
    ) {
        if row.is_empty() {
            return;
        }
        self.row_labels.push_from(&other.row_labels, series);
        self.push_row(row);
    }

    fn push_row(&mut self, row: StepRow<'_>) {
        let (width, steps) = (row.values.len(), self.steps);
        assert_eq!(width, steps, "values of a row, and steps of its frame");
        debug_assert!(
            row.histograms.is_sorted_by(|(a, _), (b, _)| a < b),
            "steps of histograms ascend: {:?}",
            row.histograms
                .iter()
                .map(|(step, _)| step)
                .collect::<Vec<_>>()
        );
        let last = row.histograms.last().map_or(0, |(step, _)| *step as usize);
        debug_assert!(last < steps.max(1), "histogram at step {last} of {steps}");
        if self.chunks.is_empty() {
            self.chunks.push(Vec::new());
        }
        let at = self.chunks.len() - 1;
        let chunk = &mut self.chunks[at];
        let first = chunk.len() / self.steps.max(1);
        chunk.extend_from_slice(row.values);
        self.places.push((at as u32, first as u32));
        if !row.histograms.is_empty() {
            self.histograms.resize(self.places.len() - 1, Vec::new());
        }
        if !self.histograms.is_empty() || !row.histograms.is_empty() {
            self.histograms.push(row.histograms.to_vec());
        }
    }

    /// Returns the number of bytes allocated for future rows.
    pub(crate) fn free_bytes(&self) -> usize {
        let free = self
            .chunks
            .iter()
            .map(|chunk| chunk.capacity() - chunk.len());
        free.sum::<usize>() * size_of::<f64>()
    }

    /// Appends the series of another frame. Panics if its number of steps differs.
    pub(crate) fn append(&mut self, mut other: SeriesFrame) {
        let (steps, more) = (self.steps, other.steps);
        let is_of_one_grid = other.places.is_empty() || more == steps;
        assert!(
            is_of_one_grid,
            "rows of {more} steps joined to rows of {steps}"
        );
        if !other.histograms.is_empty() || !self.histograms.is_empty() {
            self.histograms.resize(self.len(), Vec::new());
            other.histograms.resize(other.len(), Vec::new());
        }
        let chunks = self.chunks.len() as u32;
        let moved = other
            .places
            .iter()
            .map(|(chunk, row)| (chunk + chunks, *row));
        self.places.extend(moved);
        self.chunks.append(&mut other.chunks);
        self.row_labels.append(other.row_labels);
        let (labels, rows) = (self.row_labels.len(), self.places.len());
        assert_eq!(labels, rows, "label sets, and rows");
        self.histograms.append(&mut other.histograms);
        self.memory.append(&mut other.memory);
    }

    /// Returns the number of series, none of which is empty.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of steps in each row.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Returns the labels of a row. Allocates if they have not been created yet.
    pub(crate) fn row_labels(&self, series: usize) -> RowLabels {
        self.row_labels.get(series)
    }

    /// Returns the label set of a series. Allocates like [`SeriesFrame::row_labels`].
    pub(crate) fn labels(&self, series: usize) -> Labels {
        self.row_labels.get(series).labels
    }

    /// Returns whether the metric name of the series is removed at the end of the evaluation.
    pub(crate) fn drops_name(&self, series: usize) -> bool {
        self.row_labels.drops_name(series)
    }

    /// Returns the values of one label for all series.
    pub(crate) fn label_column(
        &self,
        name: &str,
        account: &QueryAccount<'_>,
    ) -> Result<HeldColumn, PromqlError> {
        self.row_labels.label_column(name, account)
    }

    /// Returns the labels of all rows, which may not have been created yet.
    pub(crate) fn all_labels(&self) -> &FrameLabels {
        &self.row_labels
    }

    /// Creates all label sets if reading a label would pass through too many origins.
    pub(crate) fn make_deep_labels(
        &mut self,
        account: &QueryAccount<'_>,
    ) -> Result<(), PromqlError> {
        if self.row_labels.is_deep() {
            let mut memory = account.reserve(0)?;
            self.row_labels.materialize_reserved(account, &mut memory)?;
            self.hold_reservation(memory);
        }
        Ok(())
    }

    /// Creates all label sets and returns them for modification. Memory of new label sets is
    /// reserved in `memory`.
    pub(crate) fn row_labels_mut(
        &mut self,
        account: &QueryAccount<'_>,
        memory: &mut Reservation,
    ) -> Result<&mut [RowLabels], PromqlError> {
        Ok(self.row_labels.materialize_reserved(account, memory)?)
    }

    /// Returns the row of a series as a view. Panics if the index is out of range.
    pub(crate) fn row(&self, series: usize) -> StepRow<'_> {
        let (chunk, row) = self.places[series];
        let start = row as usize * self.steps;
        StepRow {
            values: &self.chunks[chunk as usize][start..start + self.steps],
            histograms: self.histograms.get(series).map_or(&[], Vec::as_slice),
            is_full: false,
        }
    }

    /// Returns whether any series has a histogram at any step.
    pub(crate) fn has_histograms(&self) -> bool {
        self.histograms.iter().any(|points| !points.is_empty())
    }

    /// Returns whether any row has a float and a histogram at the same step.
    pub(crate) fn has_mixed_steps(&self) -> bool {
        self.has_histograms()
            && (0..self.len()).any(|series| self.row(series).first_mixed_histogram().is_some())
    }

    /// Returns a copy of the rows. In each row, the first histogram at a step with a float and all
    /// following histograms are removed.
    pub(crate) fn keep_one_kind(&self) -> SeriesFrame {
        let mut out = self.new_like(self.steps);
        for series in 0..self.len() {
            let row = self.row(series);
            let kept = row.first_mixed_histogram().unwrap_or(row.histograms.len());
            let histograms = &row.histograms[..kept];
            out.push_with_labels_of(self, series, StepRow { histograms, ..row });
        }
        out
    }

    /// Returns the number of samples that all rows count for.
    pub(crate) fn samples(&self) -> u64 {
        (0..self.len()).map(|i| self.row(i).count_samples()).sum()
    }

    /// Returns a frame with the given series in the given order.
    pub(crate) fn select(
        &self,
        order: impl IntoIterator<Item = usize>,
        account: &QueryAccount<'_>,
    ) -> Result<SeriesFrame, PromqlError> {
        let mut out = self.new_like(self.steps);
        for series in order {
            account.check()?;
            out.push_with_labels_of(self, series, self.row(series));
        }
        Ok(out)
    }

    /// Returns a copy of the series without their histograms.
    pub(crate) fn without_histograms(
        &self,
        account: &QueryAccount<'_>,
    ) -> Result<SeriesFrame, PromqlError> {
        let mut out = self.new_like(self.steps);
        for series in 0..self.len() {
            account.check()?;
            let row = StepRow {
                histograms: &[],
                ..self.row(series)
            };
            out.push_with_labels_of(self, series, row);
        }
        Ok(out)
    }

    /// Returns a copy in which the single step of this frame is repeated `steps` times.
    pub(crate) fn repeat(
        &self,
        steps: usize,
        account: &QueryAccount<'_>,
    ) -> Result<SeriesFrame, PromqlError> {
        let own = self.steps;
        assert!(own <= 1, "a value with {own} steps repeated at {steps}");
        let mut out = self.new_like(steps);
        let mut row = StepRowBuffer::default();
        for series in 0..self.len() {
            account.check()?;
            let one = self.row(series);
            row.reset(steps);
            if let Some(value) = one.values.first() {
                row.values.fill(*value);
            }
            if let Some((_, histogram)) = one.histograms.first() {
                let points = (0..steps as u32).map(|step| (step, histogram.clone()));
                row.histograms.extend(points);
            }
            out.push_with_labels_of(self, series, row.row());
        }
        Ok(out)
    }
}

/// Copies values in pieces and checks for cancellation between them.
fn copy_values(values: &[f64], account: &QueryAccount<'_>) -> Result<Vec<f64>, PromqlError> {
    let mut copy = Vec::with_capacity(values.len());
    for piece in values.chunks(COPIED_VALUES) {
        account.check()?;
        copy.extend_from_slice(piece);
    }
    Ok(copy)
}
