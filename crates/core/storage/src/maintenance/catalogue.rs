//! Writing of the series catalogue: the labels of all series in pages, and the position up to which
//! the log is not needed.

use super::state::MaintenanceState;
use crate::catalogue::payload::CataloguePayloadHeader;
use crate::error::StorageError;
use crate::ids::{SeriesRef, SeriesSlot};
use crate::index::SeriesCursor;
use crate::parts::head::StoreHead;
use crate::parts::metrics::StoreMetrics;
use firn_model::log::LogPosition;

/// Writes the series of the index to the catalogue.
#[derive(Clone, Copy)]
pub(crate) struct CatalogueWriter<'a> {
    pub(super) head: &'a StoreHead,
    pub(super) metrics: &'a StoreMetrics,
}

impl CatalogueWriter<'_> {
    /// Writes to the catalogue that the log is covered up to `trimmed`, together with the
    /// new series of the index, which contains all series of records up to there.
    pub(crate) fn write(
        &self,
        state: &mut MaintenanceState,
        trimmed: LogPosition,
    ) -> Result<(), StorageError> {
        let (index, numbers) = (&self.head.index, &self.head.numbers);
        let live = index.series_count() as u64;
        let catalogue = &mut state.catalogue;
        let is_whole = catalogue.is_mostly_dead(live) || catalogue.needs_whole();
        let end = index.next_slot();
        let header = CataloguePayloadHeader {
            trimmed,
            next_slot: numbers.slot(SeriesRef(end)),
        };
        let first = if is_whole {
            SeriesSlot(0)
        } else {
            catalogue.end_slot()
        };
        let mut cursor = SeriesCursor::new(index);
        let bytes = catalogue.write(header, is_whole, &mut |encoder| {
            for series in numbers.numbers_from_slot(first, end) {
                if cursor.place(series).is_some() {
                    let labels = index.series_labels(series);
                    encoder.push(numbers.slot(series), labels.as_ref())?;
                }
            }
            Ok(())
        })?;
        self.metrics.catalogue_bytes.add(bytes);
        Ok(())
    }
}
