//! Values of many series over the same steps: one dense row of floats a series.
//!
//! ```text
//!            step 0  step 1  step 2
//! {a="1"}  |  3.0  |  3.5  |   -   |      "-" is ABSENT
//! {a="2"}  |   -   |   -   |  7.0  |      histograms stand in a side list
//! ```
//!
//! Invariants: a place without a float holds [`ABSENT`], which no operator produces as a value
//! (selectors drop staleness markers, and arithmetic makes quiet NaNs); a place that has a
//! histogram has no float, but for rows that [`Frame::holds_both`] tells of. So a function of
//! floats passes over histograms by itself. In a [`Frame`] no row is empty.

use crate::eval::account::Account;
use crate::eval::heads::{Head, Heads, Origin};
use crate::eval::kinds::Operand;
use crate::value::QueryError;
use firn_model::budget::Reservation;
use firn_model::columns::LabelColumn;
use firn_model::histogram::{Counts, Histogram};
use firn_model::labels::Labels;
use firn_model::sample::{STALE_NAN_BITS, is_stale};
use multiversion::multiversion;
use std::sync::Arc;

/// Values that are copied between two looks at the cancel flag: a megabyte of them.
const COPIED_VALUES: usize = 1 << 17;

/// Marks a step without a float.
pub(crate) const ABSENT: f64 = f64::from_bits(STALE_NAN_BITS);

/// Whether there is no float.
#[inline(always)]
pub(crate) fn is_absent(value: f64) -> bool {
    is_stale(value)
}

/// How many places are without a float.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(crate) fn count_absent(values: &[f64]) -> usize {
    count_absent_plainly(values)
}

#[inline(always)]
fn count_absent_plainly(values: &[f64]) -> usize {
    let absent = values.iter().map(|v| u64::from(is_absent(*v)));
    absent.sum::<u64>() as usize
}

/// Whether all values are the positive zero.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
pub(crate) fn is_zero(values: &[f64]) -> bool {
    is_zero_plainly(values)
}

#[inline(always)]
pub(crate) fn is_zero_plainly(values: &[f64]) -> bool {
    let ends = values.first().map_or(0, |v| v.to_bits()) | values.last().map_or(0, |v| v.to_bits());
    ends == 0 && values.iter().fold(0, |bits, v| bits | v.to_bits()) == 0
}

/// A histogram and the step it belongs to.
pub(crate) type HistogramPoint = (u32, Arc<Histogram>);

/// What is known of the floats of a row without a look at them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing.
    #[default]
    Nothing,
    /// Every step has one.
    Full,
    /// Every step has the positive zero.
    Zeros,
}

/// The steps of one series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// One float a step, or [`ABSENT`].
    pub(crate) values: &'a [f64],
    /// Histograms, in step order.
    pub(crate) histograms: &'a [HistogramPoint],
    /// What is known of the floats.
    pub(crate) known: Known,
}

impl<'a> Row<'a> {
    /// A row without histograms.
    pub(crate) fn of_floats(values: &'a [f64]) -> Self {
        Self {
            values,
            histograms: &[],
            known: Known::Nothing,
        }
    }

    /// Whether no step has a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.histograms.is_empty() && !self.has_floats()
    }

    /// Whether some step has a float.
    pub(crate) fn has_floats(&self) -> bool {
        self.values.iter().any(|v| !is_absent(*v))
    }

    /// How many steps have a float.
    pub(crate) fn floats(&self) -> usize {
        match self.known {
            Known::Nothing => self.values.len() - count_absent(self.values),
            Known::Full | Known::Zeros => self.values.len(),
        }
    }

    /// The first histogram that stands at a step with a float.
    fn first_beside_float(&self) -> Option<usize> {
        let mut steps = self.histograms.iter().map(|(step, _)| *step as usize);
        steps.position(|step| !is_absent(self.values[step]))
    }

    /// How many samples the row counts for.
    pub(crate) fn samples(&self) -> u64 {
        self.floats() as u64
            + self
                .histograms
                .iter()
                .map(|(_, h)| samples_of(h))
                .sum::<u64>()
    }

    /// The bytes of its histograms.
    pub(crate) fn histogram_bytes(&self) -> usize {
        histogram_bytes(self.histograms)
    }

    /// What stands at a step.
    pub(crate) fn operand(&self, step: usize) -> Option<Operand<'_>> {
        match self.histogram(step) {
            Some(histogram) => Some(Operand::Histogram(histogram)),
            None => (!is_absent(self.values[step])).then_some(Operand::Float(self.values[step])),
        }
    }

    /// The histogram at a step.
    pub(crate) fn histogram(&self, step: usize) -> Option<&Arc<Histogram>> {
        let at = self
            .histograms
            .binary_search_by_key(&step, |(s, _)| *s as usize);
        at.ok().map(|i| &self.histograms[i].1)
    }
}

/// The bytes of histograms, those of their buckets included.
pub(crate) fn histogram_bytes<T>(points: &[(T, Arc<Histogram>)]) -> usize {
    const SAMPLE_BYTES: usize = 16;
    let samples: u64 = points.iter().map(|(_, h)| samples_of(h)).sum();
    samples as usize * SAMPLE_BYTES + size_of_val(points)
}

/// How many samples a histogram counts for: one for each sixteen bytes of upstream's form.
pub(crate) fn samples_of(histogram: &Histogram) -> u64 {
    const FIXED_BYTES: usize = 168;
    let buckets = match &histogram.counts {
        Counts::Integer {
            positive, negative, ..
        } => positive.len() + negative.len(),
        Counts::Float {
            positive, negative, ..
        } => positive.len() + negative.len(),
    };
    let spans = histogram.positive_spans.len() + histogram.negative_spans.len();
    let bytes = FIXED_BYTES + 8 * (buckets + spans + histogram.custom_values.len());
    (bytes as u64 + 8) / 16
}

/// A row that is being worked on.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowBuffer {
    /// As in [`Row`].
    pub(crate) values: Vec<f64>,
    /// As in [`Row`].
    pub(crate) histograms: Vec<HistogramPoint>,
    /// As in [`Row`]. Whoever knows it says so last: any change of the values may end it.
    pub(crate) known: Known,
}

impl RowBuffer {
    /// Empties the row and gives it `steps` steps.
    pub(crate) fn reset(&mut self, steps: usize) {
        self.begin(steps);
        self.values.fill(ABSENT);
    }

    /// The same for who then writes every step: until then values are anything.
    pub(crate) fn begin(&mut self, steps: usize) {
        self.values.truncate(steps);
        self.values.resize(steps, ABSENT);
        self.histograms.clear();
        self.known = Known::Nothing;
    }

    /// Makes it equal to `row`.
    pub(crate) fn copy_from(&mut self, row: Row<'_>) {
        self.values.clear();
        self.values.extend_from_slice(row.values);
        self.histograms.clear();
        self.histograms.extend_from_slice(row.histograms);
        self.known = row.known;
    }

    /// A look at it.
    pub(crate) fn row(&self) -> Row<'_> {
        Row {
            values: &self.values,
            histograms: &self.histograms,
            known: self.known,
        }
    }
}

/// Rows of non-empty series, in an order that means something only for instant vectors.
#[derive(Default)]
pub(crate) struct Frame {
    steps: usize,
    heads: Heads,
    /// Where the values of each row begin: in which chunk, and at which of its rows.
    places: Vec<(u32, u32)>,
    /// Values of consecutive rows; the chunks of the frames that this one was put together of.
    chunks: Vec<Vec<f64>>,
    /// One list a series, or none at all while there is no histogram.
    histograms: Vec<Vec<HistogramPoint>>,
    memory: Vec<Reservation>,
}

impl Frame {
    /// A frame without series.
    pub(crate) fn new(steps: usize) -> Self {
        Self {
            steps,
            ..Self::default()
        }
    }

    /// A frame without series, with room for so many rows.
    pub(crate) fn with_room(steps: usize, rows: usize) -> Self {
        Self {
            steps,
            chunks: vec![Vec::with_capacity(rows * steps)],
            ..Self::default()
        }
    }

    /// A frame without series whose rows will be those of members of `origin`, `rows` at most.
    pub(crate) fn late(steps: usize, origin: Arc<dyn Origin>, rows: usize) -> Self {
        Self {
            steps,
            heads: Heads::Late(origin, Vec::with_capacity(rows)),
            chunks: vec![Vec::with_capacity(rows * steps)],
            ..Self::default()
        }
    }

    /// A frame without series whose rows will have heads of this one.
    pub(crate) fn like(&self, steps: usize) -> Self {
        Self {
            steps,
            heads: self.heads.like(),
            ..Self::default()
        }
    }

    /// Lets the frame hold on to memory that was reserved for it.
    pub(crate) fn keep(&mut self, memory: Reservation) {
        self.memory.push(memory);
    }

    /// Takes over the memory of the frame that this one was made of, and is no larger than. While
    /// others hold that one, memory of its own is reserved.
    pub(crate) fn replace(
        &mut self,
        input: Arc<Frame>,
        account: &Account<'_>,
    ) -> Result<(), QueryError> {
        match Arc::try_unwrap(input) {
            Ok(mut input) => self.memory.append(&mut input.memory),
            Err(_) => self.memory.push(account.reserve(self.bytes())?),
        }
        Ok(())
    }

    /// The same rows with memory of their own.
    pub(crate) fn duplicate(&self, account: &Account<'_>) -> Result<Frame, QueryError> {
        let memory = vec![account.reserve(self.bytes())?];
        let mut chunks = Vec::with_capacity(self.chunks.len());
        for chunk in &self.chunks {
            chunks.push(copy_of(chunk, account)?);
        }
        Ok(Frame {
            steps: self.steps,
            heads: self.heads.clone(),
            places: self.places.clone(),
            chunks,
            histograms: self.histograms.clone(),
            memory,
        })
    }

    /// What the rows take; label sets and histograms are there once for all frames.
    pub(crate) fn bytes(&self) -> usize {
        let points = self
            .histograms
            .iter()
            .map(|points| size_of_val(&points[..]));
        let values = self.len() * self.steps * size_of::<f64>();
        values + self.heads.bytes() + size_of_val(&self.places[..]) + points.sum::<usize>()
    }

    /// Adds a series; an empty row is left out.
    pub(crate) fn push(&mut self, head: Head, row: Row<'_>) {
        if !row.is_empty() {
            self.heads.push(head);
            self.push_row(row);
        }
    }

    /// Adds a series of a frame made by [`Frame::late`] whose row is not empty.
    pub(crate) fn push_member(&mut self, member: usize, row: Row<'_>) {
        if let Heads::Late(_, members) = &mut self.heads {
            members.push(member as u32);
            self.push_row(row);
        }
    }

    /// Adds a row with the head of a series of another frame, if it is not empty.
    pub(crate) fn push_as(&mut self, other: &Frame, series: usize, row: Row<'_>) {
        if row.is_empty() {
            return;
        }
        self.heads.push_of(&other.heads, series);
        self.push_row(row);
    }

    fn push_row(&mut self, row: Row<'_>) {
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

    /// Bytes that are allocated for rows to come.
    pub(crate) fn free_bytes(&self) -> usize {
        let free = self
            .chunks
            .iter()
            .map(|chunk| chunk.capacity() - chunk.len());
        free.sum::<usize>() * size_of::<f64>()
    }

    /// Appends the series of another frame of as many steps.
    pub(crate) fn append(&mut self, mut other: Frame) {
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
        self.heads.append(other.heads);
        self.histograms.append(&mut other.histograms);
        self.memory.append(&mut other.memory);
    }

    /// How many series.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many steps.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// Whose row it is; allocates if that is not worked out yet.
    pub(crate) fn head(&self, series: usize) -> Head {
        self.heads.get(series)
    }

    /// The labels of a series; as [`Frame::head`].
    pub(crate) fn labels(&self, series: usize) -> Labels {
        self.heads.get(series).labels
    }

    /// Whether the series is to lose its name at the end of the evaluation.
    pub(crate) fn drops_name(&self, series: usize) -> bool {
        self.heads.drops_name(series)
    }

    /// One label of all series.
    pub(crate) fn label_column(
        &self,
        name: &str,
        account: &Account<'_>,
        memory: &mut Reservation,
    ) -> Result<LabelColumn, QueryError> {
        self.heads.label_column(name, account, memory)
    }

    /// Whose rows they are.
    pub(crate) fn heads(&self) -> &Heads {
        &self.heads
    }

    /// Makes the heads if to ask for a label goes through what many operators did.
    pub(crate) fn make_high_heads(&mut self, account: &Account<'_>) -> Result<(), QueryError> {
        if self.heads.is_high() {
            let mut memory = account.reserve(0)?;
            self.heads.make_all(account, &mut memory)?;
            self.keep(memory);
        }
        Ok(())
    }

    /// All heads, made, to be changed; those that are new are reserved in `memory`.
    pub(crate) fn heads_mut(
        &mut self,
        account: &Account<'_>,
        memory: &mut Reservation,
    ) -> Result<&mut [Head], QueryError> {
        Ok(self.heads.make_all(account, memory)?)
    }

    /// The row of a series.
    pub(crate) fn row(&self, series: usize) -> Row<'_> {
        let (chunk, row) = self.places[series];
        let start = row as usize * self.steps;
        Row {
            values: &self.chunks[chunk as usize][start..start + self.steps],
            histograms: self.histograms.get(series).map_or(&[], Vec::as_slice),
            known: Known::Nothing,
        }
    }

    /// Whether some series has a histogram.
    pub(crate) fn has_histograms(&self) -> bool {
        self.histograms.iter().any(|points| !points.is_empty())
    }

    /// Whether some row has a float and a histogram at one step.
    pub(crate) fn holds_both(&self) -> bool {
        self.has_histograms()
            && (0..self.len()).any(|series| self.row(series).first_beside_float().is_some())
    }

    /// The same rows, each without the histograms from the first one on that has a float beside it.
    pub(crate) fn of_one_kind(&self) -> Frame {
        let mut out = self.like(self.steps);
        for series in 0..self.len() {
            let row = self.row(series);
            let kept = row.first_beside_float().unwrap_or(row.histograms.len());
            let histograms = &row.histograms[..kept];
            out.push_as(self, series, Row { histograms, ..row });
        }
        out
    }

    /// How many samples all rows count for.
    pub(crate) fn samples(&self) -> u64 {
        (0..self.len()).map(|i| self.row(i).samples()).sum()
    }

    /// The same series in another order, or some of them.
    pub(crate) fn select(
        &self,
        order: impl IntoIterator<Item = usize>,
        account: &Account<'_>,
    ) -> Result<Frame, QueryError> {
        let mut out = self.like(self.steps);
        for series in order {
            account.check()?;
            out.push_as(self, series, self.row(series));
        }
        Ok(out)
    }

    /// The same series without their histograms.
    pub(crate) fn floats_only(&self, account: &Account<'_>) -> Result<Frame, QueryError> {
        let mut out = self.like(self.steps);
        for series in 0..self.len() {
            account.check()?;
            let row = Row {
                histograms: &[],
                ..self.row(series)
            };
            out.push_as(self, series, row);
        }
        Ok(out)
    }

    /// The one step of this frame, repeated `steps` times.
    pub(crate) fn repeat(&self, steps: usize, account: &Account<'_>) -> Result<Frame, QueryError> {
        let mut out = self.like(steps);
        let mut row = RowBuffer::default();
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
            out.push_as(self, series, row.row());
        }
        Ok(out)
    }
}

/// The same values in memory of their own, copied a piece at a time.
fn copy_of(values: &[f64], account: &Account<'_>) -> Result<Vec<f64>, QueryError> {
    let mut copy = Vec::with_capacity(values.len());
    for piece in values.chunks(COPIED_VALUES) {
        account.check()?;
        copy.extend_from_slice(piece);
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    #[test]
    fn places_without_a_float_are_counted_alike_on_every_processor() {
        for seed in 0..300 {
            let rng = SimRng::new(seed);
            let value = |_| match rng.below(4) {
                0 => ABSENT,
                1 => f64::NAN,
                n => n as f64,
            };
            let values: Vec<f64> = (0..rng.below(90)).map(value).collect();
            let absent = values.iter().filter(|v| is_absent(**v)).count();
            let found = [count_absent(&values), count_absent_plainly(&values)];
            assert_eq!(found, [absent; 2], "seed {seed}");
        }
    }
}
