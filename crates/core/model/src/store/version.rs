//! Versions of the samples that a store returns, by which a cache finds out what has changed.

use crate::sample::TimestampMs;

/// A version of the samples of a tenant. [`Select::unchanged_before`] compares it with the current
/// one.
///
/// [`Select::unchanged_before`]: super::Select::unchanged_before
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreVersion {
    /// Identifies the open store in this process. A store that is opened again has another one.
    pub store: u64,
    /// The newest visible batch.
    pub batch: u64,
    /// Number of changes other than batches: deletes, imports, retention, damage. It may also count
    /// beginnings and ends of such changes.
    pub rewrites: u64,
    /// Samples before this time are beyond the retention and may be removed without a new version.
    pub kept_from: TimestampMs,
    /// The part of the store that look-ups see, as text; empty for all of it. Versions of different
    /// parts are not comparable.
    pub part: String,
}
