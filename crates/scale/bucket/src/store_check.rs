//! The test that a store must pass before a cluster trusts it, and its short form for every hour.
//!
//! A cluster rests on one promise: of concurrent creations of one key exactly one succeeds, and
//! everyone reads its content. Some stores accept the condition and ignore it, so that their
//! documentation is not sufficient.
//!
//! ```text
//! list (empty)
//! head (missing), race of the creators, read, head | for each key
//! create again (exists), read | list in pages | ranges | delete, read, list | clean up
//! ```
//!
//! Invariant: a store is refused only for a wrong answer, never because it is slow, unavailable or
//! uncertain. All objects are below a prefix of their own, which is deleted at the end.

mod creators;
mod report;
mod steps;

pub use report::{CheckStep, StoreReport, StoreVerdict};

use crate::bucket::Bucket;
use firn_model::env::Clock;
use std::sync::Arc;
use std::time::Duration;
use steps::StoreCheck;

/// Options of [`check_store`] and [`canary`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// Random number that makes the prefix of the objects unique.
    pub nonce: u64,
    /// Number of keys, each of which has a race.
    pub key_count: usize,
    /// Number of concurrent creations of each key.
    pub creator_count: usize,
    /// Pause before an operation is repeated after an error. It doubles with each repetition.
    pub pause: Duration,
}

impl CheckOptions {
    /// Returns the options of a complete check: 16 creators race for each of 40 keys.
    pub fn new(nonce: u64) -> Self {
        Self {
            nonce,
            key_count: 40,
            creator_count: 16,
            pause: Duration::from_millis(200),
        }
    }
}

/// Tests all promises of a store, with some 1,000 requests. Blocks until the check has ended. The
/// bucket must take `creator_count` operations at a time.
pub fn check_store(
    bucket: &dyn Bucket,
    clock: &Arc<dyn Clock>,
    options: &CheckOptions,
) -> StoreReport {
    let mut check = StoreCheck::new(bucket, clock, options, "check");
    let verdict = check
        .all()
        .map_or_else(StoreVerdict::from, |()| StoreVerdict::Accepted);
    check.finish(verdict)
}

/// Tests with one key whether the store still honors the condition of creations. Blocks until the
/// test has ended. Call it every hour, since a proxy may start to remove the condition.
pub fn canary(bucket: &dyn Bucket, clock: &Arc<dyn Clock>, options: &CheckOptions) -> StoreReport {
    let options = CheckOptions {
        key_count: 1,
        creator_count: 2,
        ..options.clone()
    };
    let mut check = StoreCheck::new(bucket, clock, &options, "canary");
    let verdict = check
        .condition()
        .map_or_else(StoreVerdict::from, |()| StoreVerdict::Accepted);
    check.finish(verdict)
}
