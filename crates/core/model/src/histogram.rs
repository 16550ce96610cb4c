//! Native histograms with exponential or custom buckets, and with float or integer counts.
//!
//! Bucket counts are stored in the received form: integer histograms as deltas between neighbouring
//! buckets, float histograms as absolute counts (`model/histogram` of Prometheus). A span of
//! buckets consists of a gap and a length. Invariant, checked by [`Histogram::validate`]: the
//! lengths of a side's spans add up to its number of buckets, and custom bounds are in ascending
//! order.

pub mod bounds;
mod compact;
pub mod float;
mod hint;
mod resolution;

pub use resolution::{EXPONENTIAL_SCHEMA_RESERVED_MAX, spans_from_indexes};

use crate::error::{Error, ErrorKind};
use crate::sample::is_stale;

/// The schema of histograms with custom buckets, whose bounds are explicit.
pub const CUSTOM_BUCKETS_SCHEMA: i32 = -53;

/// The schema with the highest resolution. The lowest is [`EXPONENTIAL_SCHEMA_MIN`].
pub const EXPONENTIAL_SCHEMA_MAX: i32 = 8;

/// The exponential schema with the lowest resolution, in which each bucket is 65,536 times wider
/// than the previous one.
pub const EXPONENTIAL_SCHEMA_MIN: i32 = -4;

/// A hint whether the counter was reset between the previous histogram and this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ResetHint {
    /// No information. Readers must compare this histogram with the previous one.
    #[default]
    Unknown,
    /// The counter was reset between the previous histogram and this one.
    Reset,
    /// The counter was not reset between the previous histogram and this one.
    NotReset,
    /// The histogram is a gauge, for which resets have no meaning.
    Gauge,
}

/// A run of consecutive buckets, preceded by a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BucketSpan {
    /// Number of buckets between the end of the previous span and this one. For the first span: the
    /// index of its first bucket.
    pub offset: i32,
    /// Number of buckets in the run, including empty ones.
    pub length: u32,
}

/// The counts of a histogram in the received form.
#[derive(Clone, Debug, PartialEq)]
pub enum HistogramCounts {
    /// Integer counts. Buckets are deltas from the previous bucket.
    Integer {
        /// Number of all observations, including those of NaN.
        count: u64,
        /// Number of observations in the zero bucket, up to the zero threshold.
        zero_count: u64,
        /// One delta for each positive (or custom) bucket that the spans cover.
        positive: Vec<i64>,
        /// One delta for each negative bucket that the spans cover.
        negative: Vec<i64>,
    },
    /// The counts of a float histogram. Buckets are absolute.
    Float {
        /// Number of all observations, including those of NaN.
        count: f64,
        /// Number of observations in the zero bucket, up to the zero threshold.
        zero_count: f64,
        /// One count for each positive (or custom) bucket that the spans cover.
        positive: Vec<f64>,
        /// One count for each negative bucket that the spans cover.
        negative: Vec<f64>,
    },
}

/// The counts of a histogram as floats. Buckets are absolute.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatCounts {
    /// Number of all observations, including those of NaN.
    pub count: f64,
    /// Number of observations in the zero bucket, up to the zero threshold.
    pub zero_count: f64,
    /// One count for each positive (or custom) bucket that the spans cover.
    pub positive: Vec<f64>,
    /// One count for each negative bucket that the spans cover.
    pub negative: Vec<f64>,
}

/// The value of a native histogram sample, with integer or float counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// A hint whether the counter was reset before this sample.
    pub reset_hint: ResetHint,
    /// The schema, which determines the bucket bounds: -4 to 8, or [`CUSTOM_BUCKETS_SCHEMA`].
    pub schema: i32,
    /// Half of the width of the zero bucket, which is symmetric around zero.
    pub zero_threshold: f64,
    /// The sum of all observations. If it is a staleness marker, the whole sample is one.
    pub sum: f64,
    /// The counts of the buckets and of all observations.
    pub counts: HistogramCounts,
    /// The runs of positive (or custom) buckets in ascending order.
    pub positive_spans: Vec<BucketSpan>,
    /// The runs of negative buckets, ordered by the magnitude of their bounds.
    pub negative_spans: Vec<BucketSpan>,
    /// The upper bounds of custom buckets in ascending order, without +Inf.
    pub custom_values: Vec<f64>,
}

impl Histogram {
    /// Returns whether this sample is a staleness marker, which the sum determines.
    pub fn is_stale(&self) -> bool {
        is_stale(self.sum)
    }

    /// Returns a histogram without observations after a reset, with the schema and custom bounds of
    /// this one.
    #[must_use]
    pub fn without_observations(&self) -> Histogram {
        let counts = match self.counts {
            HistogramCounts::Integer { .. } => HistogramCounts::Integer {
                count: 0,
                zero_count: 0,
                positive: Vec::new(),
                negative: Vec::new(),
            },
            HistogramCounts::Float { .. } => HistogramCounts::Float {
                count: 0.0,
                zero_count: 0.0,
                positive: Vec::new(),
                negative: Vec::new(),
            },
        };
        Histogram {
            reset_hint: ResetHint::Reset,
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            sum: 0.0,
            counts,
            positive_spans: Vec::new(),
            negative_spans: Vec::new(),
            custom_values: self.custom_values.clone(),
        }
    }

    /// Returns the memory of the histogram in bytes, without unused capacity.
    pub fn memory_bytes(&self) -> usize {
        let spans = self.positive_spans.len() + self.negative_spans.len();
        let numbers = self.counts.bucket_count() + self.custom_values.len() + spans;
        size_of::<Self>() + numbers * size_of::<u64>()
    }

    /// Returns whether the schema is that of custom buckets.
    pub fn has_custom_buckets(&self) -> bool {
        self.schema == CUSTOM_BUCKETS_SCHEMA
    }

    /// Checks the invariants of the type and the plausibility of all counts. Fails with
    /// [`ErrorKind::Invalid`] and the text of Prometheus. O(buckets).
    pub fn validate(&self) -> Result<(), Error> {
        let exponential = (EXPONENTIAL_SCHEMA_MIN..=EXPONENTIAL_SCHEMA_MAX).contains(&self.schema);
        if self.has_custom_buckets() {
            self.validate_custom()?;
        } else if !exponential {
            return invalid_error(format!(
                "histogram has an invalid schema, which must be between {EXPONENTIAL_SCHEMA_MIN} \
                 and {EXPONENTIAL_SCHEMA_MAX} for exponential buckets, or \
                 {CUSTOM_BUCKETS_SCHEMA} for custom buckets, got schema {}",
                self.schema
            ));
        } else if !self.custom_values.is_empty() {
            return invalid_error(
                "histogram with exponential schema must not have custom bounds".into(),
            );
        }
        let (positive, negative) = self.counts.bucket_counts();
        check_spans("positive side", &self.positive_spans, positive)?;
        check_spans("negative side", &self.negative_spans, negative)?;
        self.counts.validate(self.sum)
    }

    fn validate_custom(&self) -> Result<(), Error> {
        if self.custom_values.iter().any(|v| v.is_nan()) {
            return invalid_error("custom buckets: histogram custom bounds must not be NaN".into());
        }
        if let Some(w) = self.custom_values.windows(2).find(|w| w[1] <= w[0]) {
            return invalid_error(format!(
                "custom buckets: previous bound is {:.6} and current is {:.6}: histogram custom \
                 bounds must be in strictly increasing order",
                w[0], w[1]
            ));
        }
        if self.custom_values.last() == Some(&f64::INFINITY) {
            return invalid_error(
                "custom buckets: last +Inf bound must not be explicitly defined: histogram custom \
                 bounds must be finite"
                    .into(),
            );
        }
        if let Some(first) = self.positive_spans.first().filter(|s| s.offset < 0) {
            return negative_offset_error("custom buckets", 1, first.offset);
        }
        let covered: i64 = self
            .positive_spans
            .iter()
            .map(|s| i64::from(s.offset) + i64::from(s.length))
            .sum();
        let bounds = self.custom_values.len();
        if covered > bounds as i64 + 1 {
            return invalid_error(format!(
                "custom buckets: only {bounds} custom bounds defined which is insufficient to \
                 cover total span length of {covered}: histogram custom bounds are too few"
            ));
        }
        if !self.counts.zero_count_is_zero() {
            return invalid_error("custom buckets: must have zero count of 0".into());
        }
        if self.zero_threshold != 0.0 {
            return invalid_error("custom buckets: must have zero threshold of 0".into());
        }
        if !self.negative_spans.is_empty() {
            return invalid_error("custom buckets: must not have negative spans".into());
        }
        if self.counts.bucket_counts().1 > 0 {
            return invalid_error("custom buckets: must not have negative buckets".into());
        }
        Ok(())
    }
}

impl HistogramCounts {
    /// Returns the number of stored buckets on both sides.
    pub fn bucket_count(&self) -> usize {
        let (positive, negative) = self.bucket_counts();
        positive + negative
    }

    /// Returns the counts as floats, regardless of their form.
    pub fn to_floats(&self) -> FloatCounts {
        let floats = |deltas: &[i64]| decode_deltas(deltas).map(|count| count as f64).collect();
        match self {
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => FloatCounts {
                count: *count as f64,
                zero_count: *zero_count as f64,
                positive: floats(positive),
                negative: floats(negative),
            },
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => FloatCounts {
                count: *count,
                zero_count: *zero_count,
                positive: positive.clone(),
                negative: negative.clone(),
            },
        }
    }

    /// Returns the numbers of positive (or custom) and of negative buckets.
    fn bucket_counts(&self) -> (usize, usize) {
        match self {
            HistogramCounts::Integer {
                positive, negative, ..
            } => (positive.len(), negative.len()),
            HistogramCounts::Float {
                positive, negative, ..
            } => (positive.len(), negative.len()),
        }
    }

    fn zero_count_is_zero(&self) -> bool {
        match self {
            HistogramCounts::Integer { zero_count, .. } => *zero_count == 0,
            HistogramCounts::Float { zero_count, .. } => *zero_count == 0.0,
        }
    }

    /// Checks that no count is negative, and that integer counts add up. An observation of NaN is
    /// in no bucket, so with NaN observations the buckets may contain fewer.
    fn validate(&self, sum: f64) -> Result<(), Error> {
        match self {
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => {
                let negative = add_deltas("negative side", negative)?;
                let positive = add_deltas("positive side", positive)?;
                let found = negative.wrapping_add(positive).wrapping_add(*zero_count);
                let why = if sum.is_nan() && found > *count {
                    "be at least the number of observations found in the \
                         buckets"
                } else if !sum.is_nan() && found != *count {
                    "equal the number of observations found in the \
                         buckets (in absence of NaN)"
                } else {
                    return Ok(());
                };
                invalid_error(format!(
                    "{found} observations found in buckets, but the Count field is {count}: \
                     histogram's observation count should {why}"
                ))
            }
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => {
                check_not_negative("negative side", negative)?;
                if *zero_count < 0.0 {
                    return invalid_error(format!(
                        "zero bucket has observation count of {zero_count}: {NEGATIVE_BUCKET}"
                    ));
                }
                if *count < 0.0 {
                    return invalid_error(format!(
                        "observation count is  {count}: histogram's observation count is negative"
                    ));
                }
                check_not_negative("positive side", positive)
            }
        }
    }
}

const NEGATIVE_BUCKET: &str = "histogram has a bucket whose observation count is negative";

/// Returns the sum of the counts encoded by `deltas`. Fails if any count is negative.
fn add_deltas(side: &str, deltas: &[i64]) -> Result<u64, Error> {
    let (mut count, mut total) = (0i64, 0u64);
    for (i, delta) in deltas.iter().enumerate() {
        count = count.wrapping_add(*delta);
        if count < 0 {
            return negative_bucket_error(side, i, count).map(|()| 0);
        }
        total = total.wrapping_add(count as u64);
    }
    Ok(total)
}

fn check_not_negative(side: &str, counts: &[f64]) -> Result<(), Error> {
    match counts.iter().position(|count| *count < 0.0) {
        Some(i) => negative_bucket_error(side, i, counts[i]),
        None => Ok(()),
    }
}

/// Returns the counts encoded by deltas. Overflow wraps around.
fn decode_deltas(deltas: &[i64]) -> impl Iterator<Item = i64> + '_ {
    deltas.iter().scan(0i64, |count, delta| {
        *count = count.wrapping_add(*delta);
        Some(*count)
    })
}

/// Returns the index of each bucket that `spans` cover, in ascending order.
pub fn bucket_indexes(spans: &[BucketSpan]) -> impl Iterator<Item = i64> + '_ {
    let mut next = 0i64;
    spans.iter().flat_map(move |span| {
        let start = next + i64::from(span.offset);
        next = start + i64::from(span.length);
        start..next
    })
}

fn negative_bucket_error(
    side: &str,
    index: usize,
    count: impl std::fmt::Display,
) -> Result<(), Error> {
    let number = index + 1;
    invalid_error(format!(
        "{side}: bucket number {number} has observation count of {count}: {NEGATIVE_BUCKET}"
    ))
}

fn negative_offset_error(side: &str, number: usize, offset: i32) -> Result<(), Error> {
    invalid_error(format!(
        "{side}: span number {number} with offset {offset}: histogram has a span whose offset is \
         negative"
    ))
}

fn check_spans(side: &str, spans: &[BucketSpan], buckets: usize) -> Result<(), Error> {
    let negative = |(_, span): &(usize, &BucketSpan)| span.offset < 0;
    if let Some((i, span)) = spans.iter().enumerate().skip(1).find(negative) {
        return negative_offset_error(side, i + 1, span.offset);
    }
    let covered: u64 = spans.iter().map(|s| u64::from(s.length)).sum();
    if covered != buckets as u64 {
        return invalid_error(format!(
            "{side}: spans need {covered} buckets, have {buckets} buckets: histogram spans specify \
             different number of buckets than provided"
        ));
    }
    Ok(())
}

fn invalid_error(message: String) -> Result<(), Error> {
    Err(Error::new(ErrorKind::Invalid, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Histogram {
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema: 0,
            zero_threshold: 0.001,
            sum: 10.0,
            counts: HistogramCounts::Integer {
                count: 8,
                zero_count: 1,
                positive: vec![2, 1],
                negative: vec![2],
            },
            positive_spans: vec![span(-2, 1), span(1, 1)],
            negative_spans: vec![span(0, 1)],
            custom_values: Vec::new(),
        }
    }

    fn custom() -> Histogram {
        Histogram {
            schema: CUSTOM_BUCKETS_SCHEMA,
            zero_threshold: 0.0,
            counts: HistogramCounts::Float {
                count: 3.0,
                zero_count: 0.0,
                positive: vec![1.0, 2.0],
                negative: Vec::new(),
            },
            positive_spans: vec![span(0, 2)],
            negative_spans: Vec::new(),
            custom_values: vec![1.0, 2.0],
            ..sound()
        }
    }

    fn span(offset: i32, length: u32) -> BucketSpan {
        BucketSpan { offset, length }
    }

    fn check(mut histogram: Histogram, change: fn(&mut Histogram), wanted: &str) {
        change(&mut histogram);
        let message = histogram
            .validate()
            .map_or_else(|e| e.message, |()| String::new());
        assert!(
            message.contains(wanted) && message.is_empty() == wanted.is_empty(),
            "{message}"
        );
    }

    #[test]
    fn histogram_validate_refuses_what_prometheus_refuses() {
        check(sound(), |_| {}, "");
        check(custom(), |_| {}, "");
        check(sound(), |h| h.sum = crate::sample::stale_nan(), "");
        check(sound(), |h| h.schema = 9, "got schema 9");
        check(
            sound(),
            |h| h.custom_values = vec![1.0],
            "must not have custom bounds",
        );
        check(
            sound(),
            |h| h.positive_spans[1].offset = -1,
            "positive side: span number 2 with offset -1",
        );
        check(
            sound(),
            |h| h.negative_spans[0].length = 2,
            "negative side: spans need 2 buckets, have 1 buckets",
        );
        let with_counts = |positive: &[i64], count| HistogramCounts::Integer {
            count,
            zero_count: 1,
            positive: positive.to_vec(),
            negative: vec![2],
        };
        let negative = Histogram {
            counts: with_counts(&[2, -3], 8),
            ..sound()
        };
        check(
            negative,
            |_| {},
            "positive side: bucket number 2 has observation count of -1",
        );
        let fewer = Histogram {
            counts: with_counts(&[2, 1], 9),
            ..sound()
        };
        check(fewer.clone(), |h| h.sum = f64::NAN, "");
        check(
            fewer,
            |_| {},
            "8 observations found in buckets, but the Count field is 9",
        );
        check(
            custom(),
            |h| h.custom_values[1] = 1.0,
            "must be in strictly increasing order",
        );
        check(
            custom(),
            |h| h.custom_values[1] = f64::NAN,
            "must not be NaN",
        );
        check(
            custom(),
            |h| h.custom_values[1] = f64::INFINITY,
            "must be finite",
        );
        check(
            custom(),
            |h| h.custom_values = Vec::new(),
            "only 0 custom bounds defined",
        );
        check(
            custom(),
            |h| h.positive_spans[0].offset = -1,
            "span number 1 with offset -1",
        );
        check(
            custom(),
            |h| h.zero_threshold = 1.0,
            "must have zero threshold of 0",
        );
        check(
            custom(),
            |h| h.negative_spans = vec![span(0, 0)],
            "must not have negative spans",
        );
    }
}
