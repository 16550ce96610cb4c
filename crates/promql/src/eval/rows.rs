//! Rows: what an evaluation holds of series, where samples come from, and how work is split.
//!
//! This room knows neither functions nor operators.

pub(crate) mod frame;
pub(crate) mod label_sets;
pub(crate) mod order;
pub(crate) mod parts;
pub(crate) mod reads;
pub(crate) mod row;
pub(crate) mod row_labels;
pub(crate) mod source;
