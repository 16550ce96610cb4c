//! Encodes the two kinds of read responses.

use super::field;
use crate::protobuf::{put_bytes, put_double, put_integer, put_varint};
use crate::remote_write::encode_histogram;
use crate::snappy;
use firn_model::columns::SeriesColumns;
use firn_model::labels::{Labels, LabelsRef};
use firn_model::sample::START_UNKNOWN;
use firn_prometheus_tsdb::{BuiltChunk, ChunkBuilder, ChunkStartTimes, TsdbError};

/// Writes the labels of a series, and those of `external` that the series does not have, in sorted
/// order.
fn put_labels(out: &mut Vec<u8>, labels: LabelsRef<'_>, external: &Labels) {
    let mut part = Vec::new();
    let mut put = |name: &str, value: &[u8]| {
        part.clear();
        put_bytes(&mut part, field::LABEL_NAME, name.as_bytes());
        put_bytes(&mut part, field::LABEL_VALUE, value);
        put_bytes(out, field::SERIES_LABELS, &part);
    };
    let mut others = external.iter().peekable();
    for (name, value) in labels.iter() {
        while let Some((other, of_other)) = others.next_if(|(other, _)| *other < name) {
            put(other, of_other);
        }
        let _same = others.next_if(|(other, _)| *other == name);
        put(name, value);
    }
    others.for_each(|(name, value)| put(name, value));
}

/// Builds a `SAMPLES` response, which is one message with the results of all queries and is held in
/// memory as a whole.
#[derive(Debug, Default)]
pub struct SamplesResponseBuilder {
    message: Vec<u8>,
    result: Vec<u8>,
    series: Vec<u8>,
    part: Vec<u8>,
}

impl SamplesResponseBuilder {
    /// Appends a series to the result of the current query, without samples if `samples` is `None`.
    pub fn push(
        &mut self,
        labels: LabelsRef<'_>,
        external: &Labels,
        samples: Option<SeriesColumns<'_>>,
    ) {
        self.series.clear();
        put_labels(&mut self.series, labels, external);
        if let Some(samples) = samples {
            self.put_samples(samples);
        }
        put_bytes(&mut self.result, field::RESULT_SERIES, &self.series);
    }

    fn put_samples(&mut self, samples: SeriesColumns<'_>) {
        let mut histograms = samples.histograms.iter().peekable();
        for (i, (time, value)) in samples.times.iter().zip(samples.values).enumerate() {
            if histograms.next_if(|(at, _)| *at as usize == i).is_some() {
                continue;
            }
            self.part.clear();
            put_double(&mut self.part, field::SAMPLE_VALUE, *value);
            put_integer(&mut self.part, field::SAMPLE_TIME, *time as u64);
            put_bytes(&mut self.series, field::SERIES_SAMPLES, &self.part);
        }
        for (at, histogram) in samples.histograms {
            let Some(time) = samples.times.get(*at as usize) else {
                continue;
            };
            self.part.clear();
            encode_histogram(&mut self.part, *time, histogram);
            put_bytes(&mut self.series, field::SERIES_HISTOGRAMS, &self.part);
        }
    }

    /// Ends the result of the current query; the next series belongs to the next query.
    pub fn end_query(&mut self) {
        put_bytes(&mut self.message, field::RESULTS, &self.result);
        self.result.clear();
    }

    /// Returns the size of the response so far in bytes, before compression.
    pub fn len(&self) -> usize {
        self.message.len() + self.result.len()
    }

    /// Returns whether the response is still empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the body of the response, compressed with snappy. The length of the message is known
    /// only now.
    pub fn finish(self) -> Vec<u8> {
        snappy::compress(&self.message)
    }
}

/// Builds a `STREAMED_XOR_CHUNKS` response, frame by frame, so that the response can be sent while
/// it grows.
#[derive(Debug)]
pub struct ChunkedResponseBuilder {
    bytes_max: usize,
    external: Labels,
    /// Encoded labels of the current series.
    labels: Vec<u8>,
    chunks: Vec<u8>,
    message: Vec<u8>,
}

impl ChunkedResponseBuilder {
    /// Returns a writer of frames of about `bytes_max` bytes; a frame can exceed that because
    /// chunks are not split. Series get the `external` labels that they do not have.
    pub fn new(bytes_max: usize, external: Labels) -> Self {
        Self {
            bytes_max,
            external,
            labels: Vec::new(),
            chunks: Vec::new(),
            message: Vec::new(),
        }
    }

    /// Appends the frames of a series of the query with index `query` to `out`; none if the series
    /// has no sample.
    pub fn push(
        &mut self,
        out: &mut Vec<u8>,
        query: usize,
        labels: LabelsRef<'_>,
        samples: SeriesColumns<'_>,
    ) -> Result<(), TsdbError> {
        self.labels.clear();
        put_labels(&mut self.labels, labels, &self.external);
        let mut builder = ChunkBuilder::new(ChunkStartTimes::Drop);
        let mut histograms = samples.histograms.iter().peekable();
        for (i, (time, value)) in samples.times.iter().zip(samples.values).enumerate() {
            let closed = match histograms.next_if(|(at, _)| *at as usize == i) {
                Some((_, histogram)) => builder.push_histogram(*time, START_UNKNOWN, histogram)?,
                None => builder.push_float(*time, START_UNKNOWN, *value)?,
            };
            if let Some(chunk) = closed {
                self.put_chunk(&chunk);
                if self.labels.len() + self.chunks.len() >= self.bytes_max {
                    self.end_frame(out, query);
                }
            }
        }
        if let Some(chunk) = builder.finish() {
            self.put_chunk(&chunk);
        }
        if !self.chunks.is_empty() {
            self.end_frame(out, query);
        }
        Ok(())
    }

    /// Appends a frame that contains the labels of a series of the query with index `query` and no
    /// chunk.
    pub fn push_labels(&mut self, out: &mut Vec<u8>, query: usize, labels: LabelsRef<'_>) {
        self.labels.clear();
        put_labels(&mut self.labels, labels, &self.external);
        self.end_frame(out, query);
    }

    fn put_chunk(&mut self, chunk: &BuiltChunk) {
        let part = &mut self.message;
        part.clear();
        put_integer(part, field::CHUNK_MIN_TIME, chunk.min_time as u64);
        put_integer(part, field::CHUNK_MAX_TIME, chunk.max_time as u64);
        put_integer(part, field::CHUNK_TYPE, chunk.encoding.number().into());
        put_bytes(part, field::CHUNK_DATA, &chunk.data);
        put_bytes(&mut self.chunks, field::SERIES_CHUNKS, part);
    }

    fn end_frame(&mut self, out: &mut Vec<u8>, query: usize) {
        self.message.clear();
        let mut series = Vec::with_capacity(self.labels.len() + self.chunks.len());
        series.extend_from_slice(&self.labels);
        series.append(&mut self.chunks);
        put_bytes(&mut self.message, field::CHUNKED_SERIES, &series);
        put_integer(&mut self.message, field::QUERY_INDEX, query as u64);
        put_varint(out, self.message.len() as u64);
        out.extend_from_slice(&crc32c::crc32c(&self.message).to_be_bytes());
        out.extend_from_slice(&self.message);
    }
}
