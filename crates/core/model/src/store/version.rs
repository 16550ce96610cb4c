//! Versions of the samples of a store, with which a cache detects changes.

use crate::sample::TimestampMs;

/// A version of the samples of a tenant. [`Select::unchanged_before`] compares it with the current
/// one.
///
/// [`Select::unchanged_before`]: super::Select::unchanged_before
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreVersion {
    /// Identifies the open store in this process. Each time that a store is opened, it gets a new
    /// number.
    pub store: u64,
    /// The newest visible batch.
    pub batch: u64,
    /// Number of changes other than batches: deletes, imports, retention, damage. It may also count
    /// beginnings and ends of such changes.
    pub rewrites: u64,
    /// Samples before this time are beyond the retention and may be removed without a new version.
    pub kept_from: TimestampMs,
    /// The part of the store to which look-ups are restricted, as text; empty for all of it.
    /// Versions of different parts are not comparable.
    pub part: String,
}
