//! The local log (WAL): segments of checksummed records in one folder, with group commit and
//! recovery.
//!
//! An append queues a record. If no commit is in progress, a job on the log's thread writes all
//! queued records, syncs once, calls the callbacks in order of position, and repeats until the
//! queue is empty. Groups therefore grow under load, and an idle log costs nothing.
//!
//! Invariants: a callback receives `Ok` only after its record is as durable as [`LogSyncMode`]
//! promises; positions ascend by one, and no two acknowledged records have the same position; a
//! segment is not written again after a failed write or sync, because a repeated sync may succeed
//! although data was lost. Its records that are not durable yet are written again from memory, into
//! a new segment. Records that cannot be written wait ([`stall`]); in the meantime new ones are
//! rejected and reads continue.

pub mod codec;
mod commit;
mod delta_codec;
mod local;
mod metrics;
mod options;
mod queue;
pub(crate) mod record;
mod recovery;
pub(crate) mod segment;
mod segment_list;
mod stall;
mod tail;
mod writer;

#[cfg(test)]
mod tests;

pub use crate::file::frame::PAYLOAD_BYTES_MAX;
pub use local::LocalLog;
pub use metrics::LogMetrics;
pub use options::{LogOptions, LogSyncMode};
pub use segment::LogSegmentInfo;
