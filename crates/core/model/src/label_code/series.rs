//! Series as the log and the catalogue store them: the distance of each slot from the previous one,
//! and the labels.
//!
//! They are read twice during a start: in parallel for their keys, and sequentially for the steps
//! between them. Invariant: the second pass only reads bytes that the first pass has accepted.

use super::check::LabelsChecker;
use super::{LabelStepReader, LabelsDecoder, MalformedLabels, TRUNCATED};
use crate::labels::{LabelsRef, take_uvarint};
use crate::series_key::KeyFormat;

/// An iterator over encoded series, which can be read as keys, labels or steps.
#[derive(Clone, Debug)]
pub struct SeriesRecords<'a> {
    rest: &'a [u8],
    /// Number of remaining series, or `None` to read to the end of the bytes.
    left: Option<u64>,
    slot: u64,
}

impl<'a> SeriesRecords<'a> {
    /// Creates an iterator over the series in `bytes`. If `count` is `None`, `bytes` must not
    /// contain anything else.
    pub fn new(bytes: &'a [u8], count: Option<u64>) -> Self {
        Self {
            rest: bytes,
            left: count,
            slot: 0,
        }
    }

    /// Returns the slot of the next series, or `None` at the end. Its labels follow.
    fn next_slot(&mut self) -> Result<Option<u64>, MalformedLabels> {
        match &mut self.left {
            Some(0) => return Ok(None),
            Some(left) => *left -= 1,
            None if self.rest.is_empty() => return Ok(None),
            None => {}
        }
        let distance = take_uvarint(&mut self.rest).ok_or(TRUNCATED)?;
        let slot = self.slot.checked_add(distance);
        self.slot = slot.ok_or(MalformedLabels("slot out of range"))?;
        Ok(Some(self.slot))
    }

    /// Calls `each` for all series with their slots and keys in the format `keys`.
    pub fn read(
        &mut self,
        keys: &'static dyn KeyFormat,
        mut each: impl FnMut(u64, &[u8]),
    ) -> Result<(), MalformedLabels> {
        let mut labels = LabelsDecoder::with_key_format(keys);
        while let Some(slot) = self.next_slot()? {
            each(slot, labels.read_key(&mut self.rest)?);
        }
        Ok(())
    }

    /// Validates all series and accepts the same bytes as the other methods, at a fraction of their
    /// cost. Returns the last slot and the bytes after the series.
    pub(crate) fn check(mut self) -> Result<(u64, &'a [u8]), MalformedLabels> {
        let mut labels = LabelsChecker::default();
        let mut last = 0;
        while let Some(slot) = self.next_slot()? {
            labels.check_next(&mut self.rest)?;
            last = slot;
        }
        Ok((last, self.rest))
    }

    /// Calls `each` for all series with their slots and labels.
    pub fn read_labels(
        &mut self,
        mut each: impl FnMut(u64, LabelsRef<'_>),
    ) -> Result<(), MalformedLabels> {
        let mut labels = LabelsDecoder::default();
        while let Some(slot) = self.next_slot()? {
            each(slot, labels.read(&mut self.rest)?);
        }
        Ok(())
    }

    /// Returns the steps from the labels of the previous series to those of the next one. The
    /// caller must read all of them.
    pub fn steps(&mut self) -> LabelStepReader<'_, 'a> {
        // If there is no further series, there are no steps.
        let _ = self.next_slot();
        LabelStepReader::new(&mut self.rest)
    }
}
