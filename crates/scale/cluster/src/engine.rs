//! The bucket engine: a log of a store, as segments in a bucket.
//!
//! ```text
//! store -- append --> queue -- encoded in order --> LogCore -- requests --> Bucket
//!       <-- done ----------------- acknowledged ----   ^  <----- replies -----+
//!       <-- read_from ------------ replayed --------   +-- ticks: flush, repeats, leases
//! ```
//!
//! [`BucketLog`] connects the parts: it passes events to [`crate::log::LogCore`] one at a time and
//! carries out its actions in order. The core decides everything that correctness needs.
//! Invariants: callbacks run in the order of positions, without a lock of the engine; a record is
//! encoded at the position at which the core stores it; after the end of a leadership nothing is
//! sent any more; an outage of the bucket rejects writes and loses none, and ends by itself.
//!
//! This module leaves to its owner: the choice when to take over, the files of blocks, and the
//! objects of checkpoints.

mod block_commits;
mod block_ledger;
mod bucket_log;
mod deletions;
mod flow;
mod lease_request;
mod metrics;
mod options;
mod replay_reader;
mod requests;
mod stall;
mod state;
mod stored_bytes;
#[cfg(test)]
mod tests;
mod unit_writer;

pub use block_ledger::RestoredState;
pub use bucket_log::BucketLog;
pub use lease_request::LeaseRequest;
pub use metrics::BucketLogMetrics;
#[cfg(test)]
pub(crate) use options::SimulatedWait;
pub use options::{BucketLogOptions, EngineClock};
