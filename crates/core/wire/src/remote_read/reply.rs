//! Decodes read responses of other servers, of either type, to series.
//!
//! Invariant: for any input, memory is reserved before it is allocated, samples are inside the
//! requested range, and the timestamps of a series strictly ascend.

use super::field;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use crate::remote_write::{decode_histogram, fit_histogram, name_and_value, read_sample};
use crate::snappy;
use firn_model::budget::Reservation;
use firn_model::columns::{HISTOGRAM_PLACEHOLDER, SeriesBatch, SeriesColumns};
use firn_model::error::{Error, ErrorKind};
use firn_model::histogram::Histogram;
use firn_model::labels::{Labels, LabelsBuilder};
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs};
use firn_prometheus_tsdb::{TsdbChunkEncoding, TsdbChunkSamples, TsdbSampleValue};
use std::sync::Arc;

/// Size of the checksum between the length and the message of a frame, in bytes.
const CHECKSUM_BYTES: usize = 4;

/// Largest size of a frame's length, a varint, in bytes.
const LENGTH_BYTES_MAX: usize = 10;

/// Memory of a decoded sample in bytes.
const SAMPLE_BYTES: usize = size_of::<ReadSample>();

/// Memory of a decoded series in bytes, without labels and samples.
const SERIES_BYTES: usize = size_of::<RemoteReadSeries>() + 64;

/// One sample of a decoded series, a float or a histogram, with its timestamps.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadSample {
    /// Timestamp in milliseconds since the Unix epoch.
    pub time: TimestampMs,
    /// Start timestamp, or [`START_UNKNOWN`]: the protocol does not transmit it.
    pub start_time: TimestampMs,
    /// The float value; for a histogram a placeholder.
    pub value: f64,
    /// The histogram, if the sample is one.
    pub histogram: Option<Arc<Histogram>>,
}

/// A decoded series with its samples, whose timestamps strictly ascend. Series of several sources
/// can be merged.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteReadSeries {
    /// Labels of the series, sorted by name.
    pub labels: Labels,
    /// Samples with strictly ascending timestamps.
    pub samples: Vec<ReadSample>,
}

impl RemoteReadSeries {
    /// Merges the samples of `columns` into the series. At equal timestamps the sample of `columns`
    /// wins.
    pub fn merge_columns(&mut self, columns: SeriesColumns<'_>) {
        let mut histograms = columns.histograms.iter().peekable();
        let of_columns = columns.times.iter().zip(columns.values).enumerate();
        let of_columns = of_columns.map(|(i, (time, value))| ReadSample {
            time: *time,
            start_time: columns.start_times.get(i).copied().unwrap_or(START_UNKNOWN),
            value: *value,
            histogram: histograms
                .next_if(|(at, _)| *at as usize == i)
                .map(|(_, histogram)| histogram.clone()),
        });
        let mut all: Vec<ReadSample> = of_columns.collect();
        all.append(&mut self.samples);
        self.samples = all;
        self.sort_and_dedup();
    }

    /// Appends the series with all its samples to `into`, as one new series.
    pub fn append_to(&self, into: &mut SeriesBatch) {
        let times: Vec<_> = self.samples.iter().map(|sample| sample.time).collect();
        let values: Vec<_> = self.samples.iter().map(|sample| sample.value).collect();
        let has_starts = self
            .samples
            .iter()
            .any(|sample| sample.start_time != START_UNKNOWN);
        let starts = self.samples.iter().filter(|_| has_starts);
        let starts: Vec<_> = starts.map(|sample| sample.start_time).collect();
        let histograms = self.samples.iter().enumerate();
        let histograms =
            histograms.filter_map(|(i, sample)| Some((i as u32, sample.histogram.clone()?)));
        into.push(&times, &values, &starts, histograms);
    }

    /// Merges the samples of `other` into the series. At equal timestamps the existing sample wins.
    pub fn merge(&mut self, mut other: RemoteReadSeries) {
        self.samples.append(&mut other.samples);
        self.sort_and_dedup();
    }

    /// Sorts the samples by timestamp and keeps the first of equal timestamps.
    fn sort_and_dedup(&mut self) {
        if self.samples.is_sorted_by(|a, b| a.time < b.time) {
            return;
        }
        self.samples.sort_by_key(|sample| sample.time);
        self.samples.dedup_by_key(|sample| sample.time);
    }
}

/// Collects the series of a response of either type, and drops samples outside of the requested
/// range. Adjacent frames of a series become one series.
#[derive(Debug)]
struct ReadSeriesCollector {
    range: TimeRange,
    series: Vec<RemoteReadSeries>,
}

impl ReadSeriesCollector {
    fn new(range: TimeRange) -> Self {
        let series = Vec::new();
        Self { range, series }
    }

    /// Starts a series, unless the current one has the same labels; fails if the memory budget is
    /// exhausted.
    fn begin(&mut self, labels: Labels, memory: &mut Reservation) -> Result<(), Error> {
        if self.series.last().is_some_and(|last| last.labels == labels) {
            return Ok(());
        }
        memory.grow(SERIES_BYTES + labels.as_bytes().len())?;
        let samples = Vec::new();
        self.end_series();
        self.series.push(RemoteReadSeries { labels, samples });
        Ok(())
    }

    fn end_series(&mut self) {
        if let Some(last) = self.series.last_mut() {
            last.samples.shrink_to_fit();
            last.sort_and_dedup();
        }
    }

    fn push(
        &mut self,
        time: TimestampMs,
        value: Result<f64, Histogram>,
        memory: &mut Reservation,
    ) -> Result<(), Error> {
        let Some(series) = self.series.last_mut().filter(|_| self.range.contains(time)) else {
            return Ok(());
        };
        let (value, histogram) = match value {
            Ok(value) => (value, None),
            Err(mut histogram) => {
                fit_histogram(&mut histogram)?;
                memory.grow(histogram.memory_bytes())?;
                (HISTOGRAM_PLACEHOLDER, Some(Arc::new(histogram)))
            }
        };
        if series.samples.len() == series.samples.capacity() {
            let more = series.samples.len().max(16);
            memory.grow(more * SAMPLE_BYTES)?;
            series.samples.reserve_exact(more);
        }
        series.samples.push(ReadSample {
            time,
            start_time: START_UNKNOWN,
            value,
            histogram,
        });
        Ok(())
    }

    fn finish(mut self) -> Vec<RemoteReadSeries> {
        self.end_series();
        self.series
    }
}

/// Decodes a `SAMPLES` response with the result of one query over `range`. Memory is reserved in
/// `memory`. Fails if the response is malformed or the memory budget is exhausted.
pub fn decode_samples(
    body: &[u8],
    range: TimeRange,
    memory: &mut Reservation,
) -> Result<Vec<RemoteReadSeries>, Error> {
    let bytes = snappy::declared_bytes(body, usize::MAX)?;
    memory.grow(bytes)?;
    let mut message = Vec::new();
    snappy::decompress(body, bytes, &mut message)?;
    let mut taking = ReadSeriesCollector::new(range);
    let mut results = 0;
    for_each_field(&message, field::RESULTS, |result| {
        results += 1;
        if results > 1 {
            return Ok(());
        }
        for_each_field(result, field::RESULT_SERIES, |series| {
            decode_sampled_series(series, &mut taking, memory)
        })
    })?;
    if results != 1 {
        return Err(invalid(format!("responses: want 1, got {results}")));
    }
    drop(message);
    memory.shrink_to(memory.bytes() - bytes);
    Ok(taking.finish())
}

fn decode_sampled_series(
    message: &[u8],
    taking: &mut ReadSeriesCollector,
    memory: &mut Reservation,
) -> Result<(), Error> {
    taking.begin(decode_labels(message)?, memory)?;
    for_each_field(message, field::SERIES_SAMPLES, |sample| {
        let sample = read_sample(sample)?;
        taking.push(sample.time, Ok(sample.value), memory)
    })?;
    for_each_field(message, field::SERIES_HISTOGRAMS, |histogram| {
        let sample = decode_histogram(histogram)?;
        taking.push(sample.time, Err(sample.histogram), memory)
    })
}

/// A frame, and the bytes after it.
type Split<'b> = (&'b [u8], &'b [u8]);

/// Decodes a `STREAMED_XOR_CHUNKS` response that arrives in pieces of any size. Buffers at most one
/// incomplete frame.
#[derive(Debug)]
pub struct ChunkFrameReader {
    taking: ReadSeriesCollector,
    frame_bytes_max: u64,
    /// Received bytes that do not form a complete frame yet.
    pending: Vec<u8>,
}

impl ChunkFrameReader {
    /// Returns a reader for the response to one query over `range`; longer frames than
    /// `frame_bytes_max` are rejected.
    pub fn new(range: TimeRange, frame_bytes_max: u64) -> Self {
        Self {
            taking: ReadSeriesCollector::new(range),
            frame_bytes_max,
            pending: Vec::new(),
        }
    }

    /// Decodes the complete frames in the next piece of the response. Memory is reserved in
    /// `memory`. Fails if a frame is malformed or too large.
    pub fn push(&mut self, piece: &[u8], memory: &mut Reservation) -> Result<(), Error> {
        memory.grow(piece.len())?;
        self.pending.extend_from_slice(piece);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        while let Some((frame, behind)) = self.split_frame(rest)? {
            self.decode_frame(frame, memory)?;
            rest = behind;
        }
        let done = pending.len() - rest.len();
        self.pending = pending;
        self.pending.drain(..done);
        memory.shrink_to(memory.bytes() - done);
        Ok(())
    }

    /// Returns the first frame of `bytes` after its checksum was verified, and the bytes after
    /// it; `None` if the frame is incomplete.
    fn split_frame<'b>(&self, bytes: &'b [u8]) -> Result<Option<Split<'b>>, Error> {
        let has_length = bytes.iter().take(LENGTH_BYTES_MAX).any(|byte| *byte < 0x80);
        if !has_length && bytes.len() < LENGTH_BYTES_MAX {
            return Ok(None);
        }
        let mut cursor = ProtobufCursor::new(bytes);
        let length = cursor.read_varint()?;
        if length > self.frame_bytes_max {
            return Err(invalid(format!(
                "chunkedReader: message size exceeded the limit {} bytes; got: {length} bytes",
                self.frame_bytes_max
            )));
        }
        let split = cursor.rest().split_at_checked(CHECKSUM_BYTES);
        let Some((checksum, behind)) = split else {
            return Ok(None);
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(split) = behind.split_at_checked(length) else {
            return Ok(None);
        };
        if crc32c::crc32c(split.0).to_be_bytes() == checksum {
            Ok(Some(split))
        } else {
            Err(invalid("chunkedReader: corrupted frame; checksum mismatch"))
        }
    }

    fn decode_frame(&mut self, frame: &[u8], memory: &mut Reservation) -> Result<(), Error> {
        let taking = &mut self.taking;
        for_each_field(frame, field::CHUNKED_SERIES, |series| {
            taking.begin(decode_labels(series)?, memory)?;
            for_each_field(series, field::SERIES_CHUNKS, |chunk| {
                decode_chunk(chunk, taking, memory)
            })
        })
    }

    /// Returns the series; fails if the response ends within a frame.
    pub fn finish(self) -> Result<Vec<RemoteReadSeries>, Error> {
        if self.pending.is_empty() {
            Ok(self.taking.finish())
        } else {
            Err(invalid("unexpected EOF"))
        }
    }
}

fn decode_chunk(
    message: &[u8],
    taking: &mut ReadSeriesCollector,
    memory: &mut Reservation,
) -> Result<(), Error> {
    let (mut kind, mut data) = (0, &b""[..]);
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            field::CHUNK_TYPE => {
                expect_wire_type(wire_type, WireType::Varint)?;
                kind = cursor.read_varint()?;
            }
            field::CHUNK_DATA => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                data = cursor.read_bytes()?;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    let encoding = u8::try_from(kind)
        .ok()
        .and_then(TsdbChunkEncoding::from_number);
    let encoding = encoding.ok_or_else(|| invalid(format!("invalid chunk encoding {kind}")))?;
    let malformed = |e| invalid(format!("chunk: {e}"));
    for sample in TsdbChunkSamples::new(encoding, data).map_err(malformed)? {
        let sample = sample.map_err(malformed)?;
        let value = match sample.value {
            TsdbSampleValue::Float(value) => Ok(value),
            TsdbSampleValue::Histogram(histogram) => Err(*histogram),
        };
        taking.push(sample.time, value, memory)?;
    }
    Ok(())
}

/// Calls `read` with each field of this number; fails if one is not length-delimited.
fn for_each_field(
    message: &[u8],
    wanted: u32,
    mut read: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        if number != wanted {
            cursor.skip(wire_type)?;
            continue;
        }
        expect_wire_type(wire_type, WireType::Bytes)?;
        read(cursor.read_bytes()?)?;
    }
    Ok(())
}

/// Decodes the labels of a series; fails with the error text of Prometheus if they are invalid.
fn decode_labels(series: &[u8]) -> Result<Labels, Error> {
    let mut labels = LabelsBuilder::default();
    for_each_field(series, field::SERIES_LABELS, |label| {
        let (name, value) = name_and_value(label)?;
        let shown = String::from_utf8_lossy(name);
        let name = std::str::from_utf8(name)
            .ok()
            .filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| invalid(format!("invalid label name: {shown}")))?;
        if !labels.get(name).is_empty() {
            return Err(invalid(format!("duplicate label with name: {name}")));
        }
        if std::str::from_utf8(value).is_err() {
            let shown = String::from_utf8_lossy(value);
            return Err(invalid(format!("invalid label value: {shown}")));
        }
        labels.set(name, value);
        Ok(())
    })?;
    Ok(labels.build())
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message.into())
}
