//! Decoding of chunk bodies to columns, many samples at a time where runs permit it.

use super::columns::SampleColumns;
use super::known_times::DecodedTimesCache;
use super::layout::{HISTOGRAM, START};
use super::pack::{self, PacksHeader};
use crate::encoding::cursor::DecodeCursor;
use crate::encoding::time::TimeState;
use crate::encoding::value::ValueState;
use crate::encoding::{DecodeError, histogram, unzigzag};
use firn_model::columns::HISTOGRAM_PLACEHOLDER;
use firn_model::histogram::Histogram;
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use std::sync::Arc;

/// Decodes up to `samples_max` samples of `body` and appends them to `into`. Allocates
/// memory for that many samples.
pub(super) fn decode_body(
    body: &[u8],
    samples_max: usize,
    known: &mut DecodedTimesCache,
    into: &mut SampleColumns,
) -> Result<(), DecodeError> {
    let mut walk = ChunkBodyCursor::new(body)?;
    let packs = PacksHeader::find(body)?;
    let base = into.times.len();
    // Allocated at full length: a push per sample would check the capacity each time.
    let room = samples_max.max(packs.samples);
    into.times.resize(base + room, 0);
    into.values.resize(base + room, HISTOGRAM_PLACEHOLDER);
    let decoded = walk
        .decode_packs(body, packs, known, &mut into.values[base..])
        .and_then(|()| {
            let start = base + packs.samples;
            into.times[base..start].copy_from_slice(known.first(packs.samples));
            let mut rest = ChunkDecoderExtras::default();
            let end = decode_samples(&mut walk, &mut rest, start, into)?;
            Ok((rest, end.min(base + samples_max)))
        });
    let end = decoded.as_ref().map_or(base, |(_, end)| *end);
    into.times.truncate(end);
    into.values.truncate(end);
    let (rest, _) = decoded?;
    into.fill_starts(rest.start, end);
    Ok(())
}

/// Decodes up to `samples_max` values of `body` and appends them to `values`; their times
/// are then the newest ones of `known`. Returns false and appends nothing if the samples have
/// histograms or start timestamps; then the caller must use [`body`].
pub(super) fn decode_plain(
    body: &[u8],
    samples_max: usize,
    known: &mut DecodedTimesCache,
    values: &mut Vec<f64>,
) -> Result<bool, DecodeError> {
    let mut walk = ChunkBodyCursor::new(body)?;
    let packs = PacksHeader::find(body)?;
    let base = values.len();
    let room = samples_max.max(packs.samples);
    values.resize(base + room, 0.0);
    let mut decode = || {
        walk.decode_packs(body, packs, known, &mut values[base..])?;
        let times = known.spare_times(packs.samples, room);
        walk.decode_floats(times, &mut values[base + packs.samples..])
    };
    let outcome = decode();
    let count = match &outcome {
        Ok(floats) if floats.stop == FloatDecodeStop::End => {
            let count = (packs.samples + floats.count).min(samples_max);
            known.set_valid_count(count, floats.moved);
            count
        }
        _ => {
            known.invalidate();
            0
        }
    };
    values.truncate(base + count);
    outcome.map(|floats| floats.stop == FloatDecodeStop::End)
}

/// Decoder state that only series with histograms or start timestamps need.
#[derive(Default)]
struct ChunkDecoderExtras {
    start: TimestampMs,
    histogram: Option<Arc<Histogram>>,
}

/// Fills the columns from index `base` on until the bytes or the space end. Returns the end index.
fn decode_samples(
    walk: &mut ChunkBodyCursor<'_>,
    rest: &mut ChunkDecoderExtras,
    base: usize,
    into: &mut SampleColumns,
) -> Result<usize, DecodeError> {
    let mut end = base;
    loop {
        let floats = walk.decode_floats(&mut into.times[end..], &mut into.values[end..])?;
        end += floats.count;
        match floats.stop {
            FloatDecodeStop::End => return Ok(end),
            FloatDecodeStop::Start => {
                into.fill_starts(rest.start, end);
                let step = unzigzag(walk.cursor.read_uvarint()?);
                rest.start = rest.start.wrapping_add(step);
                if into.start_times.is_empty() {
                    into.start_times.resize(end, START_UNKNOWN);
                }
            }
            FloatDecodeStop::Histogram => {
                let before = rest.histogram.as_deref();
                let read = Arc::new(histogram::read_histogram(&mut walk.cursor, before)?);
                into.histograms.push((end as u32, read.clone()));
                rest.histogram = Some(read);
                end += 1;
            }
        }
    }
}

/// Result of [`ChunkBodyCursor::decode_floats`]: the number of decoded samples, and why it stopped
/// there.
struct DecodedFloats {
    count: usize,
    stop: FloatDecodeStop,
    /// True if some of the times replaced a different value.
    moved: bool,
}

/// Reason why the decoding of floats ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FloatDecodeStop {
    /// No bytes or no space for samples is left.
    End,
    /// A change of the start timestamp follows, before the next time.
    Start,
    /// The time of the next sample is decoded, and a histogram follows.
    Histogram,
}

/// Position of a decoder in a body.
struct ChunkBodyCursor<'a> {
    cursor: DecodeCursor<'a>,
    time: TimeState,
    value: ValueState,
    time_repeats: u32,
    value_repeats: u32,
}

impl<'a> ChunkBodyCursor<'a> {
    /// Returns a decoder at the start of a body, whose first eight bytes are the first time.
    fn new(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = DecodeCursor::new(body);
        Ok(Self {
            time: TimeState::from_start(cursor.read_u64()? as i64),
            cursor,
            value: ValueState::default(),
            time_repeats: 0,
            value_repeats: 0,
        })
    }

    /// Decodes the packs and moves after them. Their times are then in `known`, and their values at
    /// the start of `values`.
    #[inline]
    fn decode_packs(
        &mut self,
        body: &'a [u8],
        packs: PacksHeader,
        known: &mut DecodedTimesCache,
        values: &mut [f64],
    ) -> Result<(), DecodeError> {
        if packs.samples > 0 {
            let (times, packed) = packs.bytes(body)?;
            self.time = known.decode_cached(self.time.time, times, packs.samples)?;
            pack::values::decode_values(packed, &mut self.value, &mut values[..packs.samples])?;
            self.cursor = DecodeCursor::new(&body[packs.end()..]);
        }
        Ok(())
    }

    /// Fills the columns with floats until another kind of sample follows.
    fn decode_floats(
        &mut self,
        times: &mut [TimestampMs],
        values: &mut [f64],
    ) -> Result<DecodedFloats, DecodeError> {
        // Copies, so that all state that changes with each sample stays in registers.
        let (mut cursor, mut time, mut value) = (self.cursor, self.time, self.value);
        let (mut time_repeats, mut value_repeats) = (self.time_repeats, self.value_repeats);
        let (mut count, mut stop, mut moved) = (0, FloatDecodeStop::End, 0);
        for (at_time, at_value) in times.iter_mut().zip(values) {
            if time_repeats > 0 {
                time_repeats -= 1;
                time.repeat_delta();
            } else {
                // Every run of a value covers samples that have times, so the bytes can only end
                // here.
                if cursor.is_empty() {
                    break;
                }
                let op = cursor.read_byte()?;
                if op == START {
                    stop = FloatDecodeStop::Start;
                    break;
                }
                time_repeats = time.apply_op(op, &mut cursor)?;
                if time_repeats > 0 {
                    time_repeats -= 1;
                    time.repeat_delta();
                }
            }
            moved |= *at_time ^ time.time;
            *at_time = time.time;
            if value_repeats > 0 {
                value_repeats -= 1;
            } else {
                let op = cursor.read_byte()?;
                if op == HISTOGRAM {
                    stop = FloatDecodeStop::Histogram;
                    break;
                }
                value_repeats = value.apply_op(op, &mut cursor)?.saturating_sub(1);
            }
            *at_value = f64::from_bits(value.bits);
            count += 1;
        }
        (self.cursor, self.time, self.value) = (cursor, time, value);
        (self.time_repeats, self.value_repeats) = (time_repeats, value_repeats);
        Ok(DecodedFloats {
            count,
            stop,
            moved: moved != 0,
        })
    }
}
