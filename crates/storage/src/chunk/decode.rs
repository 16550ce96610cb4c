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

/// Decoded samples, in the shape of [`firn_model::columns::SeriesColumns`]. Reuse one to keep its memory.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    /// Timestamps.
    pub(crate) times: Vec<TimestampMs>,
    /// As many values.
    pub(crate) values: Vec<f64>,
    /// As many start timestamps, or none at all.
    pub(crate) start_times: Vec<TimestampMs>,
    /// Histograms with their index in `times`.
    pub(crate) histograms: Vec<(u32, Arc<Histogram>)>,
}

/// The value of one sample.
#[derive(Clone, Debug)]
pub(crate) enum Sample {
    /// A float.
    Float(f64),
    /// A histogram.
    Histogram(Arc<Histogram>),
}

impl Columns {
    /// Empties the columns and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.start_times.clear();
        self.histograms.clear();
    }

    /// The samples one by one, as (time, start, value).
    pub(crate) fn samples(&self) -> impl Iterator<Item = (TimestampMs, TimestampMs, Sample)> {
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
    pub(crate) fn push_range(&self, range: TimeRange, batch: &mut SeriesBatch) {
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

    /// Gives each of the last samples that lacks one the start timestamp `start`.
    fn fill_starts(&mut self, start: TimestampMs) {
        if start != START_UNKNOWN || !self.start_times.is_empty() {
            self.start_times.resize(self.times.len(), start);
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

/// Appends up to `samples_max` samples of `body` to `into`.
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
    let samples_max = samples_max.saturating_add(base);
    let mut time_repeats = 0;
    let mut value_repeats = 0;
    while into.times.len() < samples_max {
        if time_repeats == 0 {
            // Every run of a value covers samples that have times, so bytes can only end here.
            if cursor.is_empty() {
                break;
            }
            let op = next_op(&mut cursor, &mut at, into)?;
            time_repeats = at.time.apply(op, &mut cursor)?;
            if time_repeats == 0 {
                into.times.push(at.time.time);
            } else {
                time_repeats -= 1;
                into.times.push(at.time.repeat());
            }
        } else {
            time_repeats -= 1;
            into.times.push(at.time.repeat());
        }
        if value_repeats > 0 {
            value_repeats -= 1;
            into.values.push(f64::from_bits(at.value.bits));
            continue;
        }
        let op = cursor.byte()?;
        if op == HISTOGRAM {
            let read = Arc::new(histogram::read(&mut cursor, at.histogram.as_deref())?);
            into.histograms
                .push((into.times.len() as u32 - 1, read.clone()));
            into.values.push(HISTOGRAM_PLACEHOLDER);
            at.histogram = Some(read);
            continue;
        }
        value_repeats = at.value.apply(op, &mut cursor)?.saturating_sub(1);
        into.values.push(f64::from_bits(at.value.bits));
    }
    into.fill_starts(at.start);
    at.ends_in_histogram = into
        .histograms
        .last()
        .is_some_and(|(i, _)| *i as usize + 1 == into.times.len());
    Ok(at)
}

/// The next operation that is not a change of the start timestamp, which applies from there on.
#[inline]
fn next_op(cursor: &mut Cursor<'_>, at: &mut Decoded, into: &mut Columns) -> Result<u8, Malformed> {
    let mut op = cursor.byte()?;
    while op == START {
        into.fill_starts(at.start);
        at.start = at.start.wrapping_add(unzigzag(cursor.uvarint()?));
        if into.start_times.is_empty() {
            into.start_times.resize(into.times.len(), START_UNKNOWN);
        }
        op = cursor.byte()?;
    }
    Ok(op)
}
