//! The settings of a log core.

#[cfg(any(test, feature = "flaws"))]
use super::flaw::LogFlaw;
use crate::ids::{ClusterId, PartitionId, SegmentSequence};
use crate::segment::SegmentPlace;
use std::time::Duration;

/// The settings of a log core, which do not change while it exists.
#[derive(Clone, Debug)]
pub struct LogCoreOptions {
    /// The cluster, from `cluster/format`.
    pub cluster: ClusterId,
    /// The partition whose log this is.
    pub partition: PartitionId,
    /// The number of creates that may be in flight. All nodes must use the same number, that of
    /// `cluster/format`, because a FENCE makes as many keys void. At least one.
    pub window: u32,
    /// The duration of a read lease, and nearly the time for which a new leader waits. With zero,
    /// each strong read waits for a reply of the bucket, and no clock is used.
    pub lease: Duration,
    /// The time for which a record may wait for others before its segment is created.
    pub flush_interval: Duration,
    /// The size of waiting records from which a segment is created without waiting. A segment is
    /// larger by less than one record.
    pub segment_bytes: usize,
    /// The size of waiting records from which appends are rejected.
    pub queue_bytes: usize,
    /// The rule that this core breaks, for tests.
    #[cfg(any(test, feature = "flaws"))]
    pub flaw: Option<LogFlaw>,
}

impl LogCoreOptions {
    /// Returns the time for which a new leader waits: a lease, and 1 % for clocks of different
    /// rates.
    pub fn wait(&self) -> Duration {
        self.lease + self.lease / 100
    }

    /// Returns the place at which segment `sequence` of this log is decoded.
    pub fn place(&self, sequence: SegmentSequence) -> SegmentPlace {
        SegmentPlace {
            cluster: self.cluster,
            partition: self.partition,
            sequence,
        }
    }

    pub(super) fn window(&self) -> u64 {
        u64::from(self.window.max(1))
    }
}
