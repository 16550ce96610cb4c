//! Native histograms to calculate with: float counts, buckets by index.
//!
//! ```text
//! stored Histogram -> FloatHistogram -> add, scale, reset?, quantile, trim -> stored Histogram
//!   spans, deltas       indexes, counts
//! ```
//!
//! A side keeps the buckets that the stored form spells out, the empty ones too: whether a side has
//! buckets at all decides how upstream interpolates in the zero bucket. `form` knows how a
//! histogram is kept, the files beside it calculate with it. Operations follow
//! `model/histogram/float_histogram.go` number by number, so that results agree bit for bit.

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

pub use accumulate::{Accumulator, Of};
pub use add::{Incompatible, Joined};
pub use buckets::Bucket;
pub use form::{FloatHistogram, totals};
pub use quantile::NanRemark;
pub use side::Side;
pub use trim::Trim;

#[cfg(test)]
mod tests;
