//! Builds a native histogram with custom buckets from a classic histogram, one bucket at a time.

use super::error::ParseError;
use super::number::{format_shortest, truncate_to_integer};
use firn_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint,
};

/// Largest run of empty buckets that an integer histogram stores, because they cost less than a new
/// span.
const EMPTY_BUCKETS_MAX: u32 = 2;

/// Number of buckets from which on they must arrive in order: each bucket that is out of order
/// costs time in proportion to the buckets that follow it. Instrumented programs have far fewer
/// buckets.
const UNORDERED_BUCKETS_MAX: usize = 10_000;

/// The buckets, sum and count of a classic histogram that arrived so far. After a failure all
/// further values are ignored and [`Self::convert`] returns the first error.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassicHistogram {
    /// Upper bounds in increasing order, each with its cumulative count of observations.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
    failure: Option<ParseError>,
}

impl ClassicHistogram {
    /// Removes all buckets and values but keeps the allocated memory. Also forgets the first
    /// failure.
    pub fn clear(&mut self) {
        self.buckets.clear();
        self.count = None;
        self.sum = 0.0;
        self.failure = None;
    }

    /// Sets the cumulative count of the bucket with upper bound `bound`. A second value for the
    /// same bound is ignored.
    pub fn set_bucket(&mut self, bound: f64, count: f64) {
        if self.failure.is_none() {
            self.failure = self.add_bucket(bound, count).err();
        }
    }

    fn add_bucket(&mut self, bound: f64, count: f64) -> Result<(), ParseError> {
        if bound.is_nan() {
            return Err(ParseError::new("bucket boundary must not be NaN"));
        }
        if count < 0.0 {
            let (bound, count) = (format_shortest(bound), format_shortest(count));
            return Err(ParseError::new(format!(
                "bucket count must be non-negative: le={bound}, count={count}"
            )));
        }
        let at = match self.buckets.last() {
            Some((last, _)) if *last >= bound => self.buckets.partition_point(|b| b.0 < bound),
            _ => self.buckets.len(),
        };
        let before = at.checked_sub(1).map(|before| self.buckets[before].1);
        let after = self.buckets.get(at);
        if after.is_some_and(|after| after.0 == bound) {
            return Ok(());
        }
        let not_cumulative = |sign: &str, other: f64| {
            let (count, other) = (format_shortest(count), format_shortest(other));
            ParseError::new(format!("count is not cumulative: {count} {sign} {other}"))
        };
        if let Some(before) = before.filter(|before| count < *before) {
            return Err(not_cumulative("<", before));
        }
        if let Some((_, after)) = after.filter(|(_, after)| count > *after) {
            return Err(not_cumulative(">", *after));
        }
        if after.is_some() && self.buckets.len() >= UNORDERED_BUCKETS_MAX {
            return Err(ParseError::new("too many buckets out of order"));
        }
        self.buckets.insert(at, (bound, count));
        Ok(())
    }

    /// Sets the total number of observations, which must not be negative.
    pub fn set_count(&mut self, count: f64) {
        if self.failure.is_some() {
            return;
        }
        if count < 0.0 {
            let count = format_shortest(count);
            let message = format!("count must be non-negative: count={count}");
            self.failure = Some(ParseError::new(message));
            return;
        }
        self.count = Some(count);
    }

    /// Sets the sum of all observations. Ignored after a failure.
    pub fn set_sum(&mut self, sum: f64) {
        if self.failure.is_none() {
            self.sum = sum;
        }
    }

    /// Returns the native histogram, with integer counts if all counts are integers. Fails with the
    /// first error of a setter or if the counts are not consistent.
    pub fn convert(&mut self) -> Result<Histogram, ParseError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let last = self.buckets.last();
        let count = self.count.or(last.map(|last| last.1)).unwrap_or(0.0);
        if last.is_none_or(|last| last.0 != f64::INFINITY) {
            self.buckets.push((f64::INFINITY, count));
        }
        let is_whole = |count: f64| count == truncate_to_integer(count.round()) as f64;
        let all_whole = self.buckets.iter().all(|bucket| is_whole(bucket.1));
        if all_whole && count == count.round() as u64 as f64 {
            self.convert_whole(count as u64)
        } else {
            self.convert_float(count)
        }
    }

    fn convert_whole(&self, count: u64) -> Result<Histogram, ParseError> {
        let (mut before, mut delta_before) = (0i64, 0i64);
        let mut deltas = Vec::with_capacity(self.buckets.len());
        for (_, cumulative) in &self.buckets {
            let own = (*cumulative as i64).wrapping_sub(before);
            deltas.push(own.wrapping_sub(delta_before));
            (before, delta_before) = (*cumulative as i64, own);
        }
        self.check_count(count as f64, count.to_string())?;
        let mut histogram = self.build_histogram(HistogramCounts::Integer {
            count,
            zero_count: 0,
            positive: deltas,
            negative: Vec::new(),
        });
        histogram.compact(EMPTY_BUCKETS_MAX);
        Ok(histogram)
    }

    fn convert_float(&self, count: f64) -> Result<Histogram, ParseError> {
        let mut before = 0.0;
        let mut counts = Vec::with_capacity(self.buckets.len());
        for (_, cumulative) in &self.buckets {
            counts.push(cumulative - before);
            before = *cumulative;
        }
        self.check_count(count, format_shortest(count))?;
        let mut histogram = self.build_histogram(HistogramCounts::Float {
            count,
            zero_count: 0.0,
            positive: counts,
            negative: Vec::new(),
        });
        histogram.compact(0);
        Ok(histogram)
    }

    /// Fails unless the last bucket contains all `count` observations; `shown` is the count in the
    /// error text.
    fn check_count(&self, count: f64, shown: String) -> Result<(), ParseError> {
        let Some((bound, last)) = self.buckets.last().filter(|last| last.1 != count) else {
            return Ok(());
        };
        let (bound, last) = (format_shortest(*bound), format_shortest(*last));
        Err(ParseError::new(format!(
            "count mismatch: count={shown} != le={bound} count={last}"
        )))
    }

    fn build_histogram(&self, counts: HistogramCounts) -> Histogram {
        let bounds = self.buckets.iter().map(|bucket| bucket.0);
        Histogram {
            reset_hint: ResetHint::Unknown,
            schema: CUSTOM_BUCKETS_SCHEMA,
            zero_threshold: 0.0,
            sum: self.sum,
            counts,
            positive_spans: vec![BucketSpan {
                offset: 0,
                // Fits: there are fewer buckets than bytes in the body.
                length: self.buckets.len() as u32,
            }],
            negative_spans: Vec::new(),
            custom_values: bounds.filter(|bound| *bound != f64::INFINITY).collect(),
        }
    }
}
