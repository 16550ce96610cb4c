//! Native histograms for computations: float counts, and buckets by index.
//!
//! ```text
//! stored Histogram -> FloatHistogram -> add, scale, reset?, quantile, trim -> stored Histogram
//!   spans, deltas       indexes, counts
//! ```
//!
//! Each side has the same buckets as the stored form, including empty ones, because interpolation
//! in the zero bucket depends on whether a side has any buckets. The module `form` defines the
//! representation; the other modules compute with it. All operations follow
//! `model/histogram/float_histogram.go` of Prometheus number by number, so that results are equal
//! bit by bit.

mod accumulate;
mod add;
mod buckets;
mod custom;
mod form;
mod quantile;
mod reset;
mod side;
mod statistics;
mod trim;
mod zero;

pub use accumulate::{HistogramAccumulator, HistogramAggregate};
pub use add::{HistogramAdjustments, IncompatibleBuckets};
pub use buckets::HistogramBucket;
pub use form::{FloatHistogram, totals};
pub use quantile::NanEffect;
pub use side::HistogramSide;
pub use trim::TrimOperator;

#[cfg(test)]
mod tests;
