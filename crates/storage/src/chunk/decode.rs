//! From a chunk's body to columns, many samples at a time where runs allow it.

use super::{HISTOGRAM, START};
use crate::codec::cursor::Cursor;
use crate::codec::time::TimeState;
use crate::codec::value::ValueState;
use crate::codec::{Malformed, histogram, unzigzag};
use firn_model::columns::{HISTOGRAM_PLACEHOLDER, SeriesBatch};
use firn_model::histogram::Histogram;
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs};
use std::sync::Arc;

/// Decoded samples, in the shape of [`firn_model::columns::SeriesColumns`]. Reuse one to keep its
/// memory.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Timestamps.
    pub times: Vec<TimestampMs>,
    /// As many values.
    pub values: Vec<f64>,
    /// As many start timestamps, or none at all.
    pub start_times: Vec<TimestampMs>,
    /// Histograms with their index in `times`.
    pub histograms: Vec<(u32, Arc<Histogram>)>,
}

/// The value of one sample.
#[derive(Clone, Debug)]
pub enum Sample {
    /// A float.
    Float(f64),
    /// A histogram.
    Histogram(Arc<Histogram>),
}

impl Columns {
    /// Empties the columns and keeps their memory.
    pub fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.start_times.clear();
        self.histograms.clear();
    }

    /// Drops the samples from the one with number `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.times.truncate(len);
        self.values.truncate(len);
        self.start_times.truncate(len);
        let kept = self
            .histograms
            .partition_point(|(i, _)| (*i as usize) < len);
        self.histograms.truncate(kept);
    }

    /// Drops the samples from number `len` on that are not newer than the one before it.
    pub(crate) fn drop_repeated(&mut self, len: usize) {
        let Some(last) = len.checked_sub(1).and_then(|i| self.times.get(i)).copied() else {
            return;
        };
        let repeated = self.times[len..].partition_point(|t| *t <= last);
        if repeated == 0 {
            return;
        }
        self.times.drain(len..len + repeated);
        self.values.drain(len..len + repeated);
        if !self.start_times.is_empty() {
            self.start_times.drain(len..len + repeated);
        }
        let gone = len..len + repeated;
        self.histograms
            .retain(|(i, _)| !gone.contains(&(*i as usize)));
        for (i, _) in &mut self.histograms {
            if *i as usize >= gone.end {
                *i -= repeated as u32;
            }
        }
    }

    /// The samples one by one, as (time, start, value).
    pub fn samples(&self) -> impl Iterator<Item = (TimestampMs, TimestampMs, Sample)> {
        let mut histograms = self.histograms.iter().peekable();
        self.times.iter().enumerate().map(move |(i, time)| {
            let start = self.start_times.get(i).copied().unwrap_or(START_UNKNOWN);
            let sample = match histograms.next_if(|(at, _)| *at as usize == i) {
                Some((_, histogram)) => Sample::Histogram(histogram.clone()),
                None => Sample::Float(self.values[i]),
            };
            (*time, start, sample)
        })
    }

    /// Adds the samples that lie in `range` to `batch` as a series.
    pub fn push_range(&self, range: TimeRange, batch: &mut SeriesBatch) {
        let end = self.times.partition_point(|t| *t <= range.max);
        let start = self.times.partition_point(|t| *t < range.min).min(end);
        let in_range = self.histograms.iter().filter_map(|(i, histogram)| {
            let is_in = (start..end).contains(&(*i as usize));
            is_in.then(|| (*i - start as u32, histogram.clone()))
        });
        batch.push(
            &self.times[start..end],
            &self.values[start..end],
            self.start_times.get(start..end).unwrap_or(&[]),
            in_range,
        );
    }

    /// Gives each sample before `end` that lacks one the start timestamp `start`.
    fn fill_starts(&mut self, start: TimestampMs, end: usize) {
        if start != START_UNKNOWN || !self.start_times.is_empty() {
            self.start_times.resize(end, start);
        }
    }
}

/// Where decoding ended: what an encoder needs to go on.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) time: TimeState,
    pub(super) value: ValueState,
    pub(super) start: TimestampMs,
    /// The last histogram of the body, and whether it is the last sample.
    pub(super) histogram: Option<Arc<Histogram>>,
    pub(super) ends_in_histogram: bool,
}

/// Appends up to `samples_max` samples of `body` to `into`, which takes memory for so many.
pub(super) fn body(
    body: &[u8],
    samples_max: usize,
    into: &mut Columns,
) -> Result<Decoded, Malformed> {
    let mut cursor = Cursor::new(body);
    let mut at = Decoded {
        time: TimeState::starting_at(cursor.u64()? as i64),
        ..Decoded::default()
    };
    let base = into.times.len();
    // Made at their full length: a push for each sample would look at the capacity each time.
    into.times.resize(base + samples_max, 0);
    into.values
        .resize(base + samples_max, HISTOGRAM_PLACEHOLDER);
    let mut columns = (
        std::mem::take(&mut into.times),
        std::mem::take(&mut into.values),
    );
    let decoded = samples(
        &mut cursor,
        &mut at,
        (&mut columns.0, &mut columns.1),
        base,
        into,
    );
    (into.times, into.values) = columns;
    let end = *decoded.as_ref().unwrap_or(&base);
    into.times.truncate(end);
    into.values.truncate(end);
    decoded?;
    into.fill_starts(at.start, end);
    at.ends_in_histogram = into
        .histograms
        .last()
        .is_some_and(|(i, _)| *i as usize + 1 == end);
    Ok(at)
}

/// Fills the columns from `base` on, as far as the bytes go; returns where they end.
fn samples(
    cursor: &mut Cursor<'_>,
    at: &mut Decoded,
    (times, values): (&mut [TimestampMs], &mut [f64]),
    base: usize,
    into: &mut Columns,
) -> Result<usize, Malformed> {
    let mut time_repeats = 0;
    let mut value_repeats = 0;
    let columns = times.iter_mut().zip(values).enumerate().skip(base);
    let mut end = base;
    for (i, (time, value)) in columns {
        if time_repeats > 0 {
            time_repeats -= 1;
            *time = at.time.repeat();
        } else {
            // Every run of a value covers samples that have times, so bytes can only end here.
            if cursor.is_empty() {
                break;
            }
            let op = next_op(cursor, at, into, i)?;
            time_repeats = at.time.apply(op, cursor)?;
            if time_repeats > 0 {
                time_repeats -= 1;
                at.time.repeat();
            }
            *time = at.time.time;
        }
        end = i + 1;
        if value_repeats > 0 {
            value_repeats -= 1;
            *value = f64::from_bits(at.value.bits);
            continue;
        }
        let op = cursor.byte()?;
        if op == HISTOGRAM {
            let read = Arc::new(histogram::read(cursor, at.histogram.as_deref())?);
            into.histograms.push((i as u32, read.clone()));
            at.histogram = Some(read);
            continue;
        }
        value_repeats = at.value.apply(op, cursor)?.saturating_sub(1);
        *value = f64::from_bits(at.value.bits);
    }
    Ok(end)
}

/// The next operation that is not a change of the start timestamp, which applies from there on.
#[inline]
fn next_op(
    cursor: &mut Cursor<'_>,
    at: &mut Decoded,
    into: &mut Columns,
    index: usize,
) -> Result<u8, Malformed> {
    let mut op = cursor.byte()?;
    while op == START {
        into.fill_starts(at.start, index);
        at.start = at.start.wrapping_add(unzigzag(cursor.uvarint()?));
        if into.start_times.is_empty() {
            into.start_times.resize(index, START_UNKNOWN);
        }
        op = cursor.byte()?;
    }
    Ok(op)
}
