//! Object storage of a cluster: objects that are created once, read, listed and deleted.
//!
//! ```text
//! engine (callbacks), threads (BlockingBucket) -> Bucket
//!    ObjectStoreBucket  client: time, budget, second attempts, metrics
//!       -> StoreBackend: S3 over hyper, or a folder
//!    SimBucket          a simulated store for tests, with faults
//! check_store           the test that a store must pass before a cluster uses it
//! ```
//!
//! Invariants: an object is never replaced. An operation is one attempt, never repeated by this
//! crate. A creation is reported as stored only after the store has acknowledged it, and as refused
//! only if it cannot take effect later. No error text and no `Debug` text contains a secret.
//!
//! This crate leaves to its users: which keys there are, how ambiguous creations are resolved, and
//! when objects may be deleted.

mod backend;
mod blocking;
mod bucket;
mod byte_budget;
mod client;
mod credentials;
mod error;
mod hedging;
mod key;
mod location;
mod metrics;
mod open;
mod options;
pub mod sim;
mod store_check;
#[cfg(test)]
mod tests;
mod transport;

pub use blocking::BlockingBucket;
pub use bucket::{
    Bucket, ByteRange, Creation, LIST_OBJECTS_MAX, ListPage, ListRequest, ListedObject, ObjectHead,
    OnBucketResult, ReadResult,
};
pub use client::ObjectStoreBucket;
pub use error::{BucketError, BucketFailure};
pub use key::{KEY_BYTES_MAX, KeyPrefix, ObjectKey};
pub use location::BucketUrl;
pub use metrics::BucketMetrics;
pub use options::{AwsEnvironment, BucketLimits, BucketOptions};
pub use store_check::{CheckOptions, CheckStep, StoreReport, StoreVerdict, canary, check_store};
