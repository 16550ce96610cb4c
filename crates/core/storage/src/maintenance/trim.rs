//! Trimming of the log: removes the segments whose contents are in pages, in blocks and in the
//! catalogue.
//!
//! Invariant: before records are removed, the catalogue and the manifest on disk record that they
//! are covered. [`LogTrimmer::trim_log`] is the only place that trims the log of a running store.

use super::catalogue::CatalogueWriter;
use super::manifest::ManifestWriter;
use super::state::MaintenanceState;
use crate::blocks::Blocks;
use crate::error::StorageError;
use crate::exemplars::ExemplarStorage;
use crate::failpoints::{self, StoreFlaw};
use crate::parts::journal::JournalTracker;
use crate::parts::metrics::StoreMetrics;
use crate::parts::options::LogTrimming;
use firn_model::error::Error;
use firn_model::log::{DurableLog, LogPosition};

/// Trims the log, after the files that replace its records are written.
#[derive(Clone, Copy)]
pub(crate) struct LogTrimmer<'a> {
    pub(super) log: &'a dyn DurableLog,
    pub(super) trimming: LogTrimming,
    pub(super) blocks: &'a Blocks,
    pub(super) journal: &'a JournalTracker,
    pub(super) exemplars: &'a ExemplarStorage,
    pub(crate) catalogue: CatalogueWriter<'a>,
    pub(super) manifest: ManifestWriter<'a>,
    pub(super) metrics: &'a StoreMetrics,
}

impl LogTrimmer<'_> {
    /// Returns the position up to which the log can be trimmed with respect to late samples.
    fn late_position(&self, state: &MaintenanceState) -> LogPosition {
        if failpoints::has(StoreFlaw::TrimsLate) {
            self.log.positions().last
        } else {
            state.late.covered_position()
        }
    }

    /// Returns the position up to which the log can be trimmed with respect to everything except
    /// samples in order.
    fn other_position(&self, state: &MaintenanceState) -> LogPosition {
        self.late_position(state).min(self.journal.covered())
    }

    /// Removes the log segments all of whose samples are sealed, or late and in blocks, after their
    /// series are in the catalogue.
    pub(crate) fn trim_log(&self, state: &mut MaintenanceState) {
        let mut covered = state
            .coverage
            .covered_position()
            .min(self.other_position(state));
        if failpoints::has(StoreFlaw::TrimsTooFar) {
            covered = covered.next().min(self.log.positions().last);
        }
        let last = self.log.positions().last;
        assert!(
            covered <= last,
            "log ends at {last:?}, covered to {covered:?}"
        );
        match self.trimming {
            LogTrimming::Sealed => {}
            LogTrimming::ByCut => {
                self.log.mark_sealed(covered.next());
                return self.publish_covered(state);
            }
            LogTrimming::Never => return self.log.mark_sealed(covered.next()),
        }
        if covered.next() < self.log.positions().trims_from {
            return;
        }
        let trimmed = self
            .write_covering_files(state, covered)
            .and_then(|()| self.manifest.write(state))
            .map_err(Error::from)
            .and_then(|()| {
                failpoints::turn();
                // All removed records are in pages, and the catalogue on disk records that.
                let trimmed = state.trimmed_position();
                assert!(
                    covered <= trimmed,
                    "log trimmed to {covered:?}, covered to {trimmed:?}"
                );
                self.log.trim(covered.next())
            });
        if let Err(e) = trimmed {
            self.metrics.catalogue_failures.inc();
            tracing::error!(error = %e, "failed to trim the log");
        }
    }

    /// Publishes the position before which blocks contain all samples of the log. Its home then
    /// trims the log.
    fn publish_covered(&self, state: &mut MaintenanceState) {
        let other = self.other_position(state);
        let Some(marks) = &mut state.cut_marks else {
            return;
        };
        let by_cut = marks.advance_to_cut(self.blocks.view().cut);
        let covered = by_cut.min(other);
        if let Err(e) = self.blocks.publish_coverage(covered.next()) {
            self.metrics.catalogue_failures.inc();
            tracing::error!(error = %e, "failed to trim the log: retrying");
        }
    }

    /// Writes the exemplars and the series that are only in the log to their files, and to the
    /// catalogue that the log is covered up to `covered`.
    fn write_covering_files(
        &self,
        state: &mut MaintenanceState,
        covered: LogPosition,
    ) -> Result<(), StorageError> {
        if self.exemplars.is_on() {
            self.exemplars.write(&mut state.exemplars)?;
        }
        self.catalogue.write(state, covered)
    }

    /// Records how far the closed log is covered, after all its samples up to `last` were sealed
    /// and its late samples were flushed.
    pub(super) fn record_trimmed(
        &self,
        state: &mut MaintenanceState,
        last: LogPosition,
    ) -> Result<(), StorageError> {
        let covered = last.min(self.other_position(state));
        self.write_covering_files(state, covered)
    }

    /// Removes the closed log whose last record is at `last`, or only its covered segments if it
    /// contains late samples that are in no block.
    pub(super) fn trim_closed_log(
        &self,
        state: &mut MaintenanceState,
        last: LogPosition,
    ) -> Result<(), Error> {
        if state.trimmed_position() < last {
            self.manifest.write(state)?;
            return self.log.trim(state.trimmed_position().next());
        }
        self.manifest.write_without_log(state)?;
        self.log.remove_all()
    }
}
