//! Trimming: removes log segments whose contents are in pages and in the catalogue, and pages that
//! are older than the retention. The manifest is always updated first.

use super::state::MaintenanceState;
use super::{Maintenance, PAUSE};
use crate::catalogue::payload::CataloguePayloadHeader;
use crate::error::StorageError;
use crate::failpoints::{self, StoreFlaw};
use crate::ids::{SeriesRef, SeriesSlot};
use crate::index::SeriesCursor;
use crate::manifest::{Manifest, PageSegmentState};
use crate::parts::options::LogTrimming;
use firn_model::error::Error;
use firn_model::log::LogPosition;

impl Maintenance {
    /// Returns the position up to which the log can be trimmed with respect to late samples.
    fn late_trim_position(&self, state: &MaintenanceState) -> LogPosition {
        if failpoints::has(StoreFlaw::TrimsLate) {
            self.log.positions().last
        } else {
            state.late.covered_position()
        }
    }

    /// Returns the position up to which the log can be trimmed with respect to everything except
    /// samples in order.
    pub(super) fn other_trim_position(&self, state: &MaintenanceState) -> LogPosition {
        self.late_trim_position(state).min(self.journal.covered())
    }

    /// Removes the log segments all of whose samples are sealed, or late and in blocks, after their
    /// series are in the catalogue.
    pub(crate) fn trim_log(&self, state: &mut MaintenanceState) {
        let mut covered = state
            .coverage
            .covered_position()
            .min(self.other_trim_position(state));
        if failpoints::has(StoreFlaw::TrimsTooFar) {
            covered = covered.next().min(self.log.positions().last);
        }
        if self.trimming == LogTrimming::Never {
            return self.log.mark_sealed(covered.next());
        }
        if covered.next() < self.log.positions().trims_from {
            return;
        }
        let trimmed = self
            .write_exemplars(state)
            .and_then(|()| self.write_catalogue(state, covered))
            .and_then(|()| self.write_manifest(state))
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

    /// Writes to the catalogue that the log is covered up to `trimmed`, together with the
    /// new series of the index, which contains all series of records up to there.
    pub(crate) fn write_catalogue(
        &self,
        state: &mut MaintenanceState,
        trimmed: LogPosition,
    ) -> Result<(), StorageError> {
        let live = self.head.index.series_count() as u64;
        let catalogue = &mut state.catalogue;
        let is_whole = catalogue.is_mostly_dead(live) || catalogue.needs_whole();
        let end = self.head.index.next_slot();
        let header = CataloguePayloadHeader {
            trimmed,
            next_slot: self.head.numbers.slot(SeriesRef(end)),
        };
        let first = if is_whole {
            SeriesSlot(0)
        } else {
            catalogue.end_slot()
        };
        let mut cursor = SeriesCursor::new(&self.head.index);
        let bytes = catalogue.write(header, is_whole, &mut |encoder| {
            for series in self.head.numbers.numbers_from_slot(first, end) {
                if cursor.place(series).is_some() {
                    let labels = self.head.index.series_labels(series);
                    encoder.push(self.head.numbers.slot(series), labels.as_ref())?;
                }
            }
            Ok(())
        })?;
        self.metrics.catalogue_bytes.add(bytes);
        Ok(())
    }

    /// Writes the exemplars that are only in the log to their file.
    pub(crate) fn write_exemplars(&self, state: &mut MaintenanceState) -> Result<(), StorageError> {
        if self.exemplars.is_on() {
            self.exemplars.write(&mut state.exemplars)?;
        }
        Ok(())
    }

    /// Removes the page segments that are older than the retention, or whose samples are in blocks.
    pub(crate) fn drop_old_pages(&self, state: &mut MaintenanceState) {
        let sealed = &self.sealed;
        let segments = &mut state.segments;
        let mut cutoff = self.head_read_start();
        if failpoints::has(StoreFlaw::UnlinksEarly) {
            cutoff = cutoff.saturating_add(self.options.window_ms);
        }
        match segments.take_segments_before(cutoff) {
            Ok(old) if old.is_empty() => {}
            Ok(old) => match self.write_manifest(state) {
                Ok(()) => state.segments.schedule_removal(old),
                Err(e) => {
                    tracing::error!(
                        error = %e,
                        "failed to delete pages beyond the retention: keeping them"
                    );
                    return state.segments.restore_segments(old);
                }
            },
            Err(e) => {
                return tracing::error!(
                    error = %e,
                    "failed to complete pages beyond the retention"
                );
            }
        }
        let segments = &mut state.segments;
        let removed = segments.remove_scheduled(&sealed.directory, &sealed.cache);
        self.metrics.removed_segments.add(removed as u64);
        self.metrics.page_segments.set(segments.count() as i64);
    }

    /// Writes the manifest if files were added, completed or replaced since the last time.
    pub(crate) fn update_manifest(&self, state: &mut MaintenanceState) {
        let known = |manifest: &Manifest| {
            let segments = manifest.segments.iter();
            let states = segments.map(|entry| (entry.number, entry.state));
            let states: Vec<(LogPosition, PageSegmentState)> = states.collect();
            (manifest.log, manifest.catalogue.number, states)
        };
        let now = self.env.clock.monotonic();
        if now < state.manifest_not_before
            || known(&self.build_manifest(state)) == known(&state.manifest)
        {
            return;
        }
        if let Err(e) = self.write_manifest(state) {
            tracing::error!(error = %e, "failed to write the manifest");
            state.manifest_not_before = now.saturating_add(PAUSE);
        }
    }

    /// Returns the manifest of the current files. Positions in it never move back, and damaged
    /// files keep their entries.
    pub(super) fn build_manifest(&self, state: &MaintenanceState) -> Manifest {
        let before = &state.manifest;
        Manifest {
            trimmed: state.trimmed_position().max(before.trimmed),
            logged: self.log.positions().durable.max(before.logged),
            log: self.log.positions().growing,
            // A damaged file remains in the manifest until it is written again.
            catalogue: state.catalogue.manifest_entry().unwrap_or(before.catalogue),
            exemplars: state.exemplars.manifest_entry().unwrap_or(before.exemplars),
            seed: before.seed,
            segments: state.segments.entries(),
        }
    }

    /// Writes the manifest of the current files if it has changed since the last write.
    pub(crate) fn write_manifest(&self, state: &mut MaintenanceState) -> Result<(), StorageError> {
        let manifest = self.build_manifest(state);
        self.replace_manifest(state, manifest)
    }

    /// Writes the manifest of a store that is about to remove its log.
    pub(crate) fn write_last_manifest(
        &self,
        state: &mut MaintenanceState,
    ) -> Result<(), StorageError> {
        let manifest = Manifest {
            log: LogPosition(0),
            ..self.build_manifest(state)
        };
        self.replace_manifest(state, manifest)
    }

    /// Writes `manifest` and keeps it in the state, unless it is equal to the last one.
    fn replace_manifest(
        &self,
        state: &mut MaintenanceState,
        manifest: Manifest,
    ) -> Result<(), StorageError> {
        if manifest != state.manifest {
            manifest.write(&*self.env.disk, self.dir.root())?;
            state.manifest = manifest;
        }
        Ok(())
    }
}
