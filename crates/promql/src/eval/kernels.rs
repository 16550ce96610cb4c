//! Kernels: what is computed from the samples or the values of one series.
//!
//! [`leaf`] makes rows of samples with the functions of windows; [`elementwise`] changes a row in
//! place. A kernel sees no other series and no label but the metric's name.

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
