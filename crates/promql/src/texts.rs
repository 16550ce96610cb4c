//! Samples in the words of Prometheus's command line tools.

use crate::go_format::{format_f, format_g};
use crate::histogram_text::histogram_text;
use firn_model::histogram::Histogram;

/// A float in the shortest form that reads back.
pub fn float(value: f64) -> String {
    format_g(value, None)
}

/// A float in decimals without an exponent, the fewest that read back.
pub fn decimal(value: f64) -> String {
    format_f(value)
}

/// A native histogram with its buckets that are not empty.
pub fn histogram(histogram: &Histogram) -> String {
    histogram_text(histogram)
}
