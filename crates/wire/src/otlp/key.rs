//! Writes the keys of series from the labels of a point.

use super::labels::{Form, LABEL_FRAME_BYTES, Label};
use super::request::Walk;
use super::text::Made;
use super::trouble::Trouble;
use crate::error::WireError;
use crate::remote_write::{KEY_COPIES, SERIES_BYTES, push_begun_label, push_checked, push_label};
use std::ops::Range;

/// The bytes of a key before and after one of its labels, for series that differ in that label
/// only.
#[derive(Clone, Debug)]
pub(super) struct Around {
    before: Range<usize>,
    behind: Range<usize>,
}

impl<'m> Walk<'_, '_, 'm> {
    /// Writes the key of the series whose labels are in the set, and returns its range in `keys`.
    pub(super) fn key(&mut self) -> Result<Range<usize>, Trouble> {
        self.charge_key()?;
        let start = self.keys.len();
        for label in self.set.all() {
            push(&mut self.keys, label, &self.made);
        }
        Ok(start..self.keys.len())
    }

    /// Like [`Walk::key`], for a series that differs only in the label at index `at` from the one
    /// that `around` was taken from. Sets `around` if it is `None`.
    pub(super) fn key_around(
        &mut self,
        at: usize,
        around: &mut Option<Around>,
    ) -> Result<Range<usize>, Trouble> {
        self.charge_key()?;
        let start = self.keys.len();
        let labels = self.set.all();
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
        *around = Some(Around {
            before,
            behind: label_end..self.keys.len(),
        });
        Ok(start..self.keys.len())
    }

    /// Counts a series and reserves the memory of its labels, which are in the set. Fails if they
    /// exceed a limit.
    #[inline]
    fn charge_key(&mut self) -> Result<(), Trouble> {
        self.series_count += 1;
        let limit = self.limits.series_count_max;
        if self.series_count > limit {
            return Err(WireError::TooManySeries { limit }.into());
        }
        let labels = self.set.all();
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
            return Err(self.offence());
        }
        Ok(self.charges.add(SERIES_BYTES + KEY_COPIES * bytes)?)
    }

    /// Returns the error for the labels in the set, which exceed a limit.
    #[cold]
    fn offence(&self) -> Trouble {
        let pairs = self.set.all().iter();
        let pairs = pairs.map(|l| (self.made.get(l.name), self.made.get(l.value)));
        match push_checked(pairs.collect(), self.limits, &mut Vec::new()) {
            Err(offence) => offence.into(),
            Ok(()) => WireError::Protobuf("labels over a limit").into(),
        }
    }
}

#[inline]
fn push(keys: &mut Vec<u8>, label: &Label<'_>, made: &Made) {
    let value = made.get(label.value);
    match label.form {
        Form::Whole(whole) => keys.extend_from_slice(made.get(whole)),
        Form::Begun(begun) => push_begun_label(keys, made.get(begun), value),
        Form::Plain => {
            push_label(keys, made.get(label.name), value);
        }
    }
}
