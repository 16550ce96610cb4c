//! Builds chunks from samples with the boundaries of Prometheus (`storage/series.go`,
//! `NewSeriesToChunkEncoder`): after 120 samples, where the kind of the samples changes, and where
//! a histogram cannot be appended to the previous one.

use super::encoding::{ResetHeader, TsdbChunkEncoding, TsdbSampleKind};
use super::floats::{XorChunkSample, XorChunkWriter};
use super::histograms;
use super::layout::{HistogramChunkLayout, is_known_schema};
use super::union::{BucketIndexes, has_decreased};
use crate::error::TsdbError;
use crate::sample::stale_histogram;
use firn_model::histogram::{Histogram, HistogramCounts, ResetHint, spans_from_indexes};
use firn_model::sample::{START_UNKNOWN, TimestampMs};

/// Largest number of samples in a chunk.
const SAMPLES_MAX: u16 = 120;

/// Whether chunks contain start timestamps, which most older versions of Prometheus cannot read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkStartTimes {
    /// Leave them out, like Prometheus 3.14 without a feature flag. All versions can read the
    /// chunks.
    #[default]
    Drop,
    /// Write them with encodings that Prometheus 3.14 reads but most earlier versions do not.
    /// Chunks without any start timestamp use the other encodings.
    Keep,
}

/// A complete chunk of one series, ready to be written to a segment. It can be decoded without any
/// other chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltChunk {
    /// Encoding of the samples, to be stored with the data.
    pub encoding: TsdbChunkEncoding,
    /// Timestamp of the first sample.
    pub min_time: TimestampMs,
    /// Timestamp of the last sample.
    pub max_time: TimestampMs,
    /// Number of samples, at least one.
    pub samples: u16,
    /// The encoded samples, including the header.
    pub data: Vec<u8>,
}

/// Builds the chunks of one series after another. Buffers the samples of one chunk: at most 120
/// histograms, or the bits of as many floats.
#[derive(Debug, Default)]
pub struct ChunkBuilder {
    starts: ChunkStartTimes,
    last_time: Option<TimestampMs>,
    /// The previous sample, if it is a histogram.
    previous: Option<IndexedHistogram>,
    open: Option<OpenChunkSamples>,
}

/// A histogram with the indexes of its buckets, computed once for all comparisons.
#[derive(Clone, Debug)]
struct IndexedHistogram {
    histogram: Histogram,
    buckets: BucketIndexes,
}

#[derive(Debug)]
enum OpenChunkSamples {
    Floats {
        writer: Box<XorChunkWriter>,
        encoding: TsdbChunkEncoding,
        min_time: TimestampMs,
    },
    Histograms(HistogramChunkRun),
}

/// Histograms that will form one chunk, whose buckets are extended to their union.
#[derive(Debug)]
struct HistogramChunkRun {
    encoding: TsdbChunkEncoding,
    header: ResetHeader,
    buckets: BucketIndexes,
    samples: Vec<(TimestampMs, TimestampMs, IndexedHistogram)>,
}

impl ChunkBuilder {
    /// Returns a builder without samples.
    pub fn new(starts: ChunkStartTimes) -> Self {
        Self {
            starts,
            ..Self::default()
        }
    }

    /// Appends a float; returns the previous chunk if the sample starts a new one. Fails if the
    /// timestamp is not greater than the previous one.
    pub fn push_float(
        &mut self,
        time: TimestampMs,
        start_time: TimestampMs,
        value: f64,
    ) -> Result<Option<BuiltChunk>, TsdbError> {
        self.check_time(time)?;
        let has_start = self.starts == ChunkStartTimes::Keep && start_time != START_UNKNOWN;
        let is_open = match &self.open {
            Some(OpenChunkSamples::Floats {
                writer, encoding, ..
            }) => {
                writer.count() < SAMPLES_MAX && (!has_start || *encoding == TsdbChunkEncoding::Xor2)
            }
            _ => false,
        };
        let closed = if is_open { None } else { self.close() };
        let open = self.open.get_or_insert_with(|| OpenChunkSamples::Floats {
            writer: Box::new(if has_start {
                XorChunkWriter::new_xor2()
            } else {
                XorChunkWriter::new_xor()
            }),
            encoding: if has_start {
                TsdbChunkEncoding::Xor2
            } else {
                TsdbChunkEncoding::Xor
            },
            min_time: time,
        });
        if let OpenChunkSamples::Floats { writer, .. } = open {
            writer.push(XorChunkSample {
                time,
                start_time,
                value,
            });
        }
        self.previous = None;
        self.last_time = Some(time);
        Ok(closed)
    }

    /// Appends a histogram; returns the previous chunk if the sample starts a new one. Fails if the
    /// timestamp is not greater than the previous one, or if spans and buckets of the histogram do
    /// not match.
    pub fn push_histogram(
        &mut self,
        time: TimestampMs,
        start_time: TimestampMs,
        histogram: &Histogram,
    ) -> Result<Option<BuiltChunk>, TsdbError> {
        self.check_time(time)?;
        let is_float = matches!(histogram.counts, HistogramCounts::Float { .. });
        let has_start = self.starts == ChunkStartTimes::Keep && start_time != START_UNKNOWN;
        let encoding = match (is_float, has_start) {
            (false, false) => TsdbChunkEncoding::Histogram,
            (true, false) => TsdbChunkEncoding::FloatHistogram,
            (false, true) => TsdbChunkEncoding::HistogramStart,
            (true, true) => TsdbChunkEncoding::FloatHistogramStart,
        };
        let shaped = IndexedHistogram::new(histogram, is_float)?;
        let header = self.compare_with_previous(&shaped, encoding.kind());
        let is_joined = match &mut self.open {
            Some(OpenChunkSamples::Histograms(run)) => {
                header.continues
                    && run.encoding == encoding
                    && run.samples.len() < usize::from(SAMPLES_MAX)
                    && run.buckets.unite(&shaped.buckets)
            }
            _ => false,
        };
        let closed = if is_joined { None } else { self.close() };
        let open = self.open.get_or_insert_with(|| {
            OpenChunkSamples::Histograms(HistogramChunkRun {
                encoding,
                header: header.header,
                buckets: shaped.buckets.clone(),
                samples: Vec::new(),
            })
        });
        if let OpenChunkSamples::Histograms(run) = open {
            run.samples.push((time, start_time, shaped.clone()));
        }
        self.previous = Some(shaped);
        self.last_time = Some(time);
        Ok(closed)
    }

    /// Returns the last chunk of the series, if there is one, and makes the builder ready for
    /// another series.
    pub fn finish(&mut self) -> Option<BuiltChunk> {
        self.last_time = None;
        self.previous = None;
        self.close()
    }

    fn check_time(&self, time: TimestampMs) -> Result<(), TsdbError> {
        match self.last_time {
            Some(last) if last >= time => Err(TsdbError::Refused(format!(
                "sample at {time} is not after the previous one at {last}"
            ))),
            _ => Ok(()),
        }
    }

    /// Compares a histogram with the previous sample: returns whether it fits the open chunk, and
    /// the header of a new one.
    fn compare_with_previous(
        &self,
        new: &IndexedHistogram,
        kind: TsdbSampleKind,
    ) -> HistogramContinuation {
        let open = match &self.open {
            Some(OpenChunkSamples::Histograms(run)) if run.encoding.kind() == kind => {
                Some(run.header)
            }
            _ => None,
        };
        match (&self.previous, open) {
            (Some(previous), Some(header)) => check_continuation(previous, new, header),
            _ => HistogramContinuation::start_chunk(match new.histogram.reset_hint {
                ResetHint::Gauge => ResetHeader::Gauge,
                ResetHint::Reset => ResetHeader::Reset,
                ResetHint::Unknown | ResetHint::NotReset => ResetHeader::Unknown,
            }),
        }
    }

    fn close(&mut self) -> Option<BuiltChunk> {
        match self.open.take()? {
            OpenChunkSamples::Floats {
                writer,
                encoding,
                min_time,
            } => Some(BuiltChunk {
                encoding,
                min_time,
                max_time: writer.time(),
                samples: writer.count(),
                data: writer.finish(),
            }),
            OpenChunkSamples::Histograms(run) => run.build(),
        }
    }
}

impl IndexedHistogram {
    fn new(histogram: &Histogram, is_float: bool) -> Result<Self, TsdbError> {
        if histogram.is_stale() {
            let mut stale = stale_histogram(histogram.sum, is_float);
            stale.reset_hint = histogram.reset_hint;
            return Ok(Self {
                histogram: stale,
                buckets: BucketIndexes::default(),
            });
        }
        if !is_known_schema(histogram.schema) {
            let what = format!("histogram has the unknown schema {}", histogram.schema);
            return Err(TsdbError::Refused(what));
        }
        let buckets = BucketIndexes::from_histogram(histogram).ok_or_else(|| {
            TsdbError::Refused("spans and buckets of a histogram do not fit".into())
        })?;
        Ok(Self {
            histogram: histogram.clone(),
            buckets,
        })
    }
}

/// The relation of a histogram to the previous one, according to upstream's rules.
struct HistogramContinuation {
    /// True if both can be in the same chunk.
    continues: bool,
    /// Header of a chunk that begins with this histogram.
    header: ResetHeader,
}

impl HistogramContinuation {
    fn start_chunk(header: ResetHeader) -> Self {
        Self {
            continues: false,
            header,
        }
    }

    fn continue_chunk(header: ResetHeader) -> Self {
        Self {
            continues: true,
            header,
        }
    }
}

/// Applies the rules of `appendable` and `appendableGauge` in upstream; `header` is that of the
/// open chunk.
fn check_continuation(
    before: &IndexedHistogram,
    new: &IndexedHistogram,
    header: ResetHeader,
) -> HistogramContinuation {
    let (old, histogram) = (&before.histogram, &new.histogram);
    let has_bounds_of = |a: &Histogram, b: &Histogram| {
        let bits =
            |h: &Histogram| -> Vec<u64> { h.custom_values.iter().map(|b| b.to_bits()).collect() };
        bits(a) == bits(b)
    };
    let has_other_scale = histogram.schema != old.schema
        || histogram.zero_threshold.to_bits() != old.zero_threshold.to_bits();
    if histogram.reset_hint == ResetHint::Gauge {
        let is_new_shape = !histogram.is_stale()
            && (old.is_stale() || has_other_scale || !has_bounds_of(old, histogram));
        return if header != ResetHeader::Gauge || is_new_shape {
            HistogramContinuation::start_chunk(ResetHeader::Gauge)
        } else {
            HistogramContinuation::continue_chunk(ResetHeader::Gauge)
        };
    }
    if header == ResetHeader::Gauge {
        return HistogramContinuation::start_chunk(ResetHeader::Unknown);
    }
    if histogram.reset_hint == ResetHint::Reset {
        return HistogramContinuation::start_chunk(ResetHeader::Reset);
    }
    if histogram.is_stale() {
        return HistogramContinuation::continue_chunk(ResetHeader::NotReset);
    }
    if old.is_stale() {
        return HistogramContinuation::start_chunk(ResetHeader::Unknown);
    }
    if !has_other_scale && !has_bounds_of(old, histogram) {
        return HistogramContinuation::start_chunk(ResetHeader::Reset);
    }
    let counts = (
        (&before.buckets, &old.counts),
        (&new.buckets, &histogram.counts),
    );
    match (has_other_scale, has_decreased(counts.0, counts.1)) {
        (true, _) if !has_total_decreased(&old.counts, &histogram.counts) => {
            HistogramContinuation::start_chunk(ResetHeader::Unknown)
        }
        (_, true) | (true, false) => HistogramContinuation::start_chunk(ResetHeader::Reset),
        (false, false) => HistogramContinuation::continue_chunk(ResetHeader::NotReset),
    }
}

/// Returns whether the total count of observations has decreased, whatever the buckets.
fn has_total_decreased(before: &HistogramCounts, new: &HistogramCounts) -> bool {
    match (before, new) {
        (HistogramCounts::Integer { count, .. }, HistogramCounts::Integer { count: new, .. }) => {
            new < count
        }
        (HistogramCounts::Float { count, .. }, HistogramCounts::Float { count: new, .. }) => {
            new < count
        }
        (HistogramCounts::Integer { .. }, HistogramCounts::Float { .. })
        | (HistogramCounts::Float { .. }, HistogramCounts::Integer { .. }) => true,
    }
}

impl HistogramChunkRun {
    /// Encodes the histograms as a chunk; returns `None` if there are none.
    fn build(self) -> Option<BuiltChunk> {
        let (min_time, _, first) = self.samples.first()?;
        let (max_time, _, _) = self.samples.last()?;
        let (min_time, max_time) = (*min_time, *max_time);
        let spans =
            |side: &[i64]| spans_from_indexes(side).expect("indexes increase and lie near zero");
        let layout = HistogramChunkLayout {
            schema: first.histogram.schema,
            zero_threshold: first.histogram.zero_threshold,
            positive_spans: spans(&self.buckets.positive),
            negative_spans: spans(&self.buckets.negative),
            custom_values: first.histogram.custom_values.clone(),
        };
        let spread = self.samples.iter().map(|(time, start, shaped)| {
            let counts = &shaped.histogram.counts;
            let histogram = Histogram {
                counts: if shaped.histogram.is_stale() {
                    counts.clone()
                } else {
                    self.buckets.spread(&shaped.buckets, counts)
                },
                ..shaped.histogram.clone()
            };
            (*time, *start, histogram)
        });
        let has_starts = matches!(
            self.encoding,
            TsdbChunkEncoding::HistogramStart | TsdbChunkEncoding::FloatHistogramStart
        );
        Some(BuiltChunk {
            encoding: self.encoding,
            min_time,
            max_time,
            samples: self.samples.len() as u16,
            data: histograms::write(&layout, self.header, has_starts, spread),
        })
    }
}
