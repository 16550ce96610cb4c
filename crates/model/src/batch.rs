//! The columnar batch: the one form in which samples travel from a decoder to the log and the head.
//!
//! It is built once (by remote write, a scrape, a rule) and consumed once. Label sets lie one
//! behind the other in canonical form; samples lie in columns, each series owning a run of them.
//! A decoder may leave the labels of a series unread in its message. Their bytes there are the
//! [key](crate::series_key) of the series: a store that knows the key needs no more of the labels,
//! and has those of other series read through a [`Source`].
//!
//! ```text
//! unread --read--> canonical
//!           \----> refused: without labels and samples from then on
//! ```
//!
//! Invariant: label sets that are read are canonical; the columns of float samples have equal
//! length, but for `start_times`, which is empty while no sample has a start timestamp.

mod part;
mod take_out;

use crate::error::Error;
use crate::exemplar::{SeriesExemplars, TimedExemplar};
use crate::fingerprint::{Fingerprint, HashKeys, SeriesHash};
use crate::histogram::Histogram;
use crate::labels::LabelsRef;
use crate::log::Journal;
use crate::sample::{START_UNKNOWN, TimestampMs};
use crate::series_key::KeyFormat;
use std::ops::Range;

/// A native histogram with its times.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSample {
    /// When it was taken.
    pub time: TimestampMs,
    /// Since when it counts, or [`START_UNKNOWN`].
    pub start_time: TimestampMs,
    /// The value.
    pub histogram: Histogram,
}

/// What a decoder made of the labels of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The labels stand, and their canonical form is in the arena. The key may be another one than
    /// the format makes of them.
    Stands,
    /// Like `Stands`, and the key is the one that the format makes of the labels.
    StandsByKey,
    /// The labels cannot stand.
    Refused,
}

/// How far the labels of a series have been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Canonical,
    Unread,
    Read(Reading),
}

/// Where the labels of a series lie, in the arena or in the message.
#[derive(Clone, Copy, Debug)]
struct LabelSpan {
    start: u32,
    end: u32,
    form: Form,
}

impl LabelSpan {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Where the samples of a series end.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    floats: u32,
    histograms: u32,
}

/// Samples of many series, in columns. Reuse one with [`Batch::clear`] to keep its memory.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The message that unread labels lie in.
    message: Vec<u8>,
    /// How unread labels are written.
    key_format: Option<&'static dyn KeyFormat>,
    label_bytes: Vec<u8>,
    /// Where the labels of the series under way begin in the arena.
    labels_start: usize,
    labels: Vec<LabelSpan>,
    /// Samples of series that were refused.
    refused_samples: usize,
    times: Vec<TimestampMs>,
    values: Vec<f64>,
    start_times: Vec<TimestampMs>,
    histograms: Vec<HistogramSample>,
    ends: Vec<Ends>,
    /// None in nearly all batches.
    exemplars: SeriesExemplars,
    /// None in batches of senders.
    journal: Journal,
    is_followed: bool,
}

/// One series of a batch.
#[derive(Clone, Copy, Debug)]
pub struct SeriesSamples<'a> {
    /// The label set; empty while it is unread, see [`Batch::key`].
    pub labels: LabelsRef<'a>,
    /// Times of the float samples, in the order they arrived.
    pub times: &'a [TimestampMs],
    /// Values of the float samples; as many as times.
    pub values: &'a [f64],
    /// Start timestamps of the float samples; as many as times, or none at all.
    pub start_times: &'a [TimestampMs],
    /// Histogram samples.
    pub histograms: &'a [HistogramSample],
}

/// Samples on their way in, whose labels may lie there as they came.
pub trait Source {
    /// The samples.
    fn batch(&self) -> &Batch;

    /// Reads the labels of those of `series`, ascending numbers, that are unread. A series whose
    /// labels cannot stand is refused, and the source knows why. An error says that the whole batch
    /// cannot stand: nothing of it may be stored.
    fn read_labels(&mut self, series: &[u32]) -> Result<(), Error>;

    /// The fingerprint by `keys` of the key of each series, if they are at hand: of the key with
    /// which it came, or of the one that the format makes of its labels.
    fn prints(&self, _keys: &HashKeys) -> Option<&[Fingerprint]> {
        None
    }

    /// Takes out `series`, ascending numbers; those behind them get lower numbers. A source that
    /// does not own its batch returns what is left of it, and stays as it is.
    fn take_out(&mut self, series: &[u32]) -> Option<Batch>;
}

/// A batch of which everything has been read.
impl Source for &Batch {
    fn batch(&self) -> &Batch {
        self
    }

    fn read_labels(&mut self, _: &[u32]) -> Result<(), Error> {
        Ok(())
    }

    fn take_out(&mut self, series: &[u32]) -> Option<Batch> {
        let mut rest = (*self).clone();
        rest.take_out(series);
        Some(rest)
    }
}

impl Batch {
    /// Empties the batch and keeps its memory.
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
        self.journal = Journal::default();
        self.is_followed = false;
        self.key_format = None;
    }

    /// Adds a float sample to the series under way.
    #[inline]
    pub fn push_float(&mut self, time: TimestampMs, value: f64) {
        self.times.push(time);
        self.values.push(value);
        if !self.start_times.is_empty() {
            self.start_times.push(START_UNKNOWN);
        }
    }

    /// Adds a float sample that counts since `start_time` to the series under way.
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

    /// Adds a histogram sample to the series under way.
    pub fn push_histogram(&mut self, sample: HistogramSample) {
        self.histograms.push(sample);
    }

    /// Adds an exemplar to the series under way.
    pub fn push_exemplar(&mut self, exemplar: TimedExemplar<'_>) {
        self.exemplars.push(self.ends.len() as u64, exemplar);
    }

    /// The exemplars, with the numbers of their series; of refused series too.
    pub fn exemplars(&self) -> &SeriesExemplars {
        &self.exemplars
    }

    /// Has `journal` logged beside the samples. A store does not refuse such a batch, whose caller
    /// asked [`crate::store::Append::admit`] before.
    pub fn set_journal(&mut self, journal: Journal) {
        self.journal = journal;
    }

    /// What is logged beside the samples.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Says that the caller appends another batch at once, with which the record of this one may
    /// be written. The caller must call [`crate::store::Append::write_held`] behind it.
    pub fn set_followed(&mut self, is_followed: bool) {
        self.is_followed = is_followed;
    }

    /// See [`Batch::set_followed`].
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// The arena of label bytes: a decoder appends the canonical pairs of the series under way.
    pub fn label_bytes(&mut self) -> &mut Vec<u8> {
        &mut self.label_bytes
    }

    /// Takes out the memory of the message, to fill it: [`Batch::clear`] leaves it as it is, so
    /// that no byte is written twice. The decoder must put it back with [`Batch::put_message`].
    pub fn take_message(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.message)
    }

    /// Puts in the message that unread labels lie in, where `key_format` has written them.
    pub fn put_message(&mut self, message: Vec<u8>, key_format: &'static dyn KeyFormat) {
        let unread = self.labels.last().filter(|last| last.form == Form::Unread);
        assert!(
            unread.is_none_or(|last| last.end as usize <= message.len()),
            "a series key ends behind its message"
        );
        self.message = message;
        self.key_format = Some(key_format);
    }

    /// Bytes of the message that unread labels lie in.
    pub fn message_bytes(&self) -> usize {
        self.message.len()
    }

    /// Ends the series under way: the label bytes and samples added since the last end are its own.
    pub fn end_series(&mut self) {
        let (start, end) = (self.labels_start as u32, self.label_bytes.len() as u32);
        self.labels_start = self.label_bytes.len();
        self.labels.push(LabelSpan {
            start,
            end,
            form: Form::Canonical,
        });
        self.end_samples();
    }

    /// Ends the series under way, whose labels are the bytes `key` of the message, unread.
    #[inline]
    pub fn end_unread_series(&mut self, key: Range<usize>) {
        self.labels.push(LabelSpan {
            start: key.start as u32,
            end: key.end as u32,
            form: Form::Unread,
        });
        self.end_samples();
    }

    #[inline]
    fn end_samples(&mut self) {
        self.ends.push(Ends {
            floats: self.times.len() as u32,
            histograms: self.histograms.len() as u32,
        });
    }

    /// Takes back everything added to the series under way.
    pub fn drop_series(&mut self) {
        let last = self.starts(self.ends.len());
        self.label_bytes.truncate(self.labels_start);
        self.times.truncate(last.floats as usize);
        self.values.truncate(last.floats as usize);
        self.start_times.truncate(last.floats as usize);
        self.histograms.truncate(last.histograms as usize);
        self.exemplars.drop_last_of(self.ends.len() as u64);
    }

    /// The key of series `index`, unless its labels are in the batch already.
    #[inline]
    pub fn key(&self, index: usize) -> Option<&[u8]> {
        let span = self.labels[index];
        (span.form == Form::Unread).then(|| &self.message[span.range()])
    }

    /// Whether the keys of the batch, if it has any, are of `format`.
    pub fn has_keys_of(&self, format: &dyn KeyFormat) -> bool {
        self.key_format
            .is_none_or(|own| own.name() == format.name())
    }

    /// Adds the fingerprint of each series to `prints`: that of the key that it came with, or that
    /// is made of its labels. Keys must be of the format of `hash`; `key` is memory.
    pub fn push_prints(&self, hash: &SeriesHash, key: &mut Vec<u8>, prints: &mut Vec<Fingerprint>) {
        for i in 0..self.series_count() {
            prints.push(match self.key(i) {
                Some(key) => hash.keys.fingerprint(key),
                None => hash.of_labels(self.series(i).labels, key),
            });
        }
    }

    /// Whether series `index` came with a key that may differ from the one that the format makes of
    /// the labels, which were read since.
    #[inline]
    pub fn key_may_differ(&self, index: usize) -> bool {
        match self.labels[index].form {
            Form::Read(reading) => reading != Reading::StandsByKey,
            Form::Canonical | Form::Unread => false,
        }
    }

    /// Reads the labels of series `index` if they are unread, once no series is under way. `read`
    /// gets the key, the message from where the key begins, and the arena, to which it appends the
    /// canonical form; it says what came of it.
    pub fn read_key<E>(
        &mut self,
        index: usize,
        read: impl FnOnce(&[u8], &[u8], &mut Vec<u8>) -> Result<Reading, E>,
    ) -> Result<(), E> {
        let span = self.labels[index];
        if span.form != Form::Unread {
            return Ok(());
        }
        let start = self.label_bytes.len();
        let key = &self.message[span.range()];
        let beyond = &self.message[span.start as usize..];
        let reading = read(key, beyond, &mut self.label_bytes)?;
        if reading == Reading::Refused {
            self.label_bytes.truncate(start);
            let samples = self.series(index);
            self.refused_samples += samples.times.len() + samples.histograms.len();
        }
        self.labels[index] = LabelSpan {
            start: start as u32,
            end: self.label_bytes.len() as u32,
            form: Form::Read(reading),
        };
        self.labels_start = self.label_bytes.len();
        Ok(())
    }

    /// Adds a whole series of float samples.
    pub fn push_series(&mut self, labels: LabelsRef<'_>, samples: &[(TimestampMs, f64)]) {
        self.label_bytes.extend_from_slice(labels.as_bytes());
        for (time, value) in samples {
            self.push_float(*time, *value);
        }
        self.end_series();
    }

    /// Series in the batch, refused ones included.
    pub fn series_count(&self) -> usize {
        self.ends.len()
    }

    /// Samples in the batch, histograms included, those of refused series not.
    pub fn sample_count(&self) -> usize {
        self.times.len() + self.histograms.len() - self.refused_samples
    }

    /// Whether there is no series.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Panics if a series is under way or the columns do not fit each other. Costs a few
    /// comparisons: the pipeline calls it for each batch.
    pub fn assert_whole(&self) {
        let ends = self.starts(self.ends.len());
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

    /// Bytes of memory that the batch holds.
    pub fn memory_bytes(&self) -> usize {
        self.message.capacity()
            + self.label_bytes.capacity()
            + self.labels.capacity() * size_of::<LabelSpan>()
            + self.times.capacity() * 8
            + self.values.capacity() * 8
            + self.start_times.capacity() * 8
            + self.histograms.capacity() * size_of::<HistogramSample>()
            + self.ends.capacity() * size_of::<Ends>()
            + self.exemplars.memory_bytes()
            + self.journal.bytes.capacity()
    }

    /// The series with number `index`, without samples if it was refused; panics past the end.
    #[inline]
    pub fn series(&self, index: usize) -> SeriesSamples<'_> {
        let start = self.starts(index);
        let end = self.ends[index];
        let span = self.labels[index];
        let (labels, is_refused) = match span.form {
            Form::Read(Reading::Refused) => (&[][..], true),
            Form::Canonical | Form::Read(_) => (&self.label_bytes[span.range()], false),
            Form::Unread => (&[][..], false),
        };
        let (floats, histograms) = match is_refused {
            true => (0..0, 0..0),
            false => (
                start.floats as usize..end.floats as usize,
                start.histograms as usize..end.histograms as usize,
            ),
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

    /// Where the float samples and the histograms of series `index` begin in their columns.
    #[inline]
    pub fn offsets(&self, index: usize) -> (usize, usize) {
        let start = self.starts(index);
        (start.floats as usize, start.histograms as usize)
    }

    /// Whether series `index` was refused when its labels were read.
    pub fn is_refused(&self, index: usize) -> bool {
        self.labels[index].form == Form::Read(Reading::Refused)
    }

    /// Time and value of series `index` if it has one float sample without a start timestamp and
    /// nothing else, as nearly all have.
    #[inline]
    pub fn sole_float(&self, index: usize) -> Option<(TimestampMs, f64)> {
        let (start, end) = (self.starts(index), self.ends[index]);
        let is_sole = end.floats == start.floats + 1
            && end.histograms == start.histograms
            && self.start_times.is_empty()
            && self.labels[index].form != Form::Read(Reading::Refused);
        if !is_sole {
            return None;
        }
        let at = start.floats as usize;
        Some((self.times[at], self.values[at]))
    }

    /// The series in the order they were added, but for those that were refused.
    pub fn iter(&self) -> impl Iterator<Item = SeriesSamples<'_>> {
        self.numbered().map(|(_, series)| series)
    }

    /// Like [`Batch::iter`], with the numbers of the series.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, SeriesSamples<'_>)> {
        let stands = |i: &usize| self.labels[*i].form != Form::Read(Reading::Refused);
        let numbered = |i| (i as u64, self.series(i));
        (0..self.ends.len()).filter(stands).map(numbered)
    }

    #[inline]
    fn starts(&self, index: usize) -> Ends {
        match index.checked_sub(1) {
            Some(previous) => self.ends[previous],
            None => Ends::default(),
        }
    }
}
