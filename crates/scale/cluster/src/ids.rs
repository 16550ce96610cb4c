//! The numbers and identifiers of a cluster's log, each as a type of its own.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The random identifier of a cluster, drawn when its bucket is initialised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterId(pub u128);

/// The random identifier of one attempt of a process to lead a partition. The caller draws a new
/// one for each takeover, so that no two epochs share it. Zero is no writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WriterId(pub u128);

/// The number of a partition, from zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct PartitionId(pub u32);

/// The number of a segment in the log of its partition, which is the last part of its key. The
/// first segment has number one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentSequence(pub u64);

impl SegmentSequence {
    /// The number of the first segment of a log.
    pub const FIRST: Self = Self(1);

    /// Returns the number of the next segment.
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the number that is `count` higher.
    pub fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

/// The number of a leadership of a partition. Each FENCE has a higher one than all before it. Zero
/// is before the first leader.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Returns the number of the next leadership.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The identifier of an append, a barrier or a read, chosen by the caller and returned with the
/// outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogTicket(pub u64);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SegmentSequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
