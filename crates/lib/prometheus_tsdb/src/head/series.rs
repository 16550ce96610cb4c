//! A series of a head: its samples from all sources, sorted by time.
//!
//! A series has in-order chunks followed by in-order samples, and out-of-order chunks and samples.
//! Of two samples with the same timestamp, the in-order one is used, or else the first one.

use crate::chunk::{TsdbChunkSamples, TsdbSampleKind};
use crate::error::TsdbError;
use crate::head_chunks::{HeadChunk, HeadChunkFile};
use crate::intervals::DeletedIntervals;
use crate::ranges::ReadRanges;
use crate::sample::{TsdbSample, TsdbSampleValue};
use firn_model::histogram::{HistogramCounts, ResetHint};
use firn_model::labels::{Labels, LabelsRef};
use firn_model::metadata::MetricType;
use firn_model::sample::TimestampMs;

/// An exemplar of a series in the head, from the WAL. Exemplars are returned with their series.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadExemplar {
    /// Labels of the exemplar, for example the trace id.
    pub labels: Labels,
    /// Timestamp in milliseconds.
    pub time: TimestampMs,
    /// The observed value.
    pub value: f64,
}

/// The metadata of a series, as far as the WAL contains it; the latest entry wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadMetadata {
    /// Type of the metric.
    pub metric_type: MetricType,
    /// Unit of the metric; empty if there is none.
    pub unit: Vec<u8>,
    /// Help text of the metric; empty if there is none.
    pub help: Vec<u8>,
}

/// The data of a series that a replay has collected, before its samples are merged.
#[derive(Debug)]
pub(super) struct CollectedHeadSeries {
    pub labels: Labels,
    /// In-order chunks, sorted by time and without overlaps.
    pub chunks: Vec<HeadChunk>,
    /// Out-of-order chunks, which may overlap all others.
    pub late_chunks: Vec<HeadChunk>,
    /// In-order samples after the chunks.
    pub samples: Vec<TsdbSample>,
    /// Out-of-order samples that are in no chunk.
    pub late: Vec<TsdbSample>,
    pub deleted: DeletedIntervals,
    pub exemplars: Vec<HeadExemplar>,
    pub metadata: Option<HeadMetadata>,
    /// True if the series was deleted, so that another one may have its labels.
    pub is_gone: bool,
}

impl CollectedHeadSeries {
    pub fn new(labels: Labels) -> Self {
        Self {
            labels,
            chunks: Vec::new(),
            late_chunks: Vec::new(),
            samples: Vec::new(),
            late: Vec::new(),
            deleted: DeletedIntervals::default(),
            exemplars: Vec::new(),
            metadata: None,
            is_gone: false,
        }
    }

    /// Returns whether the series has no sample.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
            && self.late_chunks.is_empty()
            && self.samples.is_empty()
            && self.late.is_empty()
    }

    /// Returns the timestamp of the newest in-order sample. Returns `None` if there is none.
    pub fn newest(&self) -> Option<TimestampMs> {
        let chunk = self.chunks.last().map(|chunk| chunk.range.max);
        self.samples.last().map(|sample| sample.time).or(chunk)
    }

    /// Returns the kind of the newest in-order sample. Floats if there is none.
    pub fn newest_kind(&self) -> TsdbSampleKind {
        let of_sample = |sample: &TsdbSample| match &sample.value {
            TsdbSampleValue::Float(_) => TsdbSampleKind::Float,
            TsdbSampleValue::Histogram(histogram) => match histogram.counts {
                HistogramCounts::Integer { .. } => TsdbSampleKind::Histogram,
                HistogramCounts::Float { .. } => TsdbSampleKind::FloatHistogram,
            },
        };
        let chunk = self.chunks.last().and_then(|chunk| chunk.encoding);
        let chunk = chunk.map(|encoding| encoding.kind());
        let sample = self.samples.last().map(of_sample);
        sample.or(chunk).unwrap_or(TsdbSampleKind::Float)
    }
}

/// A series of a head, and an iteration over its samples, which merges in-order and out-of-order
/// sources.
#[derive(Debug)]
pub struct HeadSeries<'h, R> {
    files: &'h [HeadChunkFile<R>],
    labels: Labels,
    exemplars: Vec<HeadExemplar>,
    metadata: Option<HeadMetadata>,
    deleted: DeletedIntervals,
    min_valid_time: TimestampMs,
    chunks: std::vec::IntoIter<HeadChunk>,
    open: Option<(HeadChunk, TsdbChunkSamples<'static>)>,
    samples: std::vec::IntoIter<TsdbSample>,
    /// The next in-order sample, which was read ahead.
    in_order: Option<TsdbSample>,
    /// Out-of-order samples, once they were sorted.
    late: Option<std::iter::Peekable<std::vec::IntoIter<TsdbSample>>>,
    late_chunks: Vec<HeadChunk>,
    unsorted: Vec<TsdbSample>,
    last_time: Option<TimestampMs>,
    /// True if the previous sample was in order; `None` at the start and after deleted samples.
    last_source: Option<bool>,
}

impl<'h, R: ReadRanges> HeadSeries<'h, R> {
    pub(super) fn new(
        collected: CollectedHeadSeries,
        files: &'h [HeadChunkFile<R>],
        min_valid_time: TimestampMs,
    ) -> Self {
        Self {
            files,
            labels: collected.labels,
            exemplars: collected.exemplars,
            metadata: collected.metadata,
            deleted: collected.deleted,
            min_valid_time,
            chunks: collected.chunks.into_iter(),
            open: None,
            samples: collected.samples.into_iter(),
            in_order: None,
            late: None,
            late_chunks: collected.late_chunks,
            unsorted: collected.late,
            last_time: None,
            last_source: None,
        }
    }

    /// Returns the labels of the series.
    pub fn labels(&self) -> LabelsRef<'_> {
        self.labels.as_ref()
    }

    /// Returns the exemplars, sorted by time.
    pub fn exemplars(&self) -> &[HeadExemplar] {
        &self.exemplars
    }

    /// Returns the metadata of the series, if the WAL contains it.
    pub fn metadata(&self) -> Option<&HeadMetadata> {
        self.metadata.as_ref()
    }

    /// Returns the next sample that is not deleted, or `None` at the end. Timestamps increase.
    /// Fails if a chunk is damaged.
    pub fn next_sample(&mut self) -> Result<Option<TsdbSample>, TsdbError> {
        loop {
            if self.in_order.is_none() {
                self.in_order = self.next_in_order()?;
            }
            let late_time = self.late_samples()?.peek().map(|late| late.time);
            let in_order_time = self.in_order.as_ref().map(|sample| sample.time);
            let is_late = match (late_time, in_order_time) {
                (Some(late), Some(in_order)) => late < in_order,
                (late, _) => late.is_some(),
            };
            let sample = if is_late {
                self.late_samples()?.next()
            } else {
                self.in_order.take()
            };
            let Some(mut sample) = sample else {
                return Ok(None);
            };
            if self.last_time.is_some_and(|last| last >= sample.time) {
                continue;
            }
            if self.deleted.contains(sample.time) {
                self.last_source = None;
                continue;
            }
            self.last_time = Some(sample.time);
            let source = self.last_source.replace(!is_late);
            if let TsdbSampleValue::Histogram(histogram) = &mut sample.value
                && histogram.reset_hint == ResetHint::NotReset
                && source != Some(!is_late)
            {
                // The hint refers to a sample that is no longer the previous one.
                histogram.reset_hint = ResetHint::Unknown;
            }
            return Ok(Some(sample));
        }
    }

    fn next_in_order(&mut self) -> Result<Option<TsdbSample>, TsdbError> {
        loop {
            if let Some((chunk, samples)) = &mut self.open {
                let chunk = *chunk;
                match samples.next() {
                    Some(Ok(sample)) if sample.time < self.min_valid_time => {
                        self.last_source = None;
                    }
                    Some(Ok(sample)) => return Ok(Some(sample)),
                    Some(Err(error)) => return Err(chunk.damage_error(self.files, error)),
                    None => self.open = None,
                }
            } else if let Some(chunk) = self.chunks.next() {
                self.open = Some((chunk, chunk.read_samples(self.files)?));
            } else {
                return Ok(self.samples.next());
            }
        }
    }

    /// Returns the out-of-order samples, sorted and with the first of equal timestamps. Fails if a
    /// chunk is damaged.
    fn late_samples(
        &mut self,
    ) -> Result<&mut std::iter::Peekable<std::vec::IntoIter<TsdbSample>>, TsdbError> {
        if self.late.is_none() {
            let mut samples = Vec::new();
            for chunk in std::mem::take(&mut self.late_chunks) {
                for sample in chunk.read_samples(self.files)? {
                    samples.push(sample.map_err(|error| chunk.damage_error(self.files, error))?);
                }
            }
            samples.append(&mut self.unsorted);
            // Histograms from several chunks have no known predecessor.
            for sample in &mut samples {
                if let TsdbSampleValue::Histogram(histogram) = &mut sample.value
                    && histogram.reset_hint == ResetHint::NotReset
                {
                    histogram.reset_hint = ResetHint::Unknown;
                }
            }
            samples.sort_by_key(|sample| sample.time);
            samples.dedup_by_key(|sample| sample.time);
            self.late = Some(samples.into_iter().peekable());
        }
        Ok(self
            .late
            .get_or_insert_with(|| Vec::new().into_iter().peekable()))
    }
}
