//! The open chunk, to which a series appends.
//!
//! Its newest bytes are stored in the series itself, in the tail. Appending to one series after the
//! other therefore accesses memory in order, and the body, which is elsewhere in memory, is written
//! once for several samples. A run can grow while it is in the tail; after a flush, the next repeat
//! begins a new run.

use super::closed::{Chunk, first_time, write};
use super::columns::{ChunkSample, SampleColumns};
use super::layout::{BODY_BYTES, HISTOGRAM, START};
use super::pack::{self, EncodedPack, PacksHeader};
use super::tail::{ChunkTail, ChunkTailBuffer, TAIL_BYTES, TailBuffer};
use crate::encoding::DecodeError;
use crate::encoding::decimal::DecimalScale;
use crate::encoding::sink::EncodeSink;
use crate::encoding::time::TimeState;
use crate::encoding::value::{ValueScaleState, ValueState};
use crate::encoding::{histogram, push_uvarint, zigzag};
use crate::prefetch;
use firn_model::histogram::{Histogram, ResetHint};
use firn_model::sample::{START_UNKNOWN, TimestampMs};
use std::sync::Arc;

/// The newest samples of a series, still growing. Takes 80 bytes and the body. Also keeps the
/// newest sample after its chunk was closed, for the check of duplicates.
#[derive(Debug, Default)]
pub(crate) struct OpenChunk {
    /// The bytes before the tail, with spare capacity.
    body: Box<[u8]>,
    time: TimeState,
    bits: u64,
    int: i64,
    /// Only series with histograms or start timestamps pay for this state.
    rare: Option<Box<ChunkEncoderExtras>>,
    count: u16,
    form: ValueScaleState,
    /// Number of used bytes of the body; [`WHOLE`] if all are used.
    used: u16,
    known: NewestSampleState,
    /// Positions of the growing runs in the tail, counted from one: four bits for times, and above
    /// them four bits for values.
    runs_at: u8,
    tail: ChunkTail,
}

/// Value of `used` for a body without spare capacity, whatever its length.
const WHOLE: u16 = u16::MAX;

/// The available information about the newest sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NewestSampleState {
    #[default]
    Nothing,
    Time,
    Sample,
}

/// Encoder state that only series with histograms or start timestamps need.
#[derive(Debug, Default)]
struct ChunkEncoderExtras {
    start: TimestampMs,
    histogram: Option<Arc<Histogram>>,
    /// True if the newest sample is `histogram`.
    ends_in_histogram: bool,
}

/// The value of the newest sample of a series, as far as the open chunk still has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewestSampleValue<'a> {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(&'a Histogram),
    /// The value is not available, or there never was a sample.
    Unknown,
}

impl OpenChunk {
    /// Returns an empty chunk after a sample at `time`, whose value may be unavailable.
    pub(crate) fn new_after(time: TimestampMs, sample: Option<ChunkSample>) -> Self {
        let mut open = Self {
            time: TimeState::from_start(time),
            known: if sample.is_some() {
                NewestSampleState::Sample
            } else {
                NewestSampleState::Time
            },
            ..Self::default()
        };
        match sample {
            Some(ChunkSample::Float(value)) => open.bits = value.to_bits(),
            Some(ChunkSample::Histogram(histogram)) => {
                open.rare = Some(Box::new(ChunkEncoderExtras {
                    start: START_UNKNOWN,
                    histogram: Some(histogram),
                    ends_in_histogram: true,
                }));
            }
            None => {}
        }
        open
    }

    /// Returns the number of samples in the chunk.
    pub(crate) fn sample_count(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns the time of the first sample; meaningless if the chunk is empty.
    pub(crate) fn first_time(&self) -> TimestampMs {
        if self.body.is_empty() {
            first_time(&self.tail.bytes())
        } else {
            first_time(&self.body)
        }
    }

    /// Prefetches the body, for a caller that is about to read all of it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch::prefetch_bytes(self.used_body());
    }

    /// Returns whether a sample was ever appended or set.
    pub(crate) fn has_newest(&self) -> bool {
        self.known != NewestSampleState::Nothing
    }

    /// Returns the time of the newest sample, even if its chunk has been closed.
    pub(crate) fn last_time(&self) -> TimestampMs {
        self.time.time
    }

    /// Returns the newest sample, even if its chunk has been closed.
    pub(crate) fn newest(&self) -> NewestSampleValue<'_> {
        match self.rare.as_deref() {
            _ if self.known != NewestSampleState::Sample => NewestSampleValue::Unknown,
            Some(ChunkEncoderExtras {
                ends_in_histogram: true,
                histogram: Some(histogram),
                ..
            }) => NewestSampleValue::Histogram(histogram),
            _ => NewestSampleValue::Float(f64::from_bits(self.bits)),
        }
    }

    /// Returns scale and integer of the newest float, if it has them. An encoder of the same float
    /// uses them instead of a search.
    #[inline]
    pub(crate) fn newest_decimal(&self) -> Option<(DecimalScale, i64)> {
        self.value().newest_int()
    }

    #[inline]
    fn value(&self) -> ValueState {
        ValueState {
            bits: self.bits,
            int: self.int,
            form: self.form,
        }
    }

    /// Returns the memory of the chunk in bytes, without the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.body.len()
            + self
                .rare
                .as_ref()
                .map_or(0, |_| size_of::<ChunkEncoderExtras>())
    }

    /// Returns whether the chunk must be closed before the next sample.
    pub(crate) fn is_full(&self, samples_max: u16) -> bool {
        self.count >= samples_max || self.used_body().len() + TAIL_BYTES >= BODY_BYTES
    }

    /// Returns whether a float without a start timestamp can be appended with
    /// [`OpenChunk::push_sole`].
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.count > 0 && self.rare.is_none()
    }

    /// Appends a float to a plain chunk.
    ///
    /// Panics unless `time` is after the last one: readers rely on the order.
    #[inline]
    pub(crate) fn push_sole(&mut self, time: TimestampMs, value: f64) {
        assert!(time > self.time.time, "times of a chunk ascend");
        let mut word = ChunkTailBuffer::from_tail(self.tail);
        let (mut times, mut values) = (self.time, self.value());
        let (mut time_run, mut value_run) = self.runs();
        times.push(&mut word, &mut time_run, time);
        let fits = values.push_if_fitting(&mut word, &mut value_run, value);
        match word.tail() {
            Some(tail) if fits => {
                self.tail = tail;
                self.time = times;
                self.set_value(values);
                self.set_runs(time_run, value_run);
            }
            _ => self.push_buffered(time, value),
        }
        self.count += 1;
    }

    /// Appends a float whose encoding does not fit into the tail, or needs another scale.
    #[inline(never)]
    fn push_buffered(&mut self, time: TimestampMs, value: f64) {
        let mut buffer = self.take_tail();
        self.push_time(&mut buffer, time);
        self.push_value(&mut buffer, value);
        self.put_tail(&buffer);
    }

    /// Appends a float with a start timestamp.
    ///
    /// Panics unless `time` is after the last one, also of a chunk that was closed.
    pub(crate) fn push_float(&mut self, time: TimestampMs, start: TimestampMs, value: f64) {
        let mut buffer = self.begin_sample(time, start);
        if let Some(rare) = &mut self.rare {
            rare.ends_in_histogram = false;
        }
        self.push_value(&mut buffer, value);
        self.put_tail(&buffer);
        self.count += 1;
    }

    /// Appends a histogram with `hint` as its counter reset hint.
    ///
    /// Panics unless `time` is after the last one, also of a chunk that was closed.
    pub(crate) fn push_histogram(
        &mut self,
        time: TimestampMs,
        start: TimestampMs,
        histogram: &Histogram,
        hint: ResetHint,
    ) {
        let mut buffer = self.begin_sample(time, start);
        buffer.put(HISTOGRAM);
        let rare = self.rare.get_or_insert_default();
        let mut bytes = buffer.as_bytes().to_vec();
        // The first histogram of a body contains its shape, so that the body can be decoded on its
        // own.
        histogram::push_histogram(&mut bytes, rare.histogram.as_deref(), histogram, hint);
        histogram::replace_histogram(&mut rare.histogram, histogram, hint);
        rare.ends_in_histogram = true;
        self.flush(&bytes);
        self.count += 1;
    }

    /// Starts a sample, and the chunk if it is empty: writes everything except the value.
    fn begin_sample(&mut self, time: TimestampMs, start: TimestampMs) -> TailBuffer {
        let is_next = !self.has_newest() || time > self.time.time;
        assert!(is_next, "times of a series ascend");
        let mut buffer = self.take_tail();
        if self.count == 0 {
            self.begin(&mut buffer, time);
        }
        let started = self.rare.as_ref().map_or(START_UNKNOWN, |r| r.start);
        if start != started {
            self.push_start(&mut buffer, start);
        }
        self.push_time(&mut buffer, time);
        buffer
    }

    /// Returns the positions of the growing runs of times and of values.
    #[inline]
    fn runs(&self) -> (u16, u16) {
        (u16::from(self.runs_at & 15), u16::from(self.runs_at >> 4))
    }

    /// Sets the positions of the growing runs in the tail. A run at a position beyond its four bits
    /// is about to be flushed with this sample and cannot grow any more.
    #[inline]
    fn set_runs(&mut self, time: u16, value: u16) {
        self.runs_at = time.min(15) as u8 | (value.min(15) as u8) << 4;
    }

    #[inline]
    fn set_value(&mut self, value: ValueState) {
        (self.bits, self.int, self.form) = (value.bits, value.int, value.form);
    }

    fn push_time(&mut self, buffer: &mut TailBuffer, time: TimestampMs) {
        let (mut time_run, value_run) = self.runs();
        self.time.push(buffer, &mut time_run, time);
        self.set_runs(time_run, value_run);
    }

    fn push_value(&mut self, buffer: &mut TailBuffer, float: f64) {
        let mut value = self.value();
        let (time_run, mut value_run) = self.runs();
        value.push(buffer, &mut value_run, float);
        self.set_runs(time_run, value_run);
        self.set_value(value);
    }

    /// Returns a buffer that starts with the bytes of the tail, to which a sample can be added.
    fn take_tail(&self) -> TailBuffer {
        let mut buffer = TailBuffer::default();
        buffer.put_first(self.tail.bytes(), self.tail.len());
        buffer
    }

    /// Stores the bytes of a buffer as the new tail, or flushes them to the body if they are too
    /// many.
    fn put_tail(&mut self, buffer: &TailBuffer) {
        let written = buffer.as_bytes();
        if written.len() > TAIL_BYTES {
            return self.flush(written);
        }
        let mut bytes = [0; TAIL_BYTES + 1];
        bytes[..written.len()].copy_from_slice(written);
        self.tail = ChunkTail::new(u128::from_le_bytes(bytes), written.len());
    }

    /// Appends `bytes` to the body and clears the tail.
    #[inline(never)]
    fn flush(&mut self, bytes: &[u8]) {
        let used = self.used_body().len();
        let needed = used + bytes.len();
        self.make_room(needed);
        self.body[used..needed].copy_from_slice(bytes);
        self.end_body(needed);
    }

    /// Grows the body to at least `needed` bytes.
    fn make_room(&mut self, needed: usize) {
        if needed > self.body.len() {
            // Bodies are most of a head's memory: half as much again, in steps that allocators
            // serve without waste.
            let wanted = if needed < usize::from(WHOLE) / 2 {
                (needed + needed / 2).next_multiple_of(16)
            } else {
                needed
            };
            let mut body = std::mem::take(&mut self.body).into_vec();
            body.reserve_exact(wanted - body.len());
            body.resize(wanted, 0);
            self.body = body.into_boxed_slice();
        }
    }

    /// Records that the body contains the whole chunk, in its first `used` bytes.
    fn end_body(&mut self, used: usize) {
        self.used = u16::try_from(used).unwrap_or(WHOLE);
        self.tail = ChunkTail::default();
        self.runs_at = 0;
    }

    /// Packs the samples after the last pack if a pack is due: see [`pack::is_due`].
    #[inline]
    pub(crate) fn pack_if_due(&mut self, phase: u32) {
        if pack::is_due(self.sample_count(), phase) && self.rare.is_none() {
            self.pack();
        }
    }

    /// Packs the samples after the last pack. If this fails, the chunk is not packed any more,
    /// because from then on it has too many samples after the last pack.
    #[inline(never)]
    fn pack(&mut self) {
        let tail = self.tail.bytes();
        self.flush(&tail[..self.tail.len()]);
        let Ok(before) = PacksHeader::find(self.used_body()) else {
            return;
        };
        let samples = self.sample_count() - before.samples;
        let loose = &self.used_body()[before.end()..];
        let Some(pack) = EncodedPack::encode(before, loose, samples, self.bits) else {
            return;
        };
        let Some(after) = before.with_pack(&pack, self.value().is_raw()) else {
            return;
        };
        self.make_room(after.end());
        after.insert(before, &pack, &mut self.body);
        self.end_body(after.end());
    }

    fn used_body(&self) -> &[u8] {
        match self.used {
            WHOLE => &self.body,
            used => &self.body[..usize::from(used)],
        }
    }

    /// Starts a body at `time`.
    fn begin(&mut self, buffer: &mut TailBuffer, time: TimestampMs) {
        buffer.put_low(time as u64, 8);
        self.time = TimeState::from_start(time);
        self.known = NewestSampleState::Sample;
        (self.bits, self.int, self.form) = Default::default();
        self.runs_at = 0;
        if let Some(rare) = &mut self.rare {
            rare.start = START_UNKNOWN;
            rare.histogram = None;
        }
    }

    /// Writes a change of the start timestamp before the time of the next sample.
    #[cold]
    fn push_start(&mut self, buffer: &mut TailBuffer, start: TimestampMs) {
        let rare = self.rare.get_or_insert_default();
        buffer.put(START);
        push_uvarint(buffer, zigzag(start.wrapping_sub(rare.start)));
        rare.start = start;
        // The decoder expects a start timestamp only where it expects a time.
        self.runs_at &= !15;
    }

    /// Closes the chunk and returns it as an immutable one; the next sample begins a new chunk.
    /// Returns `None` if it is empty.
    pub(crate) fn close(&mut self) -> Option<Chunk> {
        let chunk = self.snapshot()?;
        // Releases the memory, which a series that ends here should not keep.
        self.body = Box::default();
        self.used = 0;
        self.tail = ChunkTail::default();
        self.count = 0;
        Some(chunk)
    }

    /// Returns a copy of the current samples, or `None` if the chunk is empty.
    pub(crate) fn snapshot(&self) -> Option<Chunk> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes).then(|| Chunk(bytes.into()))
    }

    /// Appends a chunk with only the newest sample to `out`, for [`super::ChunkView::new`]. Returns
    /// false and appends nothing if that sample is not a plain float.
    pub(crate) fn write_newest_to(&self, out: &mut Vec<u8>) -> bool {
        let NewestSampleValue::Float(value) = self.newest() else {
            return false;
        };
        if !self.is_plain() {
            return false;
        }
        let time = self.time.time;
        write(1, time, &time.to_le_bytes(), &[], out);
        TimeState::from_start(time).push(out, &mut 0, time);
        ValueState::default().push_with_int(out, &mut 0, value, self.newest_decimal());
        true
    }

    /// Appends a copy of the chunk to `out`, for [`super::ChunkView::new`]. Returns false and
    /// appends nothing if the chunk is empty.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) -> bool {
        let tail = self.tail.bytes();
        let tail = &tail[..self.tail.len()];
        if self.count > 0 {
            write(self.count, self.time.time, self.used_body(), tail, out);
        }
        self.count > 0
    }
}

impl Chunk {
    /// Returns a copy without the samples up to `time`. The chunk must have newer ones.
    pub(crate) fn copy_after(&self, time: TimestampMs) -> Result<Self, DecodeError> {
        let mut columns = SampleColumns::default();
        self.decode(usize::MAX, &mut columns)?;
        let mut open = OpenChunk::default();
        for (at, start, value) in columns.samples().filter(|(at, ..)| *at > time) {
            match value {
                ChunkSample::Float(value) => open.push_float(at, start, value),
                ChunkSample::Histogram(histogram) => {
                    open.push_histogram(at, start, &histogram, histogram.reset_hint)
                }
            }
        }
        open.snapshot().ok_or(DecodeError("chunk without a sample"))
    }
}
