//! The columnar batch: the form in which samples are passed from a decoder to the log and the head.
//!
//! A batch is built once (by remote write, a scrape, a rule) and consumed once. Label sets are
//! stored one after another in canonical form. Samples are stored in columns, in which each series
//! owns a contiguous run. A decoder may leave the labels of a series undecoded in its message.
//! Their encoded bytes are the [key](crate::series_key) of the series. A store that contains a
//! series with this key does not need the labels; it lets a [`BatchSource`] decode the labels of
//! all other series.
//!
//! ```text
//! unread --read--> canonical
//!           \----> refused: without labels and samples from then on
//! ```
//!
//! Invariant: decoded label sets are canonical. The columns of float samples have equal length,
//! except `start_times`, which is empty as long as no sample has a start timestamp.

mod part;
mod series;
mod size;
mod split;
mod take_out;

use crate::error::Error;
use crate::exemplar::{SeriesExemplars, TimedExemplar};
use crate::fingerprint::{Fingerprint, HashKeys, SeriesHash};
use crate::labels::LabelsRef;
use crate::log::JournalRecord;
use crate::sample::{START_UNKNOWN, TimestampMs};
use crate::series_key::KeyFormat;
pub use series::{HistogramSample, LabelDecodeOutcome, SeriesSamples};
use series::{LabelDecodeState, LabelSpan, SampleColumnEnds};
use std::ops::Range;
use std::sync::Arc;

/// Samples of many series in columns. Reuse a batch with [`Batch::clear`] to keep its memory.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The message that contains undecoded labels, shared with the parts of the batch. Empty if all
    /// labels were added in decoded form.
    message: Arc<Vec<u8>>,
    /// The format of the keys in the message. `None` if there is no message.
    key_format: Option<&'static dyn KeyFormat>,
    label_bytes: Vec<u8>,
    /// The start of the current series' labels in the arena.
    labels_start: usize,
    labels: Vec<LabelSpan>,
    /// Number of samples of rejected series, which are still in the columns.
    refused_samples: usize,
    times: Vec<TimestampMs>,
    values: Vec<f64>,
    start_times: Vec<TimestampMs>,
    histograms: Vec<HistogramSample>,
    ends: Vec<SampleColumnEnds>,
    /// The exemplars of all series. Empty in nearly all batches.
    exemplars: SeriesExemplars,
    /// The journal to log with the samples. Empty in batches of remote senders.
    journal: JournalRecord,
    is_followed: bool,
}

/// A batch to append, and the decoder of its labels. Labels may be undecoded, as they were
/// received.
pub trait BatchSource {
    /// Returns the batch with its samples. Its labels may be undecoded.
    fn batch(&self) -> &Batch;

    /// Decodes the labels of `series`, except those that are decoded already. `series` contains
    /// indexes in ascending order.
    ///
    /// A series with invalid labels is rejected, and the source records the reason. An error means
    /// that the whole batch is invalid, so none of it may be stored.
    fn read_labels(&mut self, series: &[u32]) -> Result<(), Error>;

    /// Returns the fingerprints of the keys of all series under `keys`, if they have been computed.
    /// The key of a series is either the received one or the one that the key format creates from
    /// its labels.
    fn fingerprints(&self, _keys: &HashKeys) -> Option<&[Fingerprint]> {
        None
    }

    /// Removes `series`, which contains indexes in ascending order; the following series get lower
    /// indexes. A source that does not own its batch remains unchanged and returns the remaining
    /// series.
    fn remove_series(&mut self, series: &[u32]) -> Option<Batch>;
}

/// A batch whose labels are all decoded, so it needs no decoder.
impl BatchSource for &Batch {
    fn batch(&self) -> &Batch {
        self
    }

    fn read_labels(&mut self, _: &[u32]) -> Result<(), Error> {
        Ok(())
    }

    fn remove_series(&mut self, series: &[u32]) -> Option<Batch> {
        let mut rest = (*self).clone();
        rest.remove_series(series);
        Some(rest)
    }
}

impl Batch {
    /// Removes all series and keeps the memory, so that the batch can be reused.
    pub fn clear(&mut self) {
        self.label_bytes.clear();
        self.labels_start = 0;
        self.labels.clear();
        self.refused_samples = 0;
        self.times.clear();
        self.values.clear();
        self.start_times.clear();
        self.histograms.clear();
        self.ends.clear();
        self.exemplars.clear();
        self.journal = JournalRecord::default();
        self.is_followed = false;
        self.key_format = None;
    }

    /// Adds a float sample without a start timestamp to the current series.
    #[inline]
    pub fn push_float(&mut self, time: TimestampMs, value: f64) {
        self.times.push(time);
        self.values.push(value);
        if !self.start_times.is_empty() {
            self.start_times.push(START_UNKNOWN);
        }
    }

    /// Adds a float sample with a start timestamp to the current series.
    pub fn push_float_with_start(
        &mut self,
        time: TimestampMs,
        value: f64,
        start_time: TimestampMs,
    ) {
        if self.start_times.is_empty() {
            self.start_times.resize(self.times.len(), START_UNKNOWN);
        }
        self.times.push(time);
        self.values.push(value);
        self.start_times.push(start_time);
    }

    /// Adds a histogram sample to the current series. Its order relative to floats is not stored.
    pub fn push_histogram(&mut self, sample: HistogramSample) {
        self.histograms.push(sample);
    }

    /// Adds an exemplar to the current series. Its labels are copied.
    pub fn push_exemplar(&mut self, exemplar: TimedExemplar<'_>) {
        self.exemplars.push(self.ends.len() as u64, exemplar);
    }

    /// Returns the exemplars with the indexes of their series, including those of rejected series.
    pub fn exemplars(&self) -> &SeriesExemplars {
        &self.exemplars
    }

    /// Sets the journal that is logged together with the samples. A store does not reject such a
    /// batch, because the caller has called [`crate::store::Append::admit`] before.
    pub fn set_journal(&mut self, journal: JournalRecord) {
        self.journal = journal;
    }

    /// Returns the journal that is logged together with the samples.
    pub fn journal(&self) -> &JournalRecord {
        &self.journal
    }

    /// Sets whether the caller appends another batch immediately, so that both log records may be
    /// written together. The caller must then call [`crate::store::Append::write_held_record`] at
    /// the end.
    pub fn set_followed(&mut self, is_followed: bool) {
        self.is_followed = is_followed;
    }

    /// Returns the value set by [`Batch::set_followed`], which is false by default.
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Returns the arena of label bytes. A decoder appends the canonical labels of the current
    /// series to it.
    pub fn label_bytes(&mut self) -> &mut Vec<u8> {
        &mut self.label_bytes
    }

    /// Removes and returns the buffer of the message, so that the decoder can fill it.
    /// [`Batch::clear`] does not change its contents, so that no byte is written twice. The buffer
    /// is new if parts of the batch still have the message. The decoder must return the buffer with
    /// [`Batch::put_message`].
    pub fn take_message(&mut self) -> Vec<u8> {
        Arc::get_mut(&mut self.message).map_or_else(Vec::new, std::mem::take)
    }

    /// Sets the message that contains undecoded labels, which `key_format` has encoded. Panics if a
    /// key ends after the message.
    pub fn put_message(&mut self, message: Vec<u8>, key_format: &'static dyn KeyFormat) {
        let unread = self
            .labels
            .last()
            .filter(|last| last.form == LabelDecodeState::Unread);
        assert!(
            unread.is_none_or(|last| last.end as usize <= message.len()),
            "a series key ends behind its message"
        );
        match Arc::get_mut(&mut self.message) {
            Some(own) => *own = message,
            None => self.message = Arc::new(message),
        }
        self.key_format = Some(key_format);
    }

    /// Returns the length of the message with undecoded labels, in bytes.
    pub fn message_bytes(&self) -> usize {
        self.message.len()
    }

    /// Ends the current series. It owns the label bytes and samples that were added since the
    /// previous series ended.
    pub fn end_series(&mut self) {
        let (start, end) = (self.labels_start as u32, self.label_bytes.len() as u32);
        self.labels_start = self.label_bytes.len();
        self.labels.push(LabelSpan {
            start,
            end,
            form: LabelDecodeState::Canonical,
        });
        self.end_samples();
    }

    /// Ends the current series, whose undecoded labels are the bytes `key` of the message.
    #[inline]
    pub fn end_unread_series(&mut self, key: Range<usize>) {
        self.labels.push(LabelSpan {
            start: key.start as u32,
            end: key.end as u32,
            form: LabelDecodeState::Unread,
        });
        self.end_samples();
    }

    #[inline]
    fn end_samples(&mut self) {
        self.ends.push(SampleColumnEnds {
            floats: self.times.len() as u32,
            histograms: self.histograms.len() as u32,
        });
    }

    /// Discards everything that was added to the current series.
    pub fn drop_series(&mut self) {
        let last = self.previous_ends(self.ends.len());
        self.label_bytes.truncate(self.labels_start);
        self.times.truncate(last.floats as usize);
        self.values.truncate(last.floats as usize);
        self.start_times.truncate(last.floats as usize);
        self.histograms.truncate(last.histograms as usize);
        self.exemplars.drop_last_of(self.ends.len() as u64);
    }

    /// Returns the key of series `index`, or `None` if its labels are decoded.
    #[inline]
    pub fn key(&self, index: usize) -> Option<&[u8]> {
        let span = self.labels[index];
        (span.form == LabelDecodeState::Unread).then(|| &self.message[span.range()])
    }

    /// Returns whether the keys of the batch, if there are any, have the given format.
    pub fn has_key_format(&self, format: &dyn KeyFormat) -> bool {
        self.key_format
            .is_none_or(|own| own.name() == format.name())
    }

    /// Appends the fingerprint of each series to `prints`: that of the received key, or of
    /// the key that is created from its labels. Keys must have the format of `hash`. `key` is a
    /// reusable buffer.
    pub fn push_fingerprints(
        &self,
        hash: &SeriesHash,
        key: &mut Vec<u8>,
        prints: &mut Vec<Fingerprint>,
    ) {
        for i in 0..self.series_count() {
            prints.push(match self.key(i) {
                Some(key) => hash.keys.fingerprint(key),
                None => hash.hash_labels(self.series(i).labels, key),
            });
        }
    }

    /// Returns whether series `index` was received with a key that may differ from the one created
    /// from its labels, which have been decoded since.
    #[inline]
    pub fn key_may_differ(&self, index: usize) -> bool {
        match self.labels[index].form {
            LabelDecodeState::Read(reading) => reading != LabelDecodeOutcome::StandsByKey,
            LabelDecodeState::Canonical | LabelDecodeState::Unread => false,
        }
    }

    /// Decodes the labels of series `index`, unless they are decoded already. There must be no
    /// current series.
    ///
    /// `read` receives the key, the message from the start of the key on, and the arena, to which
    /// it appends the canonical labels. It returns whether the labels are valid.
    pub fn read_key<E>(
        &mut self,
        index: usize,
        read: impl FnOnce(&[u8], &[u8], &mut Vec<u8>) -> Result<LabelDecodeOutcome, E>,
    ) -> Result<(), E> {
        let span = self.labels[index];
        if span.form != LabelDecodeState::Unread {
            return Ok(());
        }
        let start = self.label_bytes.len();
        let key = &self.message[span.range()];
        let beyond = &self.message[span.start as usize..];
        let reading = read(key, beyond, &mut self.label_bytes)?;
        if reading == LabelDecodeOutcome::Refused {
            self.label_bytes.truncate(start);
            let samples = self.series(index);
            self.refused_samples += samples.times.len() + samples.histograms.len();
        }
        self.labels[index] = LabelSpan {
            start: start as u32,
            end: self.label_bytes.len() as u32,
            form: LabelDecodeState::Read(reading),
        };
        self.labels_start = self.label_bytes.len();
        Ok(())
    }

    /// Adds a complete series of float samples without start timestamps, and ends it.
    pub fn push_series(&mut self, labels: LabelsRef<'_>, samples: &[(TimestampMs, f64)]) {
        self.label_bytes.extend_from_slice(labels.as_bytes());
        for (time, value) in samples {
            self.push_float(*time, *value);
        }
        self.end_series();
    }

    /// Returns the number of series, including rejected ones but not the current one.
    pub fn series_count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the number of samples, including histograms, but not those of rejected series.
    pub fn sample_count(&self) -> usize {
        self.times.len() + self.histograms.len() - self.refused_samples
    }

    /// Returns whether the batch contains no series, not even rejected ones.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Panics if there is a current series or the lengths of columns do not match. The check is
    /// cheap; the pipeline calls it for each batch.
    pub fn assert_complete(&self) {
        let ends = self.previous_ends(self.ends.len());
        let (floats, histograms) = (ends.floats as usize, ends.histograms as usize);
        assert_eq!(self.labels.len(), self.ends.len(), "labels of each series");
        assert_eq!(self.times.len(), floats, "times of whole series");
        assert_eq!(self.values.len(), floats, "values of whole series");
        assert_eq!(
            self.histograms.len(),
            histograms,
            "histograms of whole series"
        );
        let starts = self.start_times.len();
        assert!(
            starts == 0 || starts == floats,
            "start times of all samples"
        );
    }

    /// Returns the memory of the batch in bytes, including unused capacity.
    pub fn memory_bytes(&self) -> usize {
        self.message.capacity()
            + self.label_bytes.capacity()
            + self.labels.capacity() * size_of::<LabelSpan>()
            + self.times.capacity() * 8
            + self.values.capacity() * 8
            + self.start_times.capacity() * 8
            + self.histograms.capacity() * size_of::<HistogramSample>()
            + self.ends.capacity() * size_of::<SampleColumnEnds>()
            + self.exemplars.memory_bytes()
            + self.journal.bytes.capacity()
    }

    /// Returns series `index`, without samples if it was rejected. Panics if `index` is out of
    /// range.
    #[inline]
    pub fn series(&self, index: usize) -> SeriesSamples<'_> {
        let start = self.previous_ends(index);
        let end = self.ends[index];
        let span = self.labels[index];
        let (labels, is_refused) = match span.form {
            LabelDecodeState::Read(LabelDecodeOutcome::Refused) => (&[][..], true),
            LabelDecodeState::Canonical | LabelDecodeState::Read(_) => {
                (&self.label_bytes[span.range()], false)
            }
            LabelDecodeState::Unread => (&[][..], false),
        };
        let (floats, histograms) = if is_refused {
            (0..0, 0..0)
        } else {
            (
                start.floats as usize..end.floats as usize,
                start.histograms as usize..end.histograms as usize,
            )
        };
        let has_starts = !self.start_times.is_empty();
        SeriesSamples {
            labels: LabelsRef::from_canonical(labels),
            times: &self.times[floats.clone()],
            values: &self.values[floats.clone()],
            start_times: if has_starts {
                &self.start_times[floats]
            } else {
                &[]
            },
            histograms: &self.histograms[histograms],
        }
    }

    /// Returns the indexes of the first float sample and the first histogram of series `index` in
    /// their columns.
    #[inline]
    pub fn offsets(&self, index: usize) -> (usize, usize) {
        let start = self.previous_ends(index);
        (start.floats as usize, start.histograms as usize)
    }

    /// Returns whether series `index` was rejected when its labels were decoded.
    pub fn is_refused(&self, index: usize) -> bool {
        self.labels[index].form == LabelDecodeState::Read(LabelDecodeOutcome::Refused)
    }

    /// Returns the timestamp and value of series `index` if it has exactly one float sample and
    /// neither a start timestamp nor histograms. This applies to nearly all series.
    #[inline]
    pub fn single_float(&self, index: usize) -> Option<(TimestampMs, f64)> {
        let (start, end) = (self.previous_ends(index), self.ends[index]);
        let is_sole = end.floats == start.floats + 1
            && end.histograms == start.histograms
            && self.start_times.is_empty()
            && self.labels[index].form != LabelDecodeState::Read(LabelDecodeOutcome::Refused);
        if !is_sole {
            return None;
        }
        let at = start.floats as usize;
        Some((self.times[at], self.values[at]))
    }

    /// Returns the series in the order in which they were added, except rejected ones.
    pub fn iter(&self) -> impl Iterator<Item = SeriesSamples<'_>> {
        self.iter_with_index().map(|(_, series)| series)
    }

    /// Returns the series like [`Batch::iter`], each with its index in the batch.
    pub fn iter_with_index(&self) -> impl Iterator<Item = (u64, SeriesSamples<'_>)> {
        let stands =
            |i: &usize| self.labels[*i].form != LabelDecodeState::Read(LabelDecodeOutcome::Refused);
        let numbered = |i| (i as u64, self.series(i));
        (0..self.ends.len()).filter(stands).map(numbered)
    }

    #[inline]
    fn previous_ends(&self, index: usize) -> SampleColumnEnds {
        match index.checked_sub(1) {
            Some(previous) => self.ends[previous],
            None => SampleColumnEnds::default(),
        }
    }
}
