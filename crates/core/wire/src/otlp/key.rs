//! Writes the keys of series from the labels of a point.

use super::labels::{LABEL_FRAME_BYTES, PointLabel, PointLabelEncoding};
use super::request::OtlpRequestDecoder;
use super::text::GeneratedTexts;
use super::trouble::OtlpDecodeError;
use crate::error::WireError;
use crate::remote_write::{KEY_COPIES, SERIES_BYTES, push_begun_label, push_checked, push_label};
use std::ops::Range;

/// The bytes of a key before and after one of its labels, for series that differ in that label
/// only.
#[derive(Clone, Debug)]
pub(super) struct SeriesKeyAffixes {
    before: Range<usize>,
    behind: Range<usize>,
}

impl<'m> OtlpRequestDecoder<'_, '_, 'm> {
    /// Writes the key of the series whose labels are in the set, and returns its range in `keys`.
    pub(super) fn write_key(&mut self) -> Result<Range<usize>, OtlpDecodeError> {
        self.charge_key()?;
        let start = self.keys.len();
        for label in self.set.iter_merged() {
            push(&mut self.keys, label, &self.made);
        }
        Ok(start..self.keys.len())
    }

    /// Like [`OtlpRequestDecoder::write_key`], for a series that differs only in the label at index
    /// `at` from the one that `around` was taken from. Sets `around` if it is `None`.
    pub(super) fn write_key_with_affixes(
        &mut self,
        at: usize,
        around: &mut Option<SeriesKeyAffixes>,
    ) -> Result<Range<usize>, OtlpDecodeError> {
        self.charge_key()?;
        let start = self.keys.len();
        let labels = self.set.iter_merged();
        let (before, rest) = labels.split_at_checked(at).unwrap_or_default();
        let Some((label, behind)) = rest.split_first() else {
            return Ok(start..start);
        };
        if let Some(around) = around {
            self.keys.extend_from_within(around.before.clone());
            push(&mut self.keys, label, &self.made);
            self.keys.extend_from_within(around.behind.clone());
            return Ok(start..self.keys.len());
        }
        for label in before {
            push(&mut self.keys, label, &self.made);
        }
        let before = start..self.keys.len();
        push(&mut self.keys, label, &self.made);
        let label_end = self.keys.len();
        for label in behind {
            push(&mut self.keys, label, &self.made);
        }
        *around = Some(SeriesKeyAffixes {
            before,
            behind: label_end..self.keys.len(),
        });
        Ok(start..self.keys.len())
    }

    /// Counts a series and reserves the memory of its labels, which are in the set. Fails if they
    /// exceed a limit.
    #[inline]
    fn charge_key(&mut self) -> Result<(), OtlpDecodeError> {
        self.series_count += 1;
        let limit = self.limits.series_count_max;
        if self.series_count > limit {
            return Err(WireError::TooManySeries { limit }.into());
        }
        let labels = self.set.iter_merged();
        let (name_max, value_max) = (
            self.limits.label_name_bytes_max,
            self.limits.label_value_bytes_max,
        );
        let (mut bytes, mut fits) = (0, labels.len() <= self.limits.label_count_max);
        for label in labels {
            let (name, value) = (label.name.len(), label.value.len());
            fits &= name <= name_max && value <= value_max;
            bytes += LABEL_FRAME_BYTES + name + value;
        }
        if !fits {
            return Err(self.limit_error());
        }
        Ok(self.charges.add(SERIES_BYTES + KEY_COPIES * bytes)?)
    }

    /// Returns the error for the labels in the set, which exceed a limit.
    #[cold]
    fn limit_error(&self) -> OtlpDecodeError {
        let pairs = self.set.iter_merged().iter();
        let pairs = pairs.map(|l| (self.made.get(l.name), self.made.get(l.value)));
        match push_checked(pairs.collect(), self.limits, &mut Vec::new()) {
            Err(offence) => offence.into(),
            Ok(()) => WireError::Protobuf("labels over a limit").into(),
        }
    }
}

#[inline]
fn push(keys: &mut Vec<u8>, label: &PointLabel<'_>, made: &GeneratedTexts) {
    let value = made.get(label.value);
    match label.form {
        PointLabelEncoding::Whole(whole) => keys.extend_from_slice(made.get(whole)),
        PointLabelEncoding::Begun(begun) => push_begun_label(keys, made.get(begun), value),
        PointLabelEncoding::Plain => {
            push_label(keys, made.get(label.name), value);
        }
    }
}
