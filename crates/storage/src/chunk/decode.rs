//! Decoding of chunk bodies to columns, many samples at a time where runs permit it.

use super::columns::Columns;
use super::known_times::TimesKnown;
use super::layout::{HISTOGRAM, START};
use super::pack::{self, Packs};
use crate::encoding::cursor::Cursor;
use crate::encoding::time::TimeState;
use crate::encoding::value::ValueState;
use crate::encoding::{Malformed, histogram, unzigzag};
use firn_model::columns::HISTOGRAM_PLACEHOLDER;
use firn_model::histogram::Histogram;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use std::sync::Arc;

/// Decodes up to `samples_max` samples of `body` and appends them to `into`. Allocates memory for
/// that many samples.
pub(super) fn body(
    body: &[u8],
    samples_max: usize,
    known: &mut TimesKnown,
    into: &mut Columns,
) -> Result<(), Malformed> {
    let mut walk = Walk::new(body)?;
    let packs = Packs::find(body)?;
    let base = into.times.len();
    // Allocated at full length: a push per sample would check the capacity each time.
    let room = samples_max.max(packs.samples);
    into.times.resize(base + room, 0);
    into.values.resize(base + room, HISTOGRAM_PLACEHOLDER);
    let decoded = walk
        .packed(body, packs, known, &mut into.values[base..])
        .and_then(|()| {
            let start = base + packs.samples;
            into.times[base..start].copy_from_slice(known.first(packs.samples));
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

/// Decodes up to `samples_max` values of `body` and appends them to `values`; their times are then
/// the newest ones of `known`. Returns false and appends nothing if the samples have histograms or
/// start timestamps; then the caller must use [`body`].
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

/// Decoder state that only series with histograms or start timestamps need.
#[derive(Default)]
struct Rest {
    start: TimestampMs,
    histogram: Option<Arc<Histogram>>,
}

/// Fills the columns from index `base` on until the bytes or the space end. Returns the end index.
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

/// Result of [`Walk::floats`]: the number of decoded samples, and why it stopped there.
struct Floats {
    count: usize,
    stop: Stop,
    /// True if some of the times replaced a different value.
    moved: bool,
}

/// Reason why the decoding of floats ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// No bytes or no space for samples is left.
    End,
    /// A change of the start timestamp follows, before the next time.
    Start,
    /// The time of the next sample is decoded, and a histogram follows.
    Histogram,
}

/// Position of a decoder in a body.
struct Walk<'a> {
    cursor: Cursor<'a>,
    time: TimeState,
    value: ValueState,
    time_repeats: u32,
    value_repeats: u32,
}

impl<'a> Walk<'a> {
    /// Returns a decoder at the start of a body, whose first eight bytes are the first time.
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

    /// Decodes the packs and moves after them. Their times are then in `known`, and their values at
    /// the start of `values`.
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
            pack::values::read(packed, &mut self.value, &mut values[..packs.samples])?;
            self.cursor = Cursor::new(&body[packs.end()..]);
        }
        Ok(())
    }

    /// Fills the columns with floats until another kind of sample follows.
    fn floats(
        &mut self,
        times: &mut [TimestampMs],
        values: &mut [f64],
    ) -> Result<Floats, Malformed> {
        // Copies, so that all state that changes with each sample stays in registers.
        let (mut cursor, mut time, mut value) = (self.cursor, self.time, self.value);
        let (mut time_repeats, mut value_repeats) = (self.time_repeats, self.value_repeats);
        let (mut count, mut stop, mut moved) = (0, Stop::End, 0);
        for (at_time, at_value) in times.iter_mut().zip(values) {
            if time_repeats > 0 {
                time_repeats -= 1;
                time.repeat();
            } else {
                // Every run of a value covers samples that have times, so the bytes can only end
                // here.
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
