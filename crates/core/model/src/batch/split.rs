//! Divides a batch into parts, each with some of its series.
//!
//! Invariants: a part has the samples and exemplars of its series in the order of the whole batch.
//! Undecoded labels are not copied: the parts share the message of the whole batch.

use super::{Batch, LabelDecodeOutcome, LabelDecodeState};
use crate::sample::START_UNKNOWN;
use std::convert::Infallible;
use std::sync::Arc;

impl Batch {
    /// Removes all series, and prepares the batch for series of `whole`. Shares the message of
    /// `whole`, until [`Batch::end_part`]. The journal remains in `whole`.
    pub fn begin_part(&mut self, whole: &Batch) {
        self.clear();
        self.message.clone_from(&whole.message);
        self.key_format = whole.key_format;
        self.is_followed = whole.is_followed;
    }

    /// Adds series `index` of `whole` with its samples and exemplars. Copies the samples, and the
    /// labels if they are decoded; those that are not can be copied later with
    /// [`Batch::copy_labels`]. The series must not be rejected. Call [`Batch::begin_part`] first.
    #[inline]
    pub fn push_series_of(&mut self, whole: &Batch, index: usize) {
        self.push_samples_of(whole, index);
        self.push_exemplars_of(whole, index);
        let span = whole.labels[index];
        match span.form {
            LabelDecodeState::Unread => self.end_unread_series(span.range()),
            LabelDecodeState::Canonical | LabelDecodeState::Read(_) => {
                self.label_bytes
                    .extend_from_slice(&whole.label_bytes[span.range()]);
                self.end_series();
            }
        }
    }

    /// Adds the samples of series `index` of `whole` to the current series.
    #[inline]
    pub fn push_samples_of(&mut self, whole: &Batch, index: usize) {
        let (start, end) = (whole.previous_ends(index), whole.ends[index]);
        let floats = start.floats as usize..end.floats as usize;
        if whole.start_times.is_empty() {
            if !self.start_times.is_empty() {
                let all = self.start_times.len() + floats.len();
                self.start_times.resize(all, START_UNKNOWN);
            }
        } else {
            self.start_times.resize(self.times.len(), START_UNKNOWN);
            self.start_times
                .extend_from_slice(&whole.start_times[floats.clone()]);
        }
        self.times.extend_from_slice(&whole.times[floats.clone()]);
        self.values.extend_from_slice(&whole.values[floats]);
        let histograms = start.histograms as usize..end.histograms as usize;
        self.histograms
            .extend_from_slice(&whole.histograms[histograms]);
    }

    /// Adds the exemplars of series `index` of `whole` to the current series.
    #[inline]
    pub fn push_exemplars_of(&mut self, whole: &Batch, index: usize) {
        if !whole.exemplars.is_empty() {
            for exemplar in whole.exemplars.iter_series(index as u64) {
                self.push_exemplar(exemplar);
            }
        }
    }

    /// Copies the labels of series `number` of `whole`, which have been decoded since, to series
    /// `index` of this part. Rejects the series if `whole` did. Does nothing if the part has the
    /// labels.
    pub fn copy_labels(&mut self, index: usize, whole: &Batch, number: usize) {
        let span = whole.labels[number];
        let copied: Result<(), Infallible> = self.read_key(index, |_, _, arena| {
            arena.extend_from_slice(&whole.label_bytes[span.range()]);
            Ok(match span.form {
                LabelDecodeState::Read(outcome) => outcome,
                LabelDecodeState::Canonical | LabelDecodeState::Unread => {
                    LabelDecodeOutcome::Stands
                }
            })
        });
        let Ok(()) = copied;
    }

    /// Removes all series of a part and keeps its memory, except for the shared message.
    pub fn end_part(&mut self) {
        self.clear();
        self.message = Arc::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exemplar::TimedExemplar;
    use crate::labels::Labels;
    use crate::series_key::{CanonicalKeys, KeyFormat};

    /// Creates a batch of series `a` to `d` with their numbers as samples; `b` and `d` are
    /// undecoded.
    fn whole() -> Batch {
        let mut batch = Batch::default();
        let mut message = Vec::new();
        for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let labels = Labels::from_pairs([("name", name)]);
            for time in 0..=number as i64 {
                batch.push_float_with_start(time, number as f64, -time);
            }
            batch.push_exemplar(TimedExemplar {
                labels: labels.as_ref(),
                value: number as f64,
                time: 7,
                has_own_time: true,
            });
            if number % 2 == 0 {
                batch.label_bytes().extend_from_slice(labels.as_bytes());
                batch.end_series();
            } else {
                let start = message.len();
                CanonicalKeys.push_key(&mut message, labels.as_ref());
                batch.end_unread_series(start..message.len());
            }
        }
        batch.put_message(message, &CanonicalKeys);
        batch
    }

    fn read(batch: &mut Batch, index: usize, outcome: LabelDecodeOutcome) {
        let read: Result<(), Infallible> = batch.read_key(index, |key, _, arena| {
            arena.extend_from_slice(key);
            Ok(outcome)
        });
        let Ok(()) = read;
    }

    #[test]
    fn part_has_whole_series_and_the_message_of_the_batch() {
        let whole = whole();
        let mut part = Batch::default();
        for _ in 0..2 {
            part.begin_part(&whole);
            for index in [0, 2, 3] {
                part.push_series_of(&whole, index);
            }
            part.assert_complete();
            for (index, number) in [0, 2, 3].into_iter().enumerate() {
                let (own, of_whole) = (part.series(index), whole.series(number));
                assert_eq!(format!("{own:?}"), format!("{of_whole:?}"));
                assert_eq!(part.key(index), whole.key(number));
                let exemplars: Vec<_> = part.exemplars().iter_series(index as u64).collect();
                let of_whole: Vec<_> = whole.exemplars().iter_series(number as u64).collect();
                assert_eq!(exemplars, of_whole);
            }
            assert!(Arc::ptr_eq(&part.message, &whole.message));
        }
        part.end_part();
        assert_eq!(Arc::strong_count(&whole.message), 1);
    }

    #[test]
    fn labels_decoded_later_are_copied_and_rejected_series_lose_their_samples() {
        let mut whole = whole();
        let mut part = Batch::default();
        part.begin_part(&whole);
        for index in [1, 3] {
            part.push_series_of(&whole, index);
        }
        read(&mut whole, 1, LabelDecodeOutcome::Stands);
        read(&mut whole, 3, LabelDecodeOutcome::Refused);
        part.copy_labels(0, &whole, 1);
        part.copy_labels(1, &whole, 3);
        part.copy_labels(0, &whole, 1);
        assert_eq!(part.series(0).labels, whole.series(1).labels);
        assert!(part.key_may_differ(0) && part.is_refused(1));
        assert_eq!(part.sample_count(), 2);
        // The buffer of a message that a part still has is left to the part.
        assert!(whole.take_message().is_empty());
        part.end_part();
        assert!(!whole.take_message().is_empty());
    }
}
