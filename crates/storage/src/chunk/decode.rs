//! From a chunk's body to columns, many samples at a time where runs allow it.

use super::pack::{self, Packs};
use super::{HISTOGRAM, START};
use crate::encoding::cursor::Cursor;
use crate::encoding::time::TimeState;
use crate::encoding::value::ValueState;
use crate::encoding::{Malformed, histogram, unzigzag};
use firn_model::columns::{HISTOGRAM_PLACEHOLDER, SeriesBatch};
use firn_model::histogram::Histogram;
use firn_model::sample::{START_UNKNOWN, TimeRange, TimestampMs};
use std::ops::Range;
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

    /// Puts the samples from number `len` on, which ascend as those before them do, into their
    /// places. Of two at one time the one that was there first stays. Costs a comparison where
    /// those behind are newer, as they nearly always are.
    pub(crate) fn merge_from(&mut self, len: usize) {
        let last = len.checked_sub(1).and_then(|i| self.times.get(i));
        let is_newer = |last: &TimestampMs| self.times.get(len).is_none_or(|next| last < next);
        if last.is_none_or(is_newer) {
            return;
        }
        let mut order: Vec<usize> = (0..self.times.len()).collect();
        order.sort_by_key(|i| self.times[*i]);
        order.dedup_by_key(|i| self.times[*i]);
        let mut histograms = std::mem::take(&mut self.histograms);
        histograms.sort_by_key(|(i, _)| *i);
        for (place, i) in order.iter().enumerate() {
            let found = histograms.binary_search_by_key(&(*i as u32), |(i, _)| *i);
            if let Ok(found) = found {
                let histogram = histograms[found].1.clone();
                self.histograms.push((place as u32, histogram));
            }
        }
        self.times = order.iter().map(|i| self.times[*i]).collect();
        self.values = order.iter().map(|i| self.values[*i]).collect();
        if !self.start_times.is_empty() {
            self.start_times = order.iter().map(|i| self.start_times[*i]).collect();
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
        let Range { start, end } = range.indexes(&self.times);
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

/// The times that were read last. Series that were scraped together have the same, one after the
/// other: those of their packs are followed once, and whoever reads them is told that they are the
/// same. Reuse one to keep its memory.
#[derive(Debug, Default)]
pub(crate) struct TimesKnown {
    first: TimestampMs,
    bytes: Vec<u8>,
    /// Behind the times of the packs there may be others.
    times: Vec<TimestampMs>,
    samples: usize,
    /// Behind the last of the packs.
    state: TimeState,
    /// How many were read last by [`plain`].
    count: usize,
    generation: u64,
}

impl TimesKnown {
    /// The times of the chunk that was read last as one of floats.
    pub(crate) fn newest(&self) -> &[TimestampMs] {
        &self.times[..self.count]
    }

    /// A number that [`TimesKnown::newest`] share with no other times.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Makes sure that the times of packs are known; returns the state behind them.
    #[inline]
    fn know(
        &mut self,
        first: TimestampMs,
        bytes: &[u8],
        samples: usize,
    ) -> Result<TimeState, Malformed> {
        let is_known = (self.first, self.samples) == (first, samples) && self.bytes == bytes;
        if !is_known {
            self.follow(first, bytes, samples)?;
        }
        Ok(self.state)
    }

    fn follow(
        &mut self,
        first: TimestampMs,
        bytes: &[u8],
        samples: usize,
    ) -> Result<(), Malformed> {
        self.samples = 0;
        self.forget();
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.first = first;
        self.state = TimeState::starting_at(first);
        self.make_room(samples);
        pack::times::follow(bytes, &mut self.state, &mut self.times[..samples])?;
        self.samples = samples;
        Ok(())
    }

    /// The places of the times behind the first `samples` of `room`. What was known of them is
    /// forgotten: with no packs before them, that is all.
    fn places_behind(&mut self, samples: usize, room: usize) -> &mut [TimestampMs] {
        self.samples = samples;
        self.make_room(room);
        &mut self.times[samples..room]
    }

    /// So many times are those of a chunk; some of them `moved`, or were not there before.
    fn keep(&mut self, count: usize, moved: bool) {
        if moved || self.count != count {
            self.forget();
            self.count = count;
        }
    }

    fn forget(&mut self) {
        self.generation += 1;
        self.count = 0;
    }

    fn make_room(&mut self, samples: usize) {
        if self.times.len() < samples {
            self.times.resize(samples, 0);
        }
    }
}

/// Appends up to `samples_max` samples of `body` to `into`, which takes memory for so many.
pub(super) fn body(
    body: &[u8],
    samples_max: usize,
    known: &mut TimesKnown,
    into: &mut Columns,
) -> Result<(), Malformed> {
    let mut walk = Walk::new(body)?;
    let packs = Packs::find(body)?;
    let base = into.times.len();
    // Made at their full length: a push for each sample would look at the capacity each time.
    let room = samples_max.max(packs.samples);
    into.times.resize(base + room, 0);
    into.values.resize(base + room, HISTOGRAM_PLACEHOLDER);
    let decoded = walk
        .packed(body, packs, known, &mut into.values[base..])
        .and_then(|()| {
            let start = base + packs.samples;
            into.times[base..start].copy_from_slice(&known.times[..packs.samples]);
            let mut rest = Rest::default();
            let end = samples(&mut walk, &mut rest, start, into)?;
            Ok((rest, end.min(base + samples_max)))
        });
    let end = decoded.as_ref().map_or(base, |(_, end)| *end);
    into.times.truncate(end);
    into.values.truncate(end);
    let (rest, _) = decoded?;
    into.fill_starts(rest.start, end);
    Ok(())
}

/// Appends up to `samples_max` values of `body` to `values`; their times are then the newest that
/// are known. `false`, and nothing is appended, if there is more to its samples than that: then
/// [`body`] is to be asked.
pub(super) fn plain(
    body: &[u8],
    samples_max: usize,
    known: &mut TimesKnown,
    values: &mut Vec<f64>,
) -> Result<bool, Malformed> {
    let mut walk = Walk::new(body)?;
    let packs = Packs::find(body)?;
    let base = values.len();
    let room = samples_max.max(packs.samples);
    values.resize(base + room, 0.0);
    let mut decode = || {
        walk.packed(body, packs, known, &mut values[base..])?;
        let times = known.places_behind(packs.samples, room);
        walk.floats(times, &mut values[base + packs.samples..])
    };
    let outcome = decode();
    let count = match &outcome {
        Ok(floats) if floats.stop == Stop::End => {
            let count = (packs.samples + floats.count).min(samples_max);
            known.keep(count, floats.moved);
            count
        }
        _ => {
            known.forget();
            0
        }
    };
    values.truncate(base + count);
    outcome.map(|floats| floats.stop == Stop::End)
}

/// What only some series have.
#[derive(Default)]
struct Rest {
    start: TimestampMs,
    histogram: Option<Arc<Histogram>>,
}

/// Fills the columns from `base` on, as far as the bytes go; returns where they end.
fn samples(
    walk: &mut Walk<'_>,
    rest: &mut Rest,
    base: usize,
    into: &mut Columns,
) -> Result<usize, Malformed> {
    let mut end = base;
    loop {
        let floats = walk.floats(&mut into.times[end..], &mut into.values[end..])?;
        end += floats.count;
        match floats.stop {
            Stop::End => return Ok(end),
            Stop::Start => {
                into.fill_starts(rest.start, end);
                let step = unzigzag(walk.cursor.uvarint()?);
                rest.start = rest.start.wrapping_add(step);
                if into.start_times.is_empty() {
                    into.start_times.resize(end, START_UNKNOWN);
                }
            }
            Stop::Histogram => {
                let before = rest.histogram.as_deref();
                let read = Arc::new(histogram::read(&mut walk.cursor, before)?);
                into.histograms.push((end as u32, read.clone()));
                rest.histogram = Some(read);
                end += 1;
            }
        }
    }
}

/// What a walk over floats found.
struct Floats {
    count: usize,
    stop: Stop,
    /// Whether some of the places had held another time.
    moved: bool,
}

/// Why a walk over floats came to an end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The bytes or the places for samples ended.
    End,
    /// A change of the start timestamp follows, before the next time.
    Start,
    /// The time of the next sample is there, and a histogram follows.
    Histogram,
}

/// Where in a body a decoder stands.
struct Walk<'a> {
    cursor: Cursor<'a>,
    time: TimeState,
    value: ValueState,
    time_repeats: u32,
    value_repeats: u32,
}

impl<'a> Walk<'a> {
    fn new(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(body);
        Ok(Self {
            time: TimeState::starting_at(cursor.u64()? as i64),
            cursor,
            value: ValueState::default(),
            time_repeats: 0,
            value_repeats: 0,
        })
    }

    /// Goes on behind the packs: their times are known then, their values the first of `values`.
    #[inline]
    fn packed(
        &mut self,
        body: &'a [u8],
        packs: Packs,
        known: &mut TimesKnown,
        values: &mut [f64],
    ) -> Result<(), Malformed> {
        if packs.samples > 0 {
            let (times, packed) = packs.bytes(body)?;
            self.time = known.know(self.time.time, times, packs.samples)?;
            pack::values(packed, &mut self.value, &mut values[..packs.samples])?;
            self.cursor = Cursor::new(&body[packs.end()..]);
        }
        Ok(())
    }

    /// Fills the columns with floats as far as there is nothing else.
    fn floats(
        &mut self,
        times: &mut [TimestampMs],
        values: &mut [f64],
    ) -> Result<Floats, Malformed> {
        // Copies, so that all that changes with each sample stays in registers.
        let (mut cursor, mut time, mut value) = (self.cursor, self.time, self.value);
        let (mut time_repeats, mut value_repeats) = (self.time_repeats, self.value_repeats);
        let (mut count, mut stop, mut moved) = (0, Stop::End, 0);
        for (at_time, at_value) in times.iter_mut().zip(values) {
            if time_repeats > 0 {
                time_repeats -= 1;
                time.repeat();
            } else {
                // Every run of a value covers samples that have times: bytes can only end here.
                if cursor.is_empty() {
                    break;
                }
                let op = cursor.byte()?;
                if op == START {
                    stop = Stop::Start;
                    break;
                }
                time_repeats = time.apply(op, &mut cursor)?;
                if time_repeats > 0 {
                    time_repeats -= 1;
                    time.repeat();
                }
            }
            moved |= *at_time ^ time.time;
            *at_time = time.time;
            if value_repeats > 0 {
                value_repeats -= 1;
            } else {
                let op = cursor.byte()?;
                if op == HISTOGRAM {
                    stop = Stop::Histogram;
                    break;
                }
                value_repeats = value.apply(op, &mut cursor)?.saturating_sub(1);
            }
            *at_value = f64::from_bits(value.bits);
            count += 1;
        }
        (self.cursor, self.time, self.value) = (cursor, time, value);
        (self.time_repeats, self.value_repeats) = (time_repeats, value_repeats);
        Ok(Floats {
            count,
            stop,
            moved: moved != 0,
        })
    }
}
