//! Trimming: the log forgets what pages and the catalogue hold, and pages go with the retention.

use super::Store;
use super::upkeep::Upkeep;
use crate::catalogue::Header;
use crate::error::StorageError;
use crate::index::SeriesCursor;
use crate::trial::{self, Flaw};
use firn_model::error::Error;
use firn_model::log::{DurableLog, Position};

impl Store {
    /// Removes the segments of the log all of whose samples are sealed, once their births are in
    /// the catalogue.
    pub(super) fn trim_log(&self, upkeep: &mut Upkeep) {
        let mut covered = upkeep.coverage.covered();
        if trial::has(Flaw::TrimsTooFar) {
            covered = covered.next();
        }
        if !self.log.may_trim(covered.next()) {
            return;
        }
        let trimmed = self
            .write_exemplars(upkeep)
            .and_then(|()| self.write_catalogue(upkeep, covered))
            .map_err(Error::from)
            .and_then(|()| {
                trial::turn();
                self.log.trim(covered.next())
            });
        if let Err(e) = trimmed {
            self.metrics.catalogue_failures.inc();
            tracing::error!(error = %e, "trim log");
        }
    }

    /// Says durably that the log is covered up to `trimmed`, with the series that it may then
    /// forget: those in the index, since the blocks up to there were applied long ago.
    pub(super) fn write_catalogue(
        &self,
        upkeep: &mut Upkeep,
        trimmed: Position,
    ) -> Result<(), StorageError> {
        let live = self.index.series_count() as u64;
        let catalogue = &mut upkeep.catalogue;
        let is_whole = catalogue.is_mostly_dead(live) || catalogue.needs_whole();
        let header = Header {
            trimmed,
            next_slot: self.index.next_slot(),
        };
        let first = if is_whole { 0 } else { catalogue.end_slot() };
        let mut cursor = SeriesCursor::new(&self.index);
        let bytes = catalogue.write(header, is_whole, &mut |encoder| {
            for slot in first..header.next_slot {
                if cursor.place(slot).is_some() {
                    encoder.push(slot, self.index.series_labels(slot).as_ref())?;
                }
            }
            Ok(())
        })?;
        self.metrics.catalogue_bytes.add(bytes);
        Ok(())
    }

    /// Removes the page segments that left the retention.
    pub(super) fn drop_old_pages(&self, upkeep: &mut Upkeep) {
        let sealed = &self.sealed;
        let segments = &mut upkeep.segments;
        let mut cutoff = self.cutoff();
        if trial::has(Flaw::UnlinksEarly) {
            cutoff = cutoff.saturating_add(self.options.window_ms);
        }
        match segments.remove_before(cutoff, &sealed.directory, &sealed.cache) {
            Ok(removed) => self.metrics.removed_segments.add(removed as u64),
            Err(e) => tracing::error!(error = %e, "remove pages that left the retention"),
        }
        self.metrics.page_segments.set(segments.count() as i64);
    }
}
