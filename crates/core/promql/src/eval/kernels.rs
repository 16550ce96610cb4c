//! Kernels: computations on the samples or values of a single series.
//!
//! [`leaf`] creates rows from samples with the functions of windows, and [`elementwise`] transforms
//! a row in place. A kernel has no access to other series or to labels other than the metric name.

pub(crate) mod counter_names;
mod dispatch;
pub(crate) mod edges;
pub(crate) mod elementwise;
pub(crate) mod histogram_remarks;
pub(crate) mod histogram_statistics;
pub(crate) mod kinds;
pub(crate) mod leaf;
pub(crate) mod mixed;
pub(crate) mod over_time;
pub(crate) mod range_call;
pub(crate) mod rate;
pub(crate) mod samples;
pub(crate) mod window;
