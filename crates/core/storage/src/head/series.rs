//! One series of the head: its chunks, and the checks for the next sample.

use crate::chunk::{Chunk, ChunkSample, NewestSampleValue, OpenChunk, SampleColumns};
use crate::encoding::{DecodeError, histogram};
use crate::ids::SeriesRef;
use firn_model::histogram::Histogram;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{LateSamplePolicy, NewestSampleTimes, SampleRejection};
use std::ops::RangeInclusive;

/// The times that an append accepts, in milliseconds. Computed once per batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendWindow {
    /// Oldest accepted time for samples in order.
    pub(crate) min: TimestampMs,
    /// The newest accepted time; later samples are rejected.
    pub(crate) max: TimestampMs,
    /// Oldest accepted time for late samples; `i64::MAX` if late samples are rejected.
    pub(crate) late_min: TimestampMs,
    /// Kinds of samples that are accepted late if their time permits.
    pub(crate) late: LateSamplePolicy,
}

impl AppendWindow {
    /// Returns whether late samples are accepted.
    pub(crate) fn takes_late(&self) -> bool {
        self.late_min != TimestampMs::MAX
    }

    /// Returns the times at which a sample may create its series, in order or late.
    pub(crate) fn times(&self) -> RangeInclusive<TimestampMs> {
        self.min.min(self.late_min)..=self.max
    }

    /// Returns whether a sample at this time may create its series.
    pub(crate) fn contains(&self, time: TimestampMs) -> bool {
        self.times().contains(&time)
    }
}

/// Outcome of one sample that was appended to a series of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendVerdict {
    /// The sample was appended in order.
    Stored,
    /// The sample was stored as a late one.
    Late,
    /// The sample was already stored; counts as a success.
    Known,
    /// The sample was rejected, for this reason.
    Refused(SampleRejection),
}

/// The value of a sample to append.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SampleValueRef<'a> {
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(&'a Histogram),
}

/// The chunks of one series in memory. Times strictly increase across the chunks.
#[derive(Debug)]
pub(crate) struct MemSeries {
    /// Number of the series, constant while the process runs.
    pub(crate) slot: SeriesRef,
    /// Low 32 bits of the sequence number of the last batch that wrote to the series.
    pub(crate) last_sequence: u32,
    pub(crate) open: OpenChunk,
    /// Closed chunks, oldest first. `None` for the many series that have none.
    #[expect(
        clippy::box_collection,
        reason = "most series of a young store have none: 8 bytes instead of 24"
    )]
    closed: Option<Box<Vec<Chunk>>>,
}

impl MemSeries {
    /// Returns a series without samples, in the slot `slot`.
    pub(crate) fn new(slot: SeriesRef) -> Self {
        Self {
            slot,
            last_sequence: 0,
            open: OpenChunk::default(),
            closed: None,
        }
    }

    /// Returns the closed chunks, oldest first.
    pub(crate) fn closed(&self) -> &[Chunk] {
        self.closed.as_deref().map_or(&[], |c| c)
    }

    /// Returns whether the series ever had a sample, even if that is sealed by now.
    pub(crate) fn has_newest(&self) -> bool {
        self.open.has_newest()
    }

    /// Appends a sample, or returns why it is rejected. A repetition of the newest sample is
    /// accepted as known regardless of the window, so that a sender that missed the response can
    /// retry.
    #[inline]
    pub(crate) fn append(
        &mut self,
        window: AppendWindow,
        time: TimestampMs,
        start: TimestampMs,
        value: SampleValueRef<'_>,
    ) -> AppendVerdict {
        if self.has_newest() && time <= self.open.last_time() {
            return self.judge_old(window, time, value);
        }
        if time < window.min {
            return AppendVerdict::Refused(SampleRejection::OutOfBounds);
        }
        if time > window.max {
            return AppendVerdict::Refused(SampleRejection::TooFarInFuture);
        }
        self.push(time, start, value);
        AppendVerdict::Stored
    }

    /// Returns the verdict on a sample that is not newer than the newest one of the series.
    #[cold]
    fn judge_old(
        &self,
        window: AppendWindow,
        time: TimestampMs,
        value: SampleValueRef<'_>,
    ) -> AppendVerdict {
        let is_newest = time == self.open.last_time();
        if is_newest && self.is_newest_value(value) {
            return AppendVerdict::Known;
        }
        AppendVerdict::Refused(if time < window.min {
            SampleRejection::OutOfBounds
        } else if is_newest {
            SampleRejection::DuplicateTimestamp
        } else {
            SampleRejection::OutOfOrder
        })
    }

    /// Returns whether the newest sample has this value, bit for bit.
    pub(crate) fn is_newest_value(&self, value: SampleValueRef<'_>) -> bool {
        match (self.open.newest(), value) {
            (NewestSampleValue::Float(a), SampleValueRef::Float(b)) => a.to_bits() == b.to_bits(),
            // The head computes the counter reset hint itself, so the hint is not compared.
            (NewestSampleValue::Histogram(a), SampleValueRef::Histogram(b)) => {
                histogram::is_equal_except_hint(a, b)
            }
            _ => false,
        }
    }

    /// Appends a sample that must be newer than all others.
    #[inline]
    pub(crate) fn push(
        &mut self,
        time: TimestampMs,
        start: TimestampMs,
        value: SampleValueRef<'_>,
    ) {
        if self.open.is_full(Chunk::samples_max(self.slot)) {
            self.close_chunk();
        }
        match value {
            SampleValueRef::Float(value) => {
                self.open.push_float(time, start, value);
                self.open.pack_if_due(Chunk::phase(self.slot));
            }
            SampleValueRef::Histogram(histogram) => {
                let previous = match self.open.newest() {
                    NewestSampleValue::Histogram(previous) => Some(previous),
                    NewestSampleValue::Float(_) | NewestSampleValue::Unknown => None,
                };
                let hint = histogram.hint_after(previous);
                self.open.push_histogram(time, start, histogram, hint);
            }
        }
    }

    /// Appends a float without a start time if it is newer than all others and the open chunk has a
    /// plain layout and is not full. Returns the number of bytes that the chunk grew by, or `None`
    /// without effect.
    #[inline]
    pub(crate) fn push_sole(&mut self, time: TimestampMs, value: f64) -> Option<usize> {
        let is_full = self.open.is_full(Chunk::samples_max(self.slot));
        if is_full || time <= self.open.last_time() || !self.open.is_plain() {
            return None;
        }
        let before = self.open.memory_bytes();
        self.open.push_sole(time, value);
        self.open.pack_if_due(Chunk::phase(self.slot));
        Some(self.open.memory_bytes() - before)
    }

    /// Closes the open chunk and adds it to the closed ones.
    #[cold]
    fn close_chunk(&mut self) {
        if let Some(chunk) = self.open.close() {
            let closed = self.closed.get_or_insert_default();
            closed.reserve_exact(1 + closed.len() / 8);
            closed.push(chunk);
        }
    }

    /// Returns the time range from the oldest sample in memory to the newest one.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        let last = match self.open.sample_count() {
            0 => self.closed().last()?.range().max,
            _ => self.open.last_time(),
        };
        let first = match self.closed().first() {
            Some(chunk) => chunk.range().min,
            None => self.open.first_time(),
        };
        Some(TimeRange::new(first, last))
    }

    /// Drops chunks that end before `time`. Returns the number of freed bytes.
    pub(crate) fn drop_before(&mut self, time: TimestampMs) -> usize {
        let Some(closed) = &mut self.closed else {
            return self.drop_open_before(time);
        };
        let old = closed.partition_point(|c| c.range().max < time);
        let mut freed: usize = closed.drain(..old).map(|c| c.memory_bytes()).sum();
        if closed.is_empty() {
            self.closed = None;
            freed += self.drop_open_before(time);
        }
        freed
    }

    fn drop_open_before(&mut self, time: TimestampMs) -> usize {
        if self.open.sample_count() == 0 || self.open.last_time() >= time {
            return 0;
        }
        let before = self.open.memory_bytes();
        self.open.close();
        before - self.open.memory_bytes()
    }

    /// Returns the number of chunks, the open one included.
    pub(crate) fn chunk_count(&self) -> usize {
        self.closed().len() + usize::from(self.open.sample_count() > 0)
    }

    /// Returns the bytes of the open chunk and of those closed chunks after the first `closed`
    /// ones. The difference before and after an append is the memory that it took.
    #[inline]
    pub(crate) fn bytes_since(&self, closed: usize) -> usize {
        let fresh = self.closed().get(closed..).unwrap_or(&[]);
        self.open.memory_bytes() + fresh.iter().map(Chunk::memory_bytes).sum::<usize>()
    }

    /// Returns the memory of the chunks in bytes, without the struct itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        let closed: usize = self.closed().iter().map(Chunk::memory_bytes).sum();
        self.open.memory_bytes() + closed
    }

    /// Sets the newest sealed sample, before the series has any sample in memory. `None` as the
    /// sample means that it is too old to be sent again.
    pub(crate) fn set_newest_sealed(&mut self, time: TimestampMs, sample: Option<ChunkSample>) {
        self.open = OpenChunk::new_after(time, sample);
    }

    /// Drops the samples up to `time`, which are sealed. The newest sample remains known for the
    /// check of duplicates.
    pub(crate) fn drop_through(&mut self, time: TimestampMs) -> Result<(), DecodeError> {
        if let Some(closed) = &mut self.closed {
            let sealed = closed.partition_point(|c| c.range().max <= time);
            closed.drain(..sealed);
            if let Some(cut) = closed.first_mut()
                && cut.range().min <= time
            {
                *cut = cut.copy_after(time)?;
            }
            if closed.is_empty() {
                self.closed = None;
            } else {
                closed.shrink_to_fit();
                return Ok(());
            }
        }
        if self.open.sample_count() == 0 || self.open.first_time() > time {
            return Ok(());
        }
        if self.open.last_time() <= time {
            self.open.close();
            return Ok(());
        }
        let mut columns = SampleColumns::default();
        if let Some(chunk) = self.open.snapshot() {
            chunk.decode(usize::MAX, &mut columns)?;
        }
        let mut open = OpenChunk::default();
        for (at, start, value) in columns.samples().filter(|(at, ..)| *at > time) {
            match value {
                ChunkSample::Float(value) => {
                    open.push_float(at, start, value);
                    open.pack_if_due(Chunk::phase(self.slot));
                }
                ChunkSample::Histogram(histogram) => {
                    open.push_histogram(at, start, &histogram, histogram.reset_hint)
                }
            }
        }
        self.open = open;
        Ok(())
    }

    /// Drops the samples up to `time`. If a chunk cannot be decoded, drops every chunk that has a
    /// sample up to `time`.
    pub(crate) fn discard_through(&mut self, time: TimestampMs) {
        if self.drop_through(time).is_ok() {
            return;
        }
        if let Some(closed) = &mut self.closed {
            closed.retain(|chunk| chunk.range().min > time);
            if closed.is_empty() {
                self.closed = None;
            }
        }
        if self.open.sample_count() > 0 && self.open.first_time() <= time {
            self.open.close();
        }
    }

    /// Returns the time of the newest sample and of the one before it in the open chunk, if the
    /// series ever had a sample.
    pub(crate) fn newest_times(&self) -> Option<NewestSampleTimes> {
        if !self.has_newest() {
            return None;
        }
        let mut columns = SampleColumns::default();
        let before = match self
            .open
            .snapshot()
            .map(|open| open.decode(usize::MAX, &mut columns))
        {
            Some(Ok(())) => columns.times.iter().rev().nth(1).copied(),
            _ => None,
        };
        let newest = self.open.last_time();
        Some(NewestSampleTimes { newest, before })
    }

    /// Returns the number of samples in memory.
    pub(crate) fn sample_count(&self) -> usize {
        let closed = self.closed().iter().map(Chunk::sample_count);
        closed.sum::<usize>() + self.open.sample_count()
    }

    /// Returns a time before all of the newest `hidden` samples in memory, of which there is at
    /// least one, and not before the others.
    pub(crate) fn end_before_newest(&self, hidden: usize) -> Result<TimestampMs, DecodeError> {
        let mut columns = SampleColumns::default();
        for chunk in self.closed() {
            chunk.decode(usize::MAX, &mut columns)?;
        }
        if let Some(open) = self.open.snapshot() {
            open.decode(usize::MAX, &mut columns)?;
        }
        let first = columns.times.len().saturating_sub(hidden);
        let first = columns.times.get(first).copied();
        Ok(first.map_or(self.open.last_time(), |first| first.saturating_sub(1)))
    }

    /// Inserts samples at their position in time; a sample whose time is already present is
    /// skipped. Used only by replay, because log records may be in another order than the head
    /// applied them.
    pub(crate) fn insert_displaced(
        &mut self,
        displaced: &[(TimestampMs, TimestampMs, ChunkSample)],
    ) -> Result<(), DecodeError> {
        let mut columns = SampleColumns::default();
        for chunk in self.closed() {
            chunk.decode(usize::MAX, &mut columns)?;
        }
        if let Some(open) = self.open.snapshot() {
            open.decode(usize::MAX, &mut columns)?;
        }
        let is_known = |time: &TimestampMs| columns.times.binary_search(time).is_ok();
        if displaced.iter().all(|(time, ..)| is_known(time)) {
            return Ok(());
        }
        let mut all: Vec<_> = columns.samples().collect();
        all.extend(displaced.iter().filter(|(t, ..)| !is_known(t)).cloned());
        all.sort_by_key(|(time, ..)| *time);
        all.dedup_by_key(|(time, ..)| *time);
        *self = Self {
            last_sequence: self.last_sequence,
            ..Self::new(self.slot)
        };
        for (time, start, value) in &all {
            self.push(*time, *start, value.as_value());
        }
        Ok(())
    }
}

impl ChunkSample {
    /// Returns the sample as a borrowed value.
    pub(crate) fn as_value(&self) -> SampleValueRef<'_> {
        match self {
            Self::Float(value) => SampleValueRef::Float(*value),
            Self::Histogram(histogram) => SampleValueRef::Histogram(histogram),
        }
    }
}
