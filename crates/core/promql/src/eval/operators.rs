//! Operators, which transform streams of rows into other streams of rows.
//!
//! An operator receives evaluated inputs. It never evaluates a node of the plan; this is the
//! responsibility of [`evaluator`](crate::eval::evaluator).

pub(crate) mod aggregate;
pub(crate) mod binary;
pub(crate) mod buckets;
pub(crate) mod count_values;
pub(crate) mod grouping;
pub(crate) mod info;
pub(crate) mod label_functions;
mod natural_order;
pub(crate) mod quantiles;
pub(crate) mod stream;
pub(crate) mod topk;
