//! Native histograms: exponential and custom buckets, float and integer counts.
//!
//! Bucket counts are kept as they arrive: integer histograms as deltas between neighbouring
//! buckets, float histograms as absolute counts (Prometheus `model/histogram`). A span of buckets
//! is a gap and a run length. Invariant, checked by [`Histogram::validate`]: the lengths of a
//! side's spans add up to the number of its buckets, and custom bounds increase.

pub mod bounds;

use crate::error::{Error, ErrorKind};
use crate::sample::is_stale;

/// The schema of histograms with custom buckets.
pub const CUSTOM_BUCKETS_SCHEMA: i32 = -53;

/// The finest exponential schema, and the coarsest is [`EXPONENTIAL_SCHEMA_MIN`].
pub const EXPONENTIAL_SCHEMA_MAX: i32 = 8;

/// The coarsest exponential schema.
pub const EXPONENTIAL_SCHEMA_MIN: i32 = -4;

/// What is known about a counter reset between a histogram and the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ResetHint {
    /// Nothing is known; readers must compare.
    #[default]
    Unknown,
    /// The counter was reset here.
    Reset,
    /// The counter was not reset here.
    NotReset,
    /// It is a gauge; resets mean nothing.
    Gauge,
}

/// A run of consecutive buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Buckets left out since the end of the span before; for the first span the index of its
    /// bucket.
    pub offset: i32,
    /// Buckets in the run.
    pub length: u32,
}

/// The counts of a histogram, in the form they arrived.
#[derive(Clone, Debug, PartialEq)]
pub enum Counts {
    /// Integer counts; buckets as deltas to the bucket before.
    Integer {
        /// All observations.
        count: u64,
        /// Observations in the zero bucket.
        zero_count: u64,
        /// Deltas, one for each positive (or custom) bucket.
        positive: Vec<i64>,
        /// Deltas, one for each negative bucket.
        negative: Vec<i64>,
    },
    /// Float counts; buckets absolute.
    Float {
        /// All observations.
        count: f64,
        /// Observations in the zero bucket.
        zero_count: f64,
        /// One count for each positive (or custom) bucket.
        positive: Vec<f64>,
        /// One count for each negative bucket.
        negative: Vec<f64>,
    },
}

/// A native histogram sample's value.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// What is known about a reset before this sample.
    pub reset_hint: ResetHint,
    /// -4..=8, or [`CUSTOM_BUCKETS_SCHEMA`].
    pub schema: i32,
    /// Half the width of the zero bucket.
    pub zero_threshold: f64,
    /// Sum of observations; a staleness marker makes the whole sample one.
    pub sum: f64,
    /// The counts.
    pub counts: Counts,
    /// Runs of positive (or custom) buckets.
    pub positive_spans: Vec<Span>,
    /// Runs of negative buckets.
    pub negative_spans: Vec<Span>,
    /// Upper bounds of custom buckets, increasing, without +Inf.
    pub custom_values: Vec<f64>,
}

impl Histogram {
    /// Whether this sample is a staleness marker.
    pub fn is_stale(&self) -> bool {
        is_stale(self.sum)
    }

    /// Whether the schema is that of custom buckets.
    pub fn has_custom_buckets(&self) -> bool {
        self.schema == CUSTOM_BUCKETS_SCHEMA
    }

    /// Checks the invariants of the type; fails with [`ErrorKind::Invalid`] and says which.
    pub fn validate(&self) -> Result<(), Error> {
        let exponential = (EXPONENTIAL_SCHEMA_MIN..=EXPONENTIAL_SCHEMA_MAX).contains(&self.schema);
        if !exponential && !self.has_custom_buckets() {
            return invalid(format!("histogram schema is unknown: {}", self.schema));
        }
        let (positive, negative) = match &self.counts {
            Counts::Integer {
                positive, negative, ..
            } => (positive.len(), negative.len()),
            Counts::Float {
                positive, negative, ..
            } => (positive.len(), negative.len()),
        };
        check_spans("positive", &self.positive_spans, positive)?;
        check_spans("negative", &self.negative_spans, negative)?;
        if self.has_custom_buckets() {
            return self.validate_custom(negative);
        }
        if !self.custom_values.is_empty() {
            return invalid("histogram with exponential schema must not have custom bounds".into());
        }
        Ok(())
    }

    fn validate_custom(&self, negative_buckets: usize) -> Result<(), Error> {
        if negative_buckets > 0 || self.zero_threshold != 0.0 {
            return invalid("custom buckets: must not have negative or zero buckets".into());
        }
        let rising = self.custom_values.windows(2).all(|w| w[0] < w[1]);
        if !rising || self.custom_values.iter().any(|v| v.is_nan()) {
            return invalid("custom buckets: bounds must be strictly increasing".into());
        }
        let used = self
            .positive_spans
            .iter()
            .map(|s| i64::from(s.offset) + i64::from(s.length))
            .sum::<i64>();
        if used > self.custom_values.len() as i64 + 1 {
            return invalid(format!(
                "custom buckets: {used} buckets for {} bounds",
                self.custom_values.len()
            ));
        }
        Ok(())
    }
}

fn check_spans(side: &str, spans: &[Span], buckets: usize) -> Result<(), Error> {
    if let Some(i) = spans.iter().skip(1).position(|s| s.offset < 0) {
        return invalid(format!(
            "{side} side: span number {} has a negative offset",
            i + 2
        ));
    }
    let covered: u64 = spans.iter().map(|s| u64::from(s.length)).sum();
    if covered != buckets as u64 {
        return invalid(format!(
            "{side} side: spans need {covered} buckets, have {buckets} buckets"
        ));
    }
    Ok(())
}

fn invalid(message: String) -> Result<(), Error> {
    Err(Error::new(ErrorKind::Invalid, message))
}
