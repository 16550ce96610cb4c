//! Series as log and catalogue hold them: how far each slot is from the one before, and the labels.
//!
//! They are read twice at a start: in parallel for their keys, and one after the other for the
//! steps between them. Invariant: the second reading follows a first one that accepted them.

use crate::encoding::Malformed;
use crate::encoding::cursor::Cursor;
use crate::encoding::labels::{LabelsDecoder, StepReader};
use firn_model::labels::LabelsRef;
use firn_model::series_key::KeyFormat;

/// Series that are still to be read.
#[derive(Clone, Debug)]
pub(crate) struct SeriesRecords<'a> {
    cursor: Cursor<'a>,
    /// How many; `None` for as many as there are.
    left: Option<u64>,
    slot: u64,
}

impl<'a> SeriesRecords<'a> {
    /// The series in `bytes`, which hold nothing else unless a number is given.
    pub(crate) fn new(bytes: &'a [u8], count: Option<u64>) -> Self {
        Self {
            cursor: Cursor::new(bytes),
            left: count,
            slot: 0,
        }
    }

    /// The slot of the next series, whose labels come next.
    fn next_slot(&mut self) -> Result<Option<u32>, Malformed> {
        match &mut self.left {
            Some(0) => return Ok(None),
            Some(left) => *left -= 1,
            None if self.cursor.is_empty() => return Ok(None),
            None => {}
        }
        self.slot = self.slot.saturating_add(self.cursor.uvarint()?);
        let slot = u32::try_from(self.slot).map_err(|_| Malformed("slot out of range"))?;
        Ok(Some(slot))
    }

    /// Calls `each` for the series, with their keys of the format `keys`.
    pub(crate) fn read(
        &mut self,
        keys: &'static dyn KeyFormat,
        mut each: impl FnMut(u32, &[u8]),
    ) -> Result<(), Malformed> {
        let mut labels = LabelsDecoder::of_keys(keys);
        while let Some(slot) = self.next_slot()? {
            each(slot, labels.read_key(&mut self.cursor)?);
        }
        Ok(())
    }

    /// Calls `each` for the series, with their labels.
    pub(crate) fn read_labels(
        &mut self,
        mut each: impl FnMut(u32, LabelsRef<'_>),
    ) -> Result<(), Malformed> {
        let mut labels = LabelsDecoder::default();
        while let Some(slot) = self.next_slot()? {
            each(slot, labels.read(&mut self.cursor)?);
        }
        Ok(())
    }

    /// The steps from the labels of the series before to those of the next one; all are to be
    /// taken.
    pub(crate) fn steps(&mut self) -> StepReader<'_, 'a> {
        // What is not there has no steps.
        let _ = self.next_slot();
        StepReader::new(&mut self.cursor)
    }
}
