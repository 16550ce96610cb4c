//! A series of a head: its samples of all sources in order of time.
//!
//! A series has chunks and samples behind them that came in order, and chunks and samples that did
//! not. Of two samples of one time that is taken which came in order, and of others the first.

use crate::tsdb::chunk::{Kind, Samples};
use crate::tsdb::error::TsdbError;
use crate::tsdb::head_chunks::{HeadChunk, HeadChunkFile};
use crate::tsdb::intervals::Intervals;
use crate::tsdb::ranges::Ranges;
use crate::tsdb::sample::{Sample, Value};
use firn_model::histogram::{Counts, ResetHint};
use firn_model::labels::{Labels, LabelsRef};
use firn_model::metadata::MetricType;
use firn_model::sample::TimestampMs;

/// An exemplar of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadExemplar {
    /// Labels of its own.
    pub labels: Labels,
    /// When it was taken.
    pub time: TimestampMs,
    /// What was observed.
    pub value: f64,
}

/// What a series measures, as far as it was logged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadMetadata {
    /// The type of its metric.
    pub metric_type: MetricType,
    /// The unit, empty if none is given.
    pub unit: Vec<u8>,
    /// The help, empty if none is given.
    pub help: Vec<u8>,
}

/// What a replay knows of a series.
#[derive(Debug)]
pub(super) struct Collected {
    pub labels: Labels,
    /// Chunks that came in order.
    pub chunks: Vec<HeadChunk>,
    /// Chunks that did not.
    pub late_chunks: Vec<HeadChunk>,
    /// Samples behind the chunks.
    pub samples: Vec<Sample>,
    /// Samples that came out of order and are in no chunk.
    pub late: Vec<Sample>,
    pub deleted: Intervals,
    pub exemplars: Vec<HeadExemplar>,
    pub metadata: Option<HeadMetadata>,
    /// Whether the series is gone, and others may have its labels.
    pub is_gone: bool,
}

impl Collected {
    pub fn new(labels: Labels) -> Self {
        Self {
            labels,
            chunks: Vec::new(),
            late_chunks: Vec::new(),
            samples: Vec::new(),
            late: Vec::new(),
            deleted: Intervals::default(),
            exemplars: Vec::new(),
            metadata: None,
            is_gone: false,
        }
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
            && self.late_chunks.is_empty()
            && self.samples.is_empty()
            && self.late.is_empty()
    }

    /// The time of the newest sample that came in order.
    pub fn newest(&self) -> Option<TimestampMs> {
        let chunk = self.chunks.last().map(|chunk| chunk.range.max);
        self.samples.last().map(|sample| sample.time).or(chunk)
    }

    /// The kind of the newest sample that came in order.
    pub fn newest_kind(&self) -> Kind {
        let of_sample = |sample: &Sample| match &sample.value {
            Value::Float(_) => Kind::Float,
            Value::Histogram(histogram) => match histogram.counts {
                Counts::Integer { .. } => Kind::Histogram,
                Counts::Float { .. } => Kind::FloatHistogram,
            },
        };
        let chunk = self.chunks.last().and_then(|chunk| chunk.encoding);
        let chunk = chunk.map(|encoding| encoding.kind());
        let sample = self.samples.last().map(of_sample);
        sample.or(chunk).unwrap_or(Kind::Float)
    }
}

/// A series of a head, and a walk over its samples.
#[derive(Debug)]
pub struct HeadSeries<'h, R> {
    files: &'h [HeadChunkFile<R>],
    labels: Labels,
    exemplars: Vec<HeadExemplar>,
    metadata: Option<HeadMetadata>,
    deleted: Intervals,
    min_valid_time: TimestampMs,
    chunks: std::vec::IntoIter<HeadChunk>,
    open: Option<(HeadChunk, Samples<'static>)>,
    samples: std::vec::IntoIter<Sample>,
    /// The next sample that came in order, read ahead.
    in_order: Option<Sample>,
    /// What came out of order, once it was put in order.
    late: Option<std::iter::Peekable<std::vec::IntoIter<Sample>>>,
    late_chunks: Vec<HeadChunk>,
    unsorted: Vec<Sample>,
    last_time: Option<TimestampMs>,
    /// Whether the sample before came in order; none at the start and where some are missing.
    last_source: Option<bool>,
}

impl<'h, R: Ranges> HeadSeries<'h, R> {
    pub(super) fn new(
        collected: Collected,
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

    /// The labels.
    pub fn labels(&self) -> LabelsRef<'_> {
        self.labels.as_ref()
    }

    /// The exemplars in order of time.
    pub fn exemplars(&self) -> &[HeadExemplar] {
        &self.exemplars
    }

    /// What the series measures, if that was logged.
    pub fn metadata(&self) -> Option<&HeadMetadata> {
        self.metadata.as_ref()
    }

    /// The next sample that is not deleted; none at the end. Times increase.
    pub fn next_sample(&mut self) -> Result<Option<Sample>, TsdbError> {
        loop {
            if self.in_order.is_none() {
                self.in_order = self.next_in_order()?;
            }
            let late_time = self.late()?.peek().map(|late| late.time);
            let in_order_time = self.in_order.as_ref().map(|sample| sample.time);
            let is_late = match (late_time, in_order_time) {
                (Some(late), Some(in_order)) => late < in_order,
                (late, _) => late.is_some(),
            };
            let sample = match is_late {
                true => self.late()?.next(),
                false => self.in_order.take(),
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
            if let Value::Histogram(histogram) = &mut sample.value
                && histogram.reset_hint == ResetHint::NotReset
                && source != Some(!is_late)
            {
                // It continues a sample that is not the one before any more.
                histogram.reset_hint = ResetHint::Unknown;
            }
            return Ok(Some(sample));
        }
    }

    fn next_in_order(&mut self) -> Result<Option<Sample>, TsdbError> {
        loop {
            if let Some((chunk, samples)) = &mut self.open {
                let chunk = *chunk;
                match samples.next() {
                    Some(Ok(sample)) if sample.time < self.min_valid_time => {
                        self.last_source = None;
                    }
                    Some(Ok(sample)) => return Ok(Some(sample)),
                    Some(Err(error)) => return Err(chunk.damaged(self.files, error)),
                    None => self.open = None,
                }
            } else if let Some(chunk) = self.chunks.next() {
                self.open = Some((chunk, chunk.samples(self.files)?));
            } else {
                return Ok(self.samples.next());
            }
        }
    }

    /// What came out of order, in order; of samples of one time the first.
    fn late(&mut self) -> Result<&mut std::iter::Peekable<std::vec::IntoIter<Sample>>, TsdbError> {
        if self.late.is_none() {
            let mut samples = Vec::new();
            for chunk in std::mem::take(&mut self.late_chunks) {
                for sample in chunk.samples(self.files)? {
                    samples.push(sample.map_err(|error| chunk.damaged(self.files, error))?);
                }
            }
            samples.append(&mut self.unsorted);
            // Of histograms in several chunks nothing is known of the one before.
            for sample in &mut samples {
                if let Value::Histogram(histogram) = &mut sample.value
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
