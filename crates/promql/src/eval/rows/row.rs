//! The values of one series over the steps: a dense row of floats, and histograms in a side list.
//!
//! Invariants: a place without a float holds [`ABSENT`], which no operator produces as a value
//! (selectors drop staleness markers, and arithmetic makes quiet NaNs); histograms stand in step
//! order, and a place that has a histogram has no float, but for rows that
//! [`Frame::holds_both`](super::frame::Frame::holds_both) finds. So a function of floats passes
//! over histograms by itself.

use firn_model::histogram::{Counts, Histogram};
use firn_model::sample::{STALE_NAN_BITS, is_stale};
use std::sync::Arc;

/// Marks a step without a float.
pub(crate) const ABSENT: f64 = f64::from_bits(STALE_NAN_BITS);

/// Whether there is no float.
#[inline(always)]
pub(crate) fn is_absent(value: f64) -> bool {
    is_stale(value)
}

/// How many places are without a float.
pub(crate) fn count_absent(values: &[f64]) -> usize {
    values.iter().filter(|value| is_absent(**value)).count()
}

/// A histogram and the step it belongs to.
pub(crate) type HistogramPoint = (u32, Arc<Histogram>);

/// The value of a series at a step: one side of an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand<'a> {
    /// A float.
    Float(f64),
    /// A histogram.
    Histogram(&'a Arc<Histogram>),
}

impl Operand<'_> {
    /// Whether the value is a histogram.
    pub(crate) fn is_histogram(&self) -> bool {
        matches!(self, Operand::Histogram(_))
    }
}

/// The steps of one series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// One float a step, or [`ABSENT`].
    pub(crate) values: &'a [f64],
    /// Histograms, in step order.
    pub(crate) histograms: &'a [HistogramPoint],
    /// Whether every step is known to have a float; nothing is known otherwise.
    pub(crate) is_full: bool,
}

impl<'a> Row<'a> {
    /// A row without histograms.
    pub(crate) fn of_floats(values: &'a [f64]) -> Self {
        Self {
            values,
            histograms: &[],
            is_full: false,
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
        match self.is_full {
            false => self.values.len() - count_absent(self.values),
            true => self.values.len(),
        }
    }

    /// The first histogram that stands at a step with a float.
    pub(super) fn first_beside_float(&self) -> Option<usize> {
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
    (bytes_of(histogram) + 8) / 16
}

/// How many samples a histogram counts for in a result of a single step, where upstream adds them
/// up in another way.
pub(crate) fn samples_of_passing(histogram: &Histogram) -> u64 {
    1 + bytes_of(histogram) / 16
}

/// The bytes of upstream's form.
fn bytes_of(histogram: &Histogram) -> u64 {
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
    bytes as u64
}

/// A row that is being worked on.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowBuffer {
    /// One float a step, or [`ABSENT`].
    pub(crate) values: Vec<f64>,
    /// Histograms, in step order.
    pub(crate) histograms: Vec<HistogramPoint>,
    /// Whether every step is known to have a float; the caller must set it after its last change
    /// of the values.
    pub(crate) is_full: bool,
}

impl RowBuffer {
    /// Empties the row and gives it `steps` steps.
    pub(crate) fn reset(&mut self, steps: usize) {
        self.begin(steps);
        self.values.fill(ABSENT);
    }

    /// Like `reset`, but leaves values unspecified; the caller must write every step.
    pub(crate) fn begin(&mut self, steps: usize) {
        self.values.truncate(steps);
        self.values.resize(steps, ABSENT);
        self.histograms.clear();
        self.is_full = false;
    }

    /// Makes it equal to `row`.
    pub(crate) fn copy_from(&mut self, row: Row<'_>) {
        self.values.clear();
        self.values.extend_from_slice(row.values);
        self.histograms.clear();
        self.histograms.extend_from_slice(row.histograms);
        self.is_full = row.is_full;
    }

    /// The row as a view.
    pub(crate) fn row(&self) -> Row<'_> {
        Row {
            values: &self.values,
            histograms: &self.histograms,
            is_full: self.is_full,
        }
    }
}
