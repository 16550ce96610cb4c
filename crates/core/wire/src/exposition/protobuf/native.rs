//! Conversion of protobuf histograms to native ones: exponential buckets, and classic buckets as
//! custom buckets.

use super::super::custom::ClassicHistogram;
use super::super::error::ParseError;
use super::message::{ClassicBucketMessage, HistogramMessage, NativeSideMessage};
use firn_model::histogram::{self, BucketSpan, HistogramCounts, ResetHint};

impl ClassicBucketMessage<'_> {
    /// Returns the cumulative count of observations up to the bound. Integer and float counts are
    /// separate fields.
    pub fn cumulative_count(&self) -> f64 {
        float_or_integer_count(self.count_float, self.count)
    }
}

impl HistogramMessage<'_> {
    /// Returns whether the histogram has native buckets. Client libraries mark a native histogram
    /// without observations by an empty span.
    pub fn is_native(&self) -> bool {
        !self.positive.spans.is_empty()
            || !self.negative.spans.is_empty()
            || self.zero_threshold > 0.0
            || self.zero_count > 0
    }

    /// Returns the total number of observations. Integer and float counts are separate fields.
    pub fn total_count(&self) -> f64 {
        float_or_integer_count(self.count_float, self.count)
    }

    /// Returns the native histogram without empty buckets at the ends of its spans. Fails if spans
    /// and counts do not match.
    pub fn to_native(&self, is_gauge: bool) -> Result<histogram::Histogram, String> {
        let is_float = self.count_float > 0.0 || self.zero_count_float > 0.0;
        self.positive.check("positive", is_float)?;
        self.negative.check("negative", is_float)?;
        let counts = if is_float {
            HistogramCounts::Float {
                count: self.count_float,
                zero_count: self.zero_count_float,
                positive: self.positive.counts.clone(),
                negative: self.negative.counts.clone(),
            }
        } else {
            HistogramCounts::Integer {
                count: self.count,
                zero_count: self.zero_count,
                positive: self.positive.deltas.clone(),
                negative: self.negative.deltas.clone(),
            }
        };
        let mut native = histogram::Histogram {
            reset_hint: reset_hint(is_gauge),
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            sum: self.sum,
            counts,
            positive_spans: self.positive.spans.clone(),
            negative_spans: self.negative.spans.clone(),
            custom_values: Vec::new(),
        };
        native.compact(0);
        Ok(native)
    }

    /// Returns the classic buckets as a native histogram with custom buckets; `classic` is working
    /// memory. Fails if its counts are not consistent.
    pub fn to_custom(
        &self,
        classic: &mut ClassicHistogram,
        is_gauge: bool,
    ) -> Result<histogram::Histogram, ParseError> {
        classic.clear();
        classic.set_count(self.total_count());
        classic.set_sum(self.sum);
        for bucket in &self.buckets {
            classic.set_bucket(bucket.bound, bucket.cumulative_count());
        }
        let mut custom = classic.convert()?;
        custom.reset_hint = reset_hint(is_gauge);
        Ok(custom)
    }
}

impl NativeSideMessage {
    /// Fails unless the spans cover exactly as many buckets as the side has counts.
    fn check(&self, name: &str, is_float: bool) -> Result<(), String> {
        let have = if is_float {
            self.counts.len()
        } else {
            self.deltas.len()
        };
        let length = |span: &BucketSpan| u64::from(span.length);
        let need: u64 = self.spans.iter().map(length).sum();
        if need == have as u64 {
            Ok(())
        } else {
            Err(format!(
                "{name} side: spans require {need} buckets, have {have}"
            ))
        }
    }
}

fn reset_hint(is_gauge: bool) -> ResetHint {
    if is_gauge {
        ResetHint::Gauge
    } else {
        ResetHint::Unknown
    }
}

/// Returns the float count, or the integer count if the float is zero.
fn float_or_integer_count(float: f64, integer: u64) -> f64 {
    if float == 0.0 { integer as f64 } else { float }
}
