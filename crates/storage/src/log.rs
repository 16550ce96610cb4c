//! The local log: segments of checksummed records in one folder, group commit, recovery.
//!
//! An append queues a record. If nothing commits, a job on the log's thread is started that writes
//! everything queued, syncs once, calls the callbacks in order of position, and repeats until the
//! queue is empty: under load groups grow by themselves, and an idle log costs nothing.
//!
//! Invariants: a callback hears `Ok` only after its record is as durable as [`SyncMode`] promises;
//! positions ascend by one and none is given twice to two acknowledged records; a segment is not
//! written again after a failed write or sync (a retried sync may lie): what it held without being
//! durable is written again in a new one, from memory. Records that cannot be written wait
//! ([`stall`]), new ones are refused meanwhile, and reading goes on.

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
pub use options::{LogOptions, SyncMode};
pub use segment::SegmentInfo;
