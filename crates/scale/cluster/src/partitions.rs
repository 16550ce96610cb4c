//! One node with many partitions: the layer that makes their stores one store.
//!
//! ```text
//! batch  -> routing: series to partitions -> append: one part for each -> tickets joined
//! select -> select: all partitions, one after another -> selections concatenated
//! ```
//!
//! The series of a cluster are divided among its partitions by the fingerprints of their keys, so
//! no two partitions have a series in common. Appends and selections work on the traits of
//! `firn_model::store`: a partition may be a store of this process or a client of another one. Only
//! [`store`] needs the stores themselves.
//!
//! Invariant: outcomes, selections and errors are those of one store with all series, except that
//! the parts of a batch become visible one after another, and that limits of new series and of
//! exemplars apply to each partition. With one partition, requests pass unchanged.

pub mod append;
pub mod routing;
pub mod select;
pub mod store;
pub mod store_set;

mod joined_outcome;
pub(crate) mod metric_sums;
mod split;
#[cfg(test)]
mod tests;
