//! Rows: the values of series during an evaluation, the sources of samples, and the distribution of
//! work over threads.
//!
//! The modules below are independent of functions and operators.

pub(crate) mod frame;
pub(crate) mod label_sets;
pub(crate) mod order;
pub(crate) mod parts;
pub(crate) mod reads;
pub(crate) mod row;
pub(crate) mod row_labels;
pub(crate) mod source;
