//! Writing of the series catalogue: the labels of all series in pages, and the position up to which
//! the log is not needed.

use super::state::MaintenanceState;
use crate::catalogue::CatalogueSeriesEncoder;
use crate::catalogue::checkpoint::encode_catalogue;
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
    pub(crate) head: &'a StoreHead,
    pub(crate) metrics: &'a StoreMetrics,
}

impl CatalogueWriter<'_> {
    /// Writes to the catalogue that the log is covered up to `trimmed`, together with the
    /// new series of the index, which contains all series of records up to there.
    pub(crate) fn write(
        &self,
        state: &mut MaintenanceState,
        trimmed: LogPosition,
    ) -> Result<(), StorageError> {
        let live = self.head.index.series_count() as u64;
        let catalogue = &mut state.catalogue;
        let is_whole = catalogue.is_mostly_dead(live) || catalogue.needs_whole();
        let (end, header) = self.header(trimmed);
        let first = if is_whole {
            SeriesSlot(0)
        } else {
            catalogue.end_slot()
        };
        let bytes = catalogue.write(header, is_whole, &mut |encoder| {
            self.push_series(first, end, encoder)
        })?;
        self.metrics.catalogue_bytes.add(bytes);
        Ok(())
    }

    /// Returns all series of the index as the catalogue of a checkpoint. It contains all series of
    /// the log that were created before the call.
    pub(crate) fn encode_all(&self) -> Result<Vec<u8>, StorageError> {
        // The home records how far the log is covered.
        let (end, header) = self.header(LogPosition(0));
        encode_catalogue(header, &mut |encoder| {
            self.push_series(SeriesSlot(0), end, encoder)
        })
    }

    /// Returns the next slot of the index, and the header of a write.
    fn header(&self, trimmed: LogPosition) -> (u32, CataloguePayloadHeader) {
        let end = self.head.index.next_slot();
        let next_slot = self.head.numbers.slot(SeriesRef(end));
        (end, CataloguePayloadHeader { trimmed, next_slot })
    }

    /// Passes the series from slot `first` on to `encoder`.
    fn push_series(
        &self,
        first: SeriesSlot,
        end: u32,
        encoder: &mut CatalogueSeriesEncoder<'_>,
    ) -> Result<(), StorageError> {
        let (index, numbers) = (&self.head.index, &self.head.numbers);
        let mut cursor = SeriesCursor::new(&index.dictionary);
        for series in numbers.numbers_from_slot(first, end) {
            if cursor.place(series).is_some() {
                let labels = index.dictionary.series_labels(series);
                encoder.push(numbers.slot(series), labels.as_ref())?;
            }
        }
        Ok(())
    }
}
