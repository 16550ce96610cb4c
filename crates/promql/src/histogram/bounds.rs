//! Where buckets end.

use super::FloatHistogram;
use firn_model::histogram::bounds::upper_bound;

/// The upper bound of positive bucket `index`; that of `index - 1` is its lower bound. The negative
/// side mirrors it.
pub(super) fn bound(histogram: &FloatHistogram, index: i32) -> f64 {
    upper_bound(i64::from(index), histogram.schema, &histogram.custom_values)
}
