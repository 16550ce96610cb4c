//! The representation of a histogram for computations, and operations on a single histogram.
//!
//! A histogram that is a compensated sum stores the compensation of each number next to it;
//! [`FloatHistogram::apply_compensations`] adds both.

use super::side::HistogramSide;
use crate::histogram::bounds::upper_bound;
use crate::histogram::{CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint};

/// A histogram with float counts, decoded for computations.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatHistogram {
    /// A hint whether the counter was reset before this histogram.
    pub hint: ResetHint,
    /// The schema of the stored histogram: -4 to 8, or that of custom buckets.
    pub schema: i32,
    /// Half of the width of the zero bucket, which is symmetric around zero.
    pub zero_threshold: f64,
    /// Number of observations in the zero bucket, possibly fractional.
    pub zero_count: f64,
    /// Number of all observations, possibly fractional.
    pub count: f64,
    /// The sum of all observations, NaN if any observation is NaN.
    pub sum: f64,
    /// The positive buckets, or the custom buckets.
    pub positive: HistogramSide,
    /// The negative buckets, by the magnitude of their bounds.
    pub negative: HistogramSide,
    pub(super) custom_values: Vec<f64>,
    pub(super) lost: Option<HistogramCompensations>,
}

/// The compensations of the numbers that are not in buckets of the sides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct HistogramCompensations {
    pub(super) zero_count: f64,
    pub(super) count: f64,
    pub(super) sum: f64,
}

impl From<&Histogram> for FloatHistogram {
    fn from(stored: &Histogram) -> Self {
        let counts = stored.counts.to_floats();
        Self {
            hint: stored.reset_hint,
            schema: stored.schema,
            zero_threshold: stored.zero_threshold,
            zero_count: counts.zero_count,
            count: counts.count,
            sum: stored.sum,
            positive: HistogramSide::from_counts(&stored.positive_spans, counts.positive),
            negative: HistogramSide::from_counts(&stored.negative_spans, counts.negative),
            custom_values: stored.custom_values.clone(),
            lost: None,
        }
    }
}

impl From<FloatHistogram> for Histogram {
    fn from(histogram: FloatHistogram) -> Self {
        let (positive_spans, positive) = histogram.positive.into_spans();
        let (negative_spans, negative) = histogram.negative.into_spans();
        Histogram {
            reset_hint: histogram.hint,
            schema: histogram.schema,
            zero_threshold: histogram.zero_threshold,
            sum: histogram.sum,
            counts: HistogramCounts::Float {
                count: histogram.count,
                zero_count: histogram.zero_count,
                positive,
                negative,
            },
            positive_spans,
            negative_spans,
            custom_values: histogram.custom_values,
        }
    }
}

impl FloatHistogram {
    /// Creates a histogram without observations, with the schema and custom bounds of `like`.
    pub fn empty_like(like: &Self) -> Self {
        Self {
            hint: ResetHint::Unknown,
            schema: like.schema,
            zero_threshold: 0.0,
            zero_count: 0.0,
            count: 0.0,
            sum: 0.0,
            positive: HistogramSide::default(),
            negative: HistogramSide::default(),
            custom_values: like.custom_values.clone(),
            lost: None,
        }
    }

    /// Returns only the count, the sum and the schema. This is the form in which Prometheus reads a
    /// histogram without its buckets.
    pub fn from_statistics(stored: &Histogram) -> Histogram {
        let (count, _) = totals(stored);
        Histogram {
            reset_hint: stored.reset_hint,
            schema: stored.schema,
            zero_threshold: 0.0,
            sum: stored.sum,
            counts: HistogramCounts::Float {
                count,
                zero_count: 0.0,
                positive: Vec::new(),
                negative: Vec::new(),
            },
            positive_spans: Vec::new(),
            negative_spans: Vec::new(),
            custom_values: Vec::new(),
        }
    }

    /// Returns whether the histogram has custom buckets instead of exponential ones.
    pub fn is_custom(&self) -> bool {
        self.schema == CUSTOM_BUCKETS_SCHEMA
    }

    /// Returns the upper bound of positive bucket `index`; its lower bound is the upper bound of
    /// `index - 1`. The negative side is symmetric.
    pub(super) fn bound(&self, index: i32) -> f64 {
        upper_bound(i64::from(index), self.schema, &self.custom_values)
    }

    /// Enables compensation for all following sums. Does nothing if it is enabled already.
    pub(super) fn compensate(&mut self) {
        self.lost.get_or_insert_default();
        self.positive.compensate();
        self.negative.compensate();
    }

    /// Adds the compensations to the numbers and disables compensation.
    pub(super) fn apply_compensations(&mut self) {
        if let Some(lost) = self.lost.take() {
            self.zero_count += lost.zero_count;
            self.count += lost.count;
            self.sum += lost.sum;
            self.positive.apply_compensations();
            self.negative.apply_compensations();
        }
    }

    /// Returns the index and count of each non-empty bucket, of the positive and of the negative
    /// side.
    pub fn non_empty_buckets(&self) -> [Vec<(i32, f64)>; 2] {
        [&self.positive, &self.negative].map(|side| {
            let cells = side.cells().map(|(index, cell)| (index, cell.sum));
            cells.filter(|(_, count)| *count != 0.0).collect()
        })
    }

    /// Returns the size of the buckets and bounds on the heap in bytes.
    pub fn heap_bytes(&self) -> usize {
        let bounds = size_of_val(&self.custom_values[..]);
        self.positive.heap_bytes() + self.negative.heap_bytes() + bounds
    }

    /// Multiplies every count and the sum by `factor`. The result is a gauge if the factor is
    /// negative.
    pub fn multiply(&mut self, factor: f64) {
        self.map_numbers(|number| number * factor);
        if factor < 0.0 {
            self.hint = ResetHint::Gauge;
        }
    }

    /// Divides every count and the sum by `divisor`. Division by zero removes all buckets, and the
    /// result is a gauge if the divisor is negative.
    pub fn divide(&mut self, divisor: f64) {
        self.map_numbers(|number| number / divisor);
        if divisor == 0.0 {
            self.positive = HistogramSide::default();
            self.negative = HistogramSide::default();
        } else if divisor < 0.0 {
            self.hint = ResetHint::Gauge;
        }
    }

    fn map_numbers(&mut self, f: impl Fn(f64) -> f64) {
        for number in [&mut self.zero_count, &mut self.count, &mut self.sum] {
            *number = f(*number);
        }
        if let Some(lost) = &mut self.lost {
            for number in [&mut lost.zero_count, &mut lost.count, &mut lost.sum] {
                *number = f(*number);
            }
        }
        self.positive.map_numbers(&f);
        self.negative.map_numbers(&f);
    }

    /// Removes empty buckets on both sides, which changes no observations.
    pub fn compact(&mut self) {
        self.positive.compact();
        self.negative.compact();
    }

    /// Reduces the resolution to `schema`, which must not be higher than that of the histogram.
    /// Both must be exponential or equal.
    pub fn coarsen_to(&mut self, schema: i32) {
        let compensated = self.lost.is_some();
        let by = self.schema.saturating_sub(schema).max(0).unsigned_abs();
        self.positive.coarsen(by, compensated);
        self.negative.coarsen(by, compensated);
        self.schema = schema;
    }

    /// Returns whether any count, the sum or any bound is infinite.
    pub fn has_overflow(&self) -> bool {
        let totals = [self.zero_count, self.count, self.sum];
        let bounds = self.custom_values.iter();
        let buckets = self.positive.counts().iter().chain(self.negative.counts());
        totals
            .iter()
            .chain(buckets)
            .chain(bounds)
            .any(|number| number.is_infinite())
    }

    /// Returns whether both histograms have the same buckets, including empty ones, and equal
    /// numbers, bit by bit.
    pub fn is_equal(&self, other: &Self) -> bool {
        self.has_equal_totals(other)
            && self.positive.is_equal(&other.positive)
            && self.negative.is_equal(&other.negative)
    }

    /// Returns whether both histograms are equal like in [`FloatHistogram::is_equal`], except that
    /// empty buckets are ignored. Within one series they have no meaning.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let compacted = |side: &HistogramSide| {
            let mut side = side.clone();
            side.compact();
            side
        };
        self.has_equal_totals(other)
            && compacted(&self.positive).is_equal(&compacted(&other.positive))
            && compacted(&self.negative).is_equal(&compacted(&other.negative))
    }

    fn has_equal_totals(&self, other: &Self) -> bool {
        self.schema == other.schema
            && self.count.to_bits() == other.count.to_bits()
            && self.sum.to_bits() == other.sum.to_bits()
            && (!self.is_custom() || self.custom_values == other.custom_values)
            && self.zero_threshold == other.zero_threshold
            && self.zero_count.to_bits() == other.zero_count.to_bits()
    }
}

/// Returns the count and the sum of all observations.
pub fn totals(stored: &Histogram) -> (f64, f64) {
    let count = match &stored.counts {
        HistogramCounts::Integer { count, .. } => *count as f64,
        HistogramCounts::Float { count, .. } => *count,
    };
    (count, stored.sum)
}
