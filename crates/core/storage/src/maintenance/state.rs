//! State of maintenance that is kept between ticks: the files that it writes, and the progress of
//! its rounds.

use super::coverage::Coverage;
use super::cut::progress::BlockCutState;
use super::cut_marks::CutMarks;
use super::late_coverage::LateCoverage;
use super::seal::failures::SealFailures;
use crate::catalogue::Catalogue;
use crate::exemplars::ExemplarFile;
use crate::ids::ShardLocalId;
use crate::index::IndexGarbage;
use crate::manifest::Manifest;
use crate::sealed::segments::PageSegmentSet;
use firn_model::log::LogPosition;
use std::time::Duration;

/// Pause before failed work is retried: neither free space nor disk errors change from tick to
/// tick.
pub(super) const PAUSE: Duration = Duration::from_secs(60);

/// State that the background job keeps between ticks. Created by replay, locked by the current
/// tick.
pub(crate) struct MaintenanceState {
    pub(crate) segments: PageSegmentSet,
    pub(crate) catalogue: Catalogue,
    pub(crate) exemplars: ExemplarFile,
    pub(crate) coverage: Coverage,
    /// Marks of a log that is trimmed by blocks; `None` for another one.
    pub(crate) cut_marks: Option<CutMarks>,
    pub(crate) late: LateCoverage,
    /// The manifest as last written, or as read at startup.
    pub(crate) manifest: Manifest,
    /// Time at which it may be written again after a failure, on the monotonic clock.
    pub(crate) manifest_not_before: Duration,
    pub(crate) troubles: SealFailures,
    /// Time at which sealing may be retried after a failure, on the monotonic clock.
    pub(crate) seal_not_before: Duration,
    pub(crate) cut: BlockCutState,
    /// Time at which late samples may be flushed again after a failure, on the monotonic clock.
    pub(crate) flush_not_before: Duration,
    pub(super) garbage: Vec<IndexGarbage>,
    pub(super) shard: usize,
    pub(super) local: ShardLocalId,
    pub(super) active: usize,
    /// Number of places in all shards at the end of the last tick, free ones included.
    pub(super) places: usize,
    pub(super) evicted: EvictedRound,
}

/// Progress of the round over the evicted series.
#[derive(Debug, Default)]
pub(super) struct EvictedRound {
    /// The next slot to visit.
    pub(super) next: u32,
    /// Number of slots left to visit at the higher rate.
    pub(super) hurried: u32,
}

impl MaintenanceState {
    /// Returns the state of a store that was just opened.
    pub(crate) fn new(
        segments: PageSegmentSet,
        catalogue: Catalogue,
        exemplars: ExemplarFile,
        coverage: Coverage,
        manifest: Manifest,
    ) -> Self {
        Self {
            cut_marks: None,
            late: LateCoverage::new(catalogue.trimmed()),
            manifest,
            manifest_not_before: Duration::ZERO,
            segments,
            catalogue,
            exemplars,
            coverage,
            troubles: SealFailures::default(),
            seal_not_before: Duration::ZERO,
            cut: BlockCutState::default(),
            flush_not_before: Duration::ZERO,
            garbage: Vec::new(),
            shard: 0,
            local: ShardLocalId(0),
            active: 0,
            places: 0,
            evicted: EvictedRound::default(),
        }
    }

    /// Returns the position up to which the log is covered according to the catalogue on disk.
    pub(crate) fn trimmed_position(&self) -> LogPosition {
        self.catalogue.trimmed()
    }
}
