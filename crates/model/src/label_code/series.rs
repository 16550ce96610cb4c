//! Series as log and catalogue hold them: how far each slot is from the one before, and the labels.
//!
//! They are read twice at a start: in parallel for their keys, and one after the other for the
//! steps between them. Invariant: the second reading follows a first one that accepted them.

use super::check::LabelsChecker;
use super::{LabelsDecoder, MalformedLabels, StepReader, TRUNCATED};
use crate::labels::{LabelsRef, take_uvarint};
use crate::series_key::KeyFormat;

/// Series that are still to be read.
#[derive(Clone, Debug)]
pub struct SeriesRecords<'a> {
    rest: &'a [u8],
    /// How many; `None` for as many as there are.
    left: Option<u64>,
    slot: u64,
}

impl<'a> SeriesRecords<'a> {
    /// The series in `bytes`, which hold nothing else unless a number is given.
    pub fn new(bytes: &'a [u8], count: Option<u64>) -> Self {
        Self {
            rest: bytes,
            left: count,
            slot: 0,
        }
    }

    /// The slot of the next series, whose labels come next.
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

    /// Calls `each` for the series, with their keys of the format `keys`.
    pub fn read(
        &mut self,
        keys: &'static dyn KeyFormat,
        mut each: impl FnMut(u64, &[u8]),
    ) -> Result<(), MalformedLabels> {
        let mut labels = LabelsDecoder::of_keys(keys);
        while let Some(slot) = self.next_slot()? {
            each(slot, labels.read_key(&mut self.rest)?);
        }
        Ok(())
    }

    /// Passes over all series and accepts what the other ways of reading accept, for a fraction of
    /// the work; returns the last slot and what stands behind the series.
    pub(crate) fn check(mut self) -> Result<(u64, &'a [u8]), MalformedLabels> {
        let mut labels = LabelsChecker::default();
        let mut last = 0;
        while let Some(slot) = self.next_slot()? {
            labels.pass(&mut self.rest)?;
            last = slot;
        }
        Ok((last, self.rest))
    }

    /// Calls `each` for the series, with their labels.
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

    /// The steps from the labels of the series before to those of the next one; all are to be
    /// taken.
    pub fn steps(&mut self) -> StepReader<'_, 'a> {
        // What is not there has no steps.
        let _ = self.next_slot();
        StepReader::new(&mut self.rest)
    }
}
