//! Samples of consecutive series in an answer.
//!
//! ```text
//! time column count | columns: length, differences of differences
//! | series count | series: column, values, start times?, histograms: index, histogram
//! ```
//!
//! Series with equal times share a column, as in [`SeriesBatch`]. A regular time costs one byte, a
//! value eight. Invariant: decoded times of a column strictly increase.

use crate::bytes::{
    MalformedFrame, PeerFrameReader, push_count, push_floats, push_varint, push_zigzag,
};
use crate::frames::histogram::{push_histogram, read_histogram};
use firn_model::columns::{SeriesBatch, SeriesColumns};
use firn_model::histogram::Histogram;
use std::ops::Range;
use std::sync::Arc;

/// Appends the message with series `series` of `batch`.
pub fn encode_columns(batch: &SeriesBatch, series: Range<usize>, into: &mut Vec<u8>) {
    // Series refer to columns of the whole batch; those of the message are numbered by first use.
    let mut columns: Vec<usize> = Vec::new();
    let mut numbers = vec![None; batch.time_column_count()];
    for series in series.clone().map(|index| batch.series(index)) {
        let number = &mut numbers[series.time_column];
        if number.is_none() {
            *number = Some(columns.len());
            columns.push(series.time_column);
        }
    }
    let mut unwritten = 0;
    let mut bytes = Vec::new();
    push_count(columns.len(), into);
    for series in series.clone().map(|index| batch.series(index)) {
        let number = numbers[series.time_column].unwrap_or(0);
        if number == unwritten {
            push_times(series.times, into);
            unwritten += 1;
        }
        push_count(number, &mut bytes);
        push_series(&series, &mut bytes);
    }
    push_count(series.len(), into);
    into.extend_from_slice(&bytes);
}

fn push_times(times: &[i64], into: &mut Vec<u8>) {
    push_count(times.len(), into);
    let (mut previous, mut step) = (0i64, 0i64);
    for time in times {
        let difference = time.wrapping_sub(previous);
        push_zigzag(difference.wrapping_sub(step), into);
        (previous, step) = (*time, difference);
    }
}

fn push_series(series: &SeriesColumns<'_>, into: &mut Vec<u8>) {
    push_floats(series.values, into);
    into.push(u8::from(!series.start_times.is_empty()));
    let mut previous = 0i64;
    for start in series.start_times {
        push_zigzag(start.wrapping_sub(previous), into);
        previous = *start;
    }
    push_count(series.histograms.len(), into);
    for (index, histogram) in series.histograms {
        push_varint(u64::from(*index), into);
        push_histogram(histogram, into);
    }
}

/// Decodes a message and appends its series to `into`. Returns their number. After an error, `into`
/// has some of the series.
///
/// # Errors
///
/// [`MalformedFrame`] if `bytes` are not exactly one message.
pub fn decode_columns(bytes: &[u8], into: &mut SeriesBatch) -> Result<usize, MalformedFrame> {
    let mut reader = PeerFrameReader::new(bytes);
    let count = reader.count(1)?;
    let mut columns = Vec::with_capacity(count);
    for _ in 0..count {
        columns.push(read_times(&mut reader)?);
    }
    let count = reader.count(3)?;
    let mut scratch = ColumnScratch::default();
    for _ in 0..count {
        let times = columns.get(reader.usize()?);
        let times = times.ok_or(MalformedFrame("unknown time column"))?;
        scratch.read_series(&mut reader, times.len())?;
        let histograms = scratch.histograms.drain(..);
        into.push(times, &scratch.values, &scratch.start_times, histograms);
    }
    reader.finish()?;
    Ok(count)
}

fn read_times(reader: &mut PeerFrameReader<'_>) -> Result<Vec<i64>, MalformedFrame> {
    let count = reader.count(1)?;
    let mut times: Vec<i64> = Vec::with_capacity(count);
    let (mut previous, mut step) = (0i64, 0i64);
    for index in 0..count {
        step = step.wrapping_add(reader.zigzag()?);
        let time = previous.wrapping_add(step);
        if index > 0 && time <= previous {
            return Err(MalformedFrame("times do not increase"));
        }
        times.push(time);
        previous = time;
    }
    Ok(times)
}

/// The columns of one series, reused for the next one.
#[derive(Default)]
struct ColumnScratch {
    values: Vec<f64>,
    start_times: Vec<i64>,
    histograms: Vec<(u32, Arc<Histogram>)>,
}

impl ColumnScratch {
    fn read_series(
        &mut self,
        reader: &mut PeerFrameReader<'_>,
        samples: usize,
    ) -> Result<(), MalformedFrame> {
        let value_bytes = samples.checked_mul(8);
        let value_bytes = value_bytes.ok_or(MalformedFrame("samples out of range"))?;
        let values = reader.bytes(value_bytes)?.as_chunks().0.iter();
        self.values.clear();
        self.values
            .extend(values.map(|bits| f64::from_bits(u64::from_le_bytes(*bits))));
        self.start_times.clear();
        if reader.bool()? {
            let mut previous = 0i64;
            for _ in 0..samples {
                previous = previous.wrapping_add(reader.zigzag()?);
                self.start_times.push(previous);
            }
        }
        self.histograms.clear();
        for _ in 0..reader.count(2)? {
            let index = reader.u32()?;
            let last = self.histograms.last();
            let is_after = last.is_none_or(|(last, _)| *last < index);
            if !is_after || index as usize >= samples {
                return Err(MalformedFrame("indexes of histograms are out of order"));
            }
            self.histograms
                .push((index, Arc::new(read_histogram(reader)?)));
        }
        Ok(())
    }
}
