//! Encodes batches as remote-write 2.0 requests, for senders.
//!
//! Fields are written in the order of their numbers and omitted if they have the default value,
//! like in Go's encoder. Symbols are numbered in order of their first use, after the empty one.

use super::field;
use crate::protobuf::{WireType, put_bytes, put_double, put_integer, put_key, put_varint};
use crate::remote_write::encode::put_histogram;
use crate::remote_write::field as plain_field;
use crate::remote_write::metadata::metric_type_number;
use crate::snappy;
use firn_model::batch::{Batch, SeriesSamples};
use firn_model::exemplar::TimedExemplar;
use firn_model::labels::{LabelsRef, METRIC_NAME};
use firn_model::metadata::{MetadataBatch, MetricMetadata};
use firn_model::sample::START_UNKNOWN;
use std::collections::HashMap;

/// The symbol table under construction, which numbers each string once, by first use.
#[derive(Default)]
struct SymbolTableEncoder<'b> {
    numbers: HashMap<&'b [u8], u32>,
    in_order: Vec<&'b [u8]>,
}

impl<'b> SymbolTableEncoder<'b> {
    fn intern(&mut self, text: &'b [u8]) -> u32 {
        *self.numbers.entry(text).or_insert_with(|| {
            self.in_order.push(text);
            self.in_order.len() as u32 - 1
        })
    }

    fn put_labels(&mut self, out: &mut Vec<u8>, number: u32, labels: LabelsRef<'b>) {
        let mut packed = Vec::new();
        for (name, value) in labels.pairs() {
            put_varint(&mut packed, self.intern(name).into());
            put_varint(&mut packed, self.intern(value).into());
        }
        if !packed.is_empty() {
            put_bytes(out, number, &packed);
        }
    }
}

/// Encodes the compressed body of a request with the series of `batch`, each with the metadata of
/// its metric in `metadata`.
pub fn encode_interned(batch: &Batch, metadata: &MetadataBatch) -> Vec<u8> {
    snappy::compress(&encode_message(batch, metadata))
}

/// Encodes the request without compressing it.
pub(super) fn encode_message(batch: &Batch, metadata: &MetadataBatch) -> Vec<u8> {
    let said: HashMap<&[u8], MetricMetadata<'_>> = metadata
        .iter()
        .map(|said| (said.name.as_bytes(), said))
        .collect();
    let mut table = SymbolTableEncoder::default();
    table.intern(b"");
    let (mut all_series, mut series_message) = (Vec::new(), Vec::new());
    for number in 0..batch.series_count() {
        let series = batch.series(number);
        series_message.clear();
        put_series(
            &mut series_message,
            series,
            batch.exemplars().iter_series(number as u64),
            &mut table,
        );
        if let Some(said) = said.get(series.labels.get(METRIC_NAME)) {
            let mut part = Vec::new();
            put_integer(
                &mut part,
                field::METADATA_TYPE,
                metric_type_number(said.kind),
            );
            let help = table.intern(said.help.as_bytes());
            put_integer(&mut part, field::METADATA_HELP, help.into());
            let unit = table.intern(said.unit.as_bytes());
            put_integer(&mut part, field::METADATA_UNIT, unit.into());
            put_bytes(&mut series_message, field::SERIES_METADATA, &part);
        }
        put_bytes(&mut all_series, field::REQUEST_SERIES, &series_message);
    }
    let mut message = Vec::new();
    for symbol in &table.in_order {
        put_bytes(&mut message, field::REQUEST_SYMBOL, symbol);
    }
    message.extend_from_slice(&all_series);
    message
}

fn put_series<'b>(
    out: &mut Vec<u8>,
    series: SeriesSamples<'b>,
    exemplars: impl Iterator<Item = TimedExemplar<'b>>,
    table: &mut SymbolTableEncoder<'b>,
) {
    let mut part = Vec::new();
    table.put_labels(out, field::SERIES_LABEL_REFS, series.labels);
    for (i, (time, value)) in series.times.iter().zip(series.values).enumerate() {
        part.clear();
        put_double(&mut part, plain_field::SAMPLE_VALUE, *value);
        put_integer(&mut part, plain_field::SAMPLE_TIME, *time as u64);
        let start = series.start_times.get(i).copied().unwrap_or(START_UNKNOWN);
        put_integer(&mut part, plain_field::SAMPLE_START, start as u64);
        put_bytes(out, field::SERIES_SAMPLE, &part);
    }
    for sample in series.histograms {
        part.clear();
        let (time, start_time) = (sample.time, sample.start_time);
        put_histogram(&mut part, time, start_time, &sample.histogram);
        put_bytes(out, field::SERIES_HISTOGRAM, &part);
    }
    for exemplar in exemplars {
        part.clear();
        table.put_labels(&mut part, field::EXEMPLAR_LABEL_REFS, exemplar.labels);
        put_key(&mut part, plain_field::EXEMPLAR_VALUE, WireType::Fixed64);
        part.extend_from_slice(&exemplar.value.to_le_bytes());
        put_integer(&mut part, plain_field::EXEMPLAR_TIME, exemplar.time as u64);
        put_bytes(out, field::SERIES_EXEMPLAR, &part);
    }
}
