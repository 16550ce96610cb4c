//! Messages of the answers of reads, except samples.
//!
//! ```text
//! opened:    series found | series count | losses       labels:  count | delta-coded label sets
//! column:    values | ids                               names, values, losses: list of strings
//! exemplars: series: labels, exemplars                  metadata: name, type, help, unit
//! ```
//!
//! Invariant: decoded label sets are canonical, and ids are below the number of values.

use crate::bytes::{
    MalformedFrame, PeerFrameReader, push_count, push_f64, push_prefixed, push_zigzag,
};
use crate::frames::append::read_labels;
use firn_model::budget::Reservation;
use firn_model::columns::{COLUMN_VALUE_BYTES, LabelColumn};
use firn_model::error::Error;
use firn_model::exemplar::{ExemplarResult, SeriesExemplarResult};
use firn_model::label_code::{LabelsDecoder, LabelsEncoder};
use firn_model::labels::{Labels, LabelsRef};
use firn_model::metadata::{MetadataBatch, MetricMetadata, MetricType};
use std::sync::Arc;

/// Appends the number of series that a look-up has counted. The answer of the look-up, or its
/// failure, follows in the same message.
pub(crate) fn push_found(found: usize, into: &mut Vec<u8>) {
    push_count(found, into);
}

/// Returns the number of series that a look-up has counted, and the bytes after it.
pub(crate) fn split_found(bytes: &[u8]) -> Result<(usize, &[u8]), MalformedFrame> {
    let mut reader = PeerFrameReader::new(bytes);
    Ok((reader.usize()?, reader.rest()))
}

/// The answer of a look-up of a selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenedSelection {
    /// The number of series of the selection.
    pub series_count: usize,
    /// Texts about data that is missing in the selection.
    pub losses: Vec<String>,
}

/// Appends the message of an opened selection.
pub fn encode_opened(opened: &OpenedSelection, into: &mut Vec<u8>) {
    push_count(opened.series_count, into);
    push_texts(&opened.losses, into);
}

/// Decodes the message of an opened selection.
///
/// # Errors
///
/// [`MalformedFrame`] if `bytes` are not exactly one message; so do all decoders of this file.
pub fn decode_opened(bytes: &[u8]) -> Result<OpenedSelection, MalformedFrame> {
    let mut reader = PeerFrameReader::new(bytes);
    let opened = OpenedSelection {
        series_count: reader.usize()?,
        losses: read_texts(&mut reader)?,
    };
    reader.finish()?;
    Ok(opened)
}

/// The labels of consecutive series in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelsChunk {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl LabelsChunk {
    /// Returns the number of series in the chunk.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether the chunk has no series.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the labels of a series, given its index in the chunk, or `None` if it has fewer
    /// series. Allocates.
    pub fn labels(&self, index: usize) -> Option<Labels> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(LabelsRef::from_canonical(&self.bytes[start..end]).to_owned())
    }
}

/// Appends a message with label sets.
pub fn encode_labels(sets: impl ExactSizeIterator<Item = Labels>, into: &mut Vec<u8>) {
    let mut encoder = LabelsEncoder::default();
    push_count(sets.len(), into);
    for labels in sets {
        encoder.push(into, labels.as_ref());
    }
}

/// Decodes a message with label sets. Its memory is reserved in `memory` as it grows, because a set
/// that equals its predecessor takes two bytes.
///
/// # Errors
///
/// [`MalformedFrame`] as an error of kind `Invalid`, and the error of an exceeded budget.
pub fn decode_labels(bytes: &[u8], memory: &mut Reservation) -> Result<LabelsChunk, Error> {
    let mut reader = PeerFrameReader::new(bytes);
    let count = reader.count(1)?;
    memory.grow(count * size_of::<usize>())?;
    let mut chunk = LabelsChunk {
        bytes: Vec::new(),
        ends: Vec::with_capacity(count),
    };
    let mut rest = reader.rest();
    let mut decoder = LabelsDecoder::default();
    for _ in 0..count {
        let labels = decoder.read(&mut rest).map_err(|e| MalformedFrame(e.0))?;
        let needed = chunk.bytes.len() + labels.as_bytes().len();
        if needed > chunk.bytes.capacity() {
            let capacity = needed.max(2 * chunk.bytes.capacity());
            memory.grow(capacity - chunk.bytes.capacity())?;
            chunk.bytes.reserve_exact(capacity - chunk.bytes.len());
        }
        chunk.bytes.extend_from_slice(labels.as_bytes());
        chunk.ends.push(chunk.bytes.len());
    }
    reader.set_rest(rest);
    reader.finish()?;
    Ok(chunk)
}

/// Appends a message with a label column.
pub fn encode_column(column: &LabelColumn, into: &mut Vec<u8>) {
    push_count(column.values.len(), into);
    column
        .values
        .iter()
        .for_each(|value| push_prefixed(value, into));
    push_count(column.ids.len(), into);
    column
        .ids
        .iter()
        .for_each(|id| push_count(*id as usize, into));
}

/// Decodes a message with a label column. Reserves its memory in `memory` before it is allocated.
///
/// # Errors
///
/// [`MalformedFrame`] as an error of kind `Invalid`, and the error of an exceeded budget.
pub fn decode_column(bytes: &[u8], memory: &mut Reservation) -> Result<LabelColumn, Error> {
    let before = memory.bytes();
    let mut reader = PeerFrameReader::new(bytes);
    let count = reader.count(1)?;
    memory.grow(count * COLUMN_VALUE_BYTES + bytes.len())?;
    let mut values: Vec<Arc<[u8]>> = Vec::with_capacity(count);
    let mut value_bytes = 0;
    for _ in 0..count {
        let value = reader.prefixed()?;
        value_bytes += value.len() + COLUMN_VALUE_BYTES;
        values.push(value.into());
    }
    let count = reader.count(1)?;
    memory.grow(count * size_of::<u32>())?;
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count {
        let id = reader.u32()?;
        if id as usize >= values.len() {
            return Err(MalformedFrame("unknown value of a label column").into());
        }
        ids.push(id);
    }
    reader.finish()?;
    memory.shrink_to(before + value_bytes + count * size_of::<u32>());
    Ok(LabelColumn { ids, values })
}

/// Appends a message with byte strings: label values, or texts.
pub fn encode_strings<S: AsRef<[u8]>>(strings: &[S], into: &mut Vec<u8>) {
    push_count(strings.len(), into);
    let strings = strings.iter();
    strings.for_each(|string| push_prefixed(string.as_ref(), into));
}

/// Decodes a message with byte strings.
pub fn decode_strings(bytes: &[u8]) -> Result<Vec<Vec<u8>>, MalformedFrame> {
    let mut reader = PeerFrameReader::new(bytes);
    let count = reader.count(1)?;
    let mut strings = Vec::with_capacity(count);
    for _ in 0..count {
        strings.push(reader.prefixed()?.to_vec());
    }
    reader.finish()?;
    Ok(strings)
}

/// Decodes a message with texts: label names, or texts about losses.
pub fn decode_texts(bytes: &[u8]) -> Result<Vec<String>, MalformedFrame> {
    let mut reader = PeerFrameReader::new(bytes);
    let texts = read_texts(&mut reader)?;
    reader.finish()?;
    Ok(texts)
}

fn push_texts(texts: &[String], into: &mut Vec<u8>) {
    encode_strings(texts, into);
}

fn read_texts(reader: &mut PeerFrameReader<'_>) -> Result<Vec<String>, MalformedFrame> {
    let count = reader.count(1)?;
    let mut texts = Vec::with_capacity(count);
    for _ in 0..count {
        texts.push(reader.text()?.to_owned());
    }
    Ok(texts)
}

/// Appends a message with exemplars.
pub fn encode_exemplars(results: &[SeriesExemplarResult], into: &mut Vec<u8>) {
    push_count(results.len(), into);
    for result in results {
        push_prefixed(result.series.as_bytes(), into);
        push_count(result.exemplars.len(), into);
        for exemplar in &result.exemplars {
            push_prefixed(exemplar.labels.as_bytes(), into);
            push_f64(exemplar.value, into);
            push_zigzag(exemplar.time, into);
        }
    }
}

/// Decodes a message with exemplars.
pub fn decode_exemplars(bytes: &[u8]) -> Result<Vec<SeriesExemplarResult>, MalformedFrame> {
    let mut reader = PeerFrameReader::new(bytes);
    let count = reader.count(2)?;
    let mut results = Vec::with_capacity(count);
    for _ in 0..count {
        let series = read_labels(&mut reader)?.to_owned();
        let count = reader.count(10)?;
        let mut exemplars = Vec::with_capacity(count);
        for _ in 0..count {
            exemplars.push(ExemplarResult {
                labels: read_labels(&mut reader)?.to_owned(),
                value: reader.f64()?,
                time: reader.zigzag()?,
            });
        }
        results.push(SeriesExemplarResult { series, exemplars });
    }
    reader.finish()?;
    Ok(results)
}

/// Appends a message with metadata.
pub fn encode_metadata(metadata: &MetadataBatch, into: &mut Vec<u8>) {
    push_count(metadata.len(), into);
    for metric in metadata.iter() {
        push_prefixed(metric.name.as_bytes(), into);
        into.push(metric.kind.number());
        push_prefixed(metric.help.as_bytes(), into);
        push_prefixed(metric.unit.as_bytes(), into);
    }
}

/// Decodes a message with metadata.
pub fn decode_metadata(bytes: &[u8]) -> Result<MetadataBatch, MalformedFrame> {
    let mut reader = PeerFrameReader::new(bytes);
    let mut metadata = MetadataBatch::default();
    for _ in 0..reader.count(4)? {
        let name = reader.text()?;
        let kind = MetricType::from_number(reader.u8()?);
        metadata.push(MetricMetadata {
            name,
            kind: kind.ok_or(MalformedFrame("unknown metric type"))?,
            help: reader.text()?,
            unit: reader.text()?,
        });
    }
    reader.finish()?;
    Ok(metadata)
}
