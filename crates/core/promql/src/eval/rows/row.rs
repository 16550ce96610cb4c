//! The values of one series at all steps: a dense row of floats, and a separate list of histograms.
//!
//! Invariants: a step without a float contains [`ABSENT`], which no operator produces as a value,
//! because selectors drop staleness markers and arithmetic creates quiet NaNs. Histograms are in
//! order of steps, and a step with a histogram has no float, except in rows that
//! [`Frame::has_mixed_steps`](super::frame::Frame::has_mixed_steps) finds. A function of floats
//! therefore ignores histograms automatically.

use firn_model::histogram::{Histogram, HistogramCounts};
use firn_model::sample::{STALE_NAN_BITS, is_stale};
use std::sync::Arc;

/// The value that marks a step without a float: the bits of the staleness marker.
pub(crate) const ABSENT: f64 = f64::from_bits(STALE_NAN_BITS);

/// Returns whether the value of a step means that it has no float.
#[inline(always)]
pub(crate) fn is_absent(value: f64) -> bool {
    is_stale(value)
}

/// Returns the number of steps without a float; O(steps).
pub(crate) fn count_absent(values: &[f64]) -> usize {
    values.iter().filter(|value| is_absent(**value)).count()
}

/// The index of a step, and the histogram at this step.
pub(crate) type HistogramPoint = (u32, Arc<Histogram>);

/// The value of a series at a step, as an operand of an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StepOperand<'a> {
    /// A float value, which is not [`ABSENT`].
    Float(f64),
    /// A native histogram, borrowed from the row.
    Histogram(&'a Arc<Histogram>),
}

impl StepOperand<'_> {
    /// Returns whether the value is a histogram and not a float.
    pub(crate) fn is_histogram(&self) -> bool {
        matches!(self, StepOperand::Histogram(_))
    }
}

/// A view of the values of one series at all steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRow<'a> {
    /// One float per step, or [`ABSENT`] where the step has none.
    pub(crate) values: &'a [f64],
    /// The histograms with the indexes of their steps, in ascending order.
    pub(crate) histograms: &'a [HistogramPoint],
    /// True if every step has a float. False if this is not certain.
    pub(crate) is_full: bool,
}

impl<'a> StepRow<'a> {
    /// Creates a row without histograms. It is not marked as full.
    pub(crate) fn from_floats(values: &'a [f64]) -> Self {
        Self {
            values,
            histograms: &[],
            is_full: false,
        }
    }

    /// Returns whether no step has a float or a histogram.
    pub(crate) fn is_empty(&self) -> bool {
        self.histograms.is_empty() && !self.has_floats()
    }

    /// Returns whether any step has a float; O(steps).
    pub(crate) fn has_floats(&self) -> bool {
        self.values.iter().any(|v| !is_absent(*v))
    }

    /// Returns the number of steps with a float. O(1) if the row is full, otherwise O(steps).
    pub(crate) fn count_floats(&self) -> usize {
        let steps = self.values.len();
        debug_assert!(
            !self.is_full || count_absent(self.values) == 0,
            "{} of {steps} steps of a full row have no float",
            count_absent(self.values)
        );
        if !self.is_full {
            self.values.len() - count_absent(self.values)
        } else {
            self.values.len()
        }
    }

    /// Returns the index of the first histogram at a step that also has a float.
    pub(super) fn first_mixed_histogram(&self) -> Option<usize> {
        let mut steps = self.histograms.iter().map(|(step, _)| *step as usize);
        steps.position(|step| !is_absent(self.values[step]))
    }

    /// Returns the number of samples that the row counts for.
    pub(crate) fn count_samples(&self) -> u64 {
        self.count_floats() as u64
            + self
                .histograms
                .iter()
                .map(|(_, h)| histogram_samples(h))
                .sum::<u64>()
    }

    /// Returns the size of the row's histograms in bytes.
    pub(crate) fn histogram_bytes(&self) -> usize {
        histogram_bytes(self.histograms)
    }

    /// Returns the value at a step, if there is one. A histogram takes precedence over a float.
    pub(crate) fn operand(&self, step: usize) -> Option<StepOperand<'_>> {
        match self.histogram(step) {
            Some(histogram) => Some(StepOperand::Histogram(histogram)),
            None => {
                (!is_absent(self.values[step])).then_some(StepOperand::Float(self.values[step]))
            }
        }
    }

    /// Returns the histogram at a step, if there is one; O(log n).
    pub(crate) fn histogram(&self, step: usize) -> Option<&Arc<Histogram>> {
        let at = self
            .histograms
            .binary_search_by_key(&step, |(s, _)| *s as usize);
        at.ok().map(|i| &self.histograms[i].1)
    }
}

/// Returns the size of histograms in bytes, including their buckets.
pub(crate) fn histogram_bytes<T>(points: &[(T, Arc<Histogram>)]) -> usize {
    const SAMPLE_BYTES: usize = 16;
    let samples: u64 = points.iter().map(|(_, h)| histogram_samples(h)).sum();
    samples as usize * SAMPLE_BYTES + size_of_val(points)
}

/// Returns the number of samples that a histogram counts for: one per sixteen bytes of its
/// representation in Prometheus.
pub(crate) fn histogram_samples(histogram: &Histogram) -> u64 {
    (prometheus_bytes(histogram) + 8) / 16
}

/// Returns the number of samples that a histogram counts for in a result of a single step, where
/// Prometheus uses a different formula.
pub(crate) fn passing_histogram_samples(histogram: &Histogram) -> u64 {
    1 + prometheus_bytes(histogram) / 16
}

/// Returns the size of the histogram's representation in Prometheus, in bytes.
fn prometheus_bytes(histogram: &Histogram) -> u64 {
    const FIXED_BYTES: usize = 168;
    let buckets = match &histogram.counts {
        HistogramCounts::Integer {
            positive, negative, ..
        } => positive.len() + negative.len(),
        HistogramCounts::Float {
            positive, negative, ..
        } => positive.len() + negative.len(),
    };
    let spans = histogram.positive_spans.len() + histogram.negative_spans.len();
    let bytes = FIXED_BYTES + 8 * (buckets + spans + histogram.custom_values.len());
    bytes as u64
}

/// A mutable row that an operator works on. It is reused for many series.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepRowBuffer {
    /// One float per step, or [`ABSENT`] where the step has none.
    pub(crate) values: Vec<f64>,
    /// The histograms with the indexes of their steps, in ascending order.
    pub(crate) histograms: Vec<HistogramPoint>,
    /// True if every step has a float. The caller must set it after the last change of the values.
    pub(crate) is_full: bool,
}

impl StepRowBuffer {
    /// Clears the row and sets its number of steps.
    pub(crate) fn reset(&mut self, steps: usize) {
        self.reset_unfilled(steps);
        self.values.fill(ABSENT);
    }

    /// Clears the row like [`StepRowBuffer::reset`], but leaves the values unspecified. The caller
    /// must write all steps.
    pub(crate) fn reset_unfilled(&mut self, steps: usize) {
        self.values.truncate(steps);
        self.values.resize(steps, ABSENT);
        self.histograms.clear();
        self.is_full = false;
    }

    /// Copies the values and histograms of `row` into this row, and keeps the allocated memory.
    pub(crate) fn copy_from(&mut self, row: StepRow<'_>) {
        self.values.clear();
        self.values.extend_from_slice(row.values);
        self.histograms.clear();
        self.histograms.extend_from_slice(row.histograms);
        self.is_full = row.is_full;
    }

    /// Returns a view of the row, for operators that only read it.
    pub(crate) fn row(&self) -> StepRow<'_> {
        StepRow {
            values: &self.values,
            histograms: &self.histograms,
            is_full: self.is_full,
        }
    }
}
