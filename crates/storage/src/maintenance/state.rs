//! What maintenance keeps between ticks: the files that it writes, and where its rounds stand.

use super::coverage::Coverage;
use super::cut::progress::Cut;
use super::late_coverage::LateCoverage;
use super::seal::troubles::Troubles;
use crate::catalogue::Catalogue;
use crate::exemplars::ExemplarFile;
use crate::ids::Local;
use crate::index::Garbage;
use crate::manifest::Manifest;
use crate::sealed::segments::Segments;
use firn_model::log::Position;
use std::time::Duration;

/// What the background job keeps between ticks.
pub(crate) struct State {
    pub(crate) segments: Segments,
    pub(crate) catalogue: Catalogue,
    pub(crate) exemplars: ExemplarFile,
    pub(crate) coverage: Coverage,
    pub(crate) late: LateCoverage,
    /// The manifest as it was last written, or read at the start.
    pub(crate) manifest: Manifest,
    /// When it may be written again after a failure, on the monotonic clock.
    pub(crate) manifest_not_before: Duration,
    pub(crate) troubles: Troubles,
    /// On the monotonic clock.
    pub(crate) seal_not_before: Duration,
    pub(super) cut: Cut,
    /// When late samples may be flushed again after a failure, on the monotonic clock.
    pub(crate) flush_not_before: Duration,
    pub(super) garbage: Vec<Garbage>,
    pub(super) shard: usize,
    pub(super) local: Local,
    pub(super) active: usize,
    /// Places of series in all shards, taken or not, when the last tick ended.
    pub(super) places: usize,
    pub(super) evicted: EvictedRound,
}

/// Where the round over the evicted series stands.
#[derive(Debug, Default)]
pub(super) struct EvictedRound {
    /// The slot that is looked at next.
    pub(super) next: u32,
    /// Slots that are looked at in a hurry.
    pub(super) hurried: u32,
}

impl State {
    /// The state of a store that was just opened.
    pub(crate) fn new(
        segments: Segments,
        catalogue: Catalogue,
        exemplars: ExemplarFile,
        coverage: Coverage,
        manifest: Manifest,
    ) -> Self {
        Self {
            late: LateCoverage::new(catalogue.trimmed()),
            manifest,
            manifest_not_before: Duration::ZERO,
            segments,
            catalogue,
            exemplars,
            coverage,
            troubles: Troubles::default(),
            seal_not_before: Duration::ZERO,
            cut: Cut::default(),
            flush_not_before: Duration::ZERO,
            garbage: Vec::new(),
            shard: 0,
            local: Local(0),
            active: 0,
            places: 0,
            evicted: EvictedRound::default(),
        }
    }

    /// Up to where the log is covered as the catalogue on disk says.
    pub(crate) fn trimmed(&self) -> Position {
        self.catalogue.trimmed()
    }
}
