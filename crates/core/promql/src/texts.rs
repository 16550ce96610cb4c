//! Samples formatted like the command line tools of Prometheus print them.

use crate::go_format::{format_f, format_g};
use firn_model::histogram::Histogram;
use firn_model::histogram_text::histogram_text;

/// Formats a float in the shortest form that parses back to the same value.
pub fn format_float(value: f64) -> String {
    format_g(value, None)
}

/// Formats a float without an exponent, with the fewest decimals that parse back to the same value.
pub fn format_decimal(value: f64) -> String {
    format_f(value)
}

/// Formats a native histogram: count, sum and all non-empty buckets.
pub fn format_histogram(histogram: &Histogram) -> String {
    histogram_text(histogram)
}
