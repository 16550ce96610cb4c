//! One series of the head: its chunks, and what it accepts next.

use crate::chunk::{Chunk, Columns, Newest, OpenChunk, Sample};
use crate::encoding::{Malformed, histogram};
use crate::ids::SeriesRef;
use firn_model::histogram::Histogram;
use firn_model::sample::{TimeRange, TimestampMs};
use firn_model::store::{Rejection, TakeLate};
use std::ops::RangeInclusive;

/// The times that an append accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The oldest.
    pub(crate) min: TimestampMs,
    /// The newest.
    pub(crate) max: TimestampMs,
    /// The oldest that is taken late, where it cannot be appended in order; `i64::MAX` if none is.
    pub(crate) late_min: TimestampMs,
    /// Which samples are taken late, of those that may be for their times.
    pub(crate) late: TakeLate,
}

impl Window {
    /// Whether late samples are taken.
    pub(crate) fn takes_late(&self) -> bool {
        self.late_min != TimestampMs::MAX
    }

    /// The times of a sample that may create its series.
    pub(crate) fn times(&self) -> RangeInclusive<TimestampMs> {
        self.min.min(self.late_min)..=self.max
    }

    /// Whether a sample of this time may create its series.
    pub(crate) fn contains(&self, time: TimestampMs) -> bool {
        self.times().contains(&time)
    }
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was appended.
    Stored,
    /// It was taken as a late one.
    Late,
    /// It was there already.
    Known,
    /// It was refused.
    Refused(Rejection),
}

/// A sample's value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    /// A float.
    Float(f64),
    /// A histogram.
    Histogram(&'a Histogram),
}

/// The chunks of one series. Times increase from chunk to chunk.
#[derive(Debug)]
pub(crate) struct Series {
    /// Its number, which it keeps for as long as the store lives.
    pub(crate) slot: SeriesRef,
    /// The low half of the sequence number of the last batch that wrote to it.
    pub(crate) last_sequence: u32,
    pub(crate) open: OpenChunk,
    /// Oldest first.
    #[expect(
        clippy::box_collection,
        reason = "most series of a young store have none: 8 bytes instead of 24"
    )]
    closed: Option<Box<Vec<Chunk>>>,
}

impl Series {
    /// A series without samples.
    pub(crate) fn new(slot: SeriesRef) -> Self {
        Self {
            slot,
            last_sequence: 0,
            open: OpenChunk::default(),
            closed: None,
        }
    }

    /// Chunks that are closed, oldest first.
    pub(crate) fn closed(&self) -> &[Chunk] {
        self.closed.as_deref().map_or(&[], |c| c)
    }

    /// Whether it ever had a sample.
    pub(crate) fn has_newest(&self) -> bool {
        self.open.has_newest()
    }

    /// Takes a sample, or says why not. The newest sample again is known whatever the window says,
    /// so that a sender that did not hear of its success may repeat itself.
    #[inline]
    pub(crate) fn append(
        &mut self,
        window: Window,
        time: TimestampMs,
        start: TimestampMs,
        value: Value<'_>,
    ) -> Verdict {
        if self.has_newest() && time <= self.open.last_time() {
            return self.judge_old(window, time, value);
        }
        if time < window.min {
            return Verdict::Refused(Rejection::OutOfBounds);
        }
        if time > window.max {
            return Verdict::Refused(Rejection::TooFarInFuture);
        }
        self.push(time, start, value);
        Verdict::Stored
    }

    #[cold]
    fn judge_old(&self, window: Window, time: TimestampMs, value: Value<'_>) -> Verdict {
        let is_newest = time == self.open.last_time();
        if is_newest && self.is_newest_value(value) {
            return Verdict::Known;
        }
        Verdict::Refused(if time < window.min {
            Rejection::OutOfBounds
        } else if is_newest {
            Rejection::DuplicateTimestamp
        } else {
            Rejection::OutOfOrder
        })
    }

    /// Whether the newest sample has this value, to the bit.
    pub(crate) fn is_newest_value(&self, value: Value<'_>) -> bool {
        match (self.open.newest(), value) {
            (Newest::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
            // The hint is the head's own.
            (Newest::Histogram(a), Value::Histogram(b)) => histogram::equal_but_hint(a, b),
            _ => false,
        }
    }

    /// Appends a sample that is newer than all others.
    #[inline]
    pub(crate) fn push(&mut self, time: TimestampMs, start: TimestampMs, value: Value<'_>) {
        if self.open.is_full(Chunk::samples_max(self.slot)) {
            self.close_chunk();
        }
        match value {
            Value::Float(value) => {
                self.open.push_float(time, start, value);
                self.open.pack_if_due(Chunk::phase(self.slot));
            }
            Value::Histogram(histogram) => {
                let previous = match self.open.newest() {
                    Newest::Histogram(previous) => Some(previous),
                    Newest::Float(_) | Newest::Unknown => None,
                };
                let hint = histogram.hint_behind(previous);
                self.open.push_histogram(time, start, histogram, hint);
            }
        }
    }

    /// Appends a float if it is newer than all others and the open chunk takes it as it is; returns
    /// the bytes of memory that this took.
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

    #[cold]
    fn close_chunk(&mut self) {
        if let Some(chunk) = self.open.close() {
            let closed = self.closed.get_or_insert_default();
            closed.reserve_exact(1 + closed.len() / 8);
            closed.push(chunk);
        }
    }

    /// From the oldest sample to the newest, if there are any.
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

    /// Drops chunks that end before `time`; returns the bytes that were freed.
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

    /// Chunks, the open one included.
    pub(crate) fn chunk_count(&self) -> usize {
        self.closed().len() + usize::from(self.open.sample_count() > 0)
    }

    /// Bytes of the open chunk and of those closed since there were `closed` of them: before and
    /// after an append they differ by what it took.
    #[inline]
    pub(crate) fn bytes_since(&self, closed: usize) -> usize {
        let fresh = self.closed().get(closed..).unwrap_or(&[]);
        self.open.memory_bytes() + fresh.iter().map(Chunk::memory_bytes).sum::<usize>()
    }

    /// Bytes of memory behind the struct.
    pub(crate) fn memory_bytes(&self) -> usize {
        let closed: usize = self.closed().iter().map(Chunk::memory_bytes).sum();
        self.open.memory_bytes() + closed
    }

    /// Says what the newest of its sealed samples is, before any other is known; one without a
    /// value stands for a sample too old to be sent again.
    pub(crate) fn begin_behind(&mut self, time: TimestampMs, sample: Option<Sample>) {
        self.open = OpenChunk::behind(time, sample);
    }

    /// Drops the samples up to `time`, which are sealed; the newest one stays known.
    pub(crate) fn drop_through(&mut self, time: TimestampMs) -> Result<(), Malformed> {
        if let Some(closed) = &mut self.closed {
            let sealed = closed.partition_point(|c| c.range().max <= time);
            closed.drain(..sealed);
            if let Some(cut) = closed.first_mut()
                && cut.range().min <= time
            {
                *cut = cut.behind(time)?;
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
        let mut columns = Columns::default();
        if let Some(chunk) = self.open.snapshot() {
            chunk.decode(usize::MAX, &mut columns)?;
        }
        let mut open = OpenChunk::default();
        for (at, start, value) in columns.samples().filter(|(at, ..)| *at > time) {
            match value {
                Sample::Float(value) => {
                    open.push_float(at, start, value);
                    open.pack_if_due(Chunk::phase(self.slot));
                }
                Sample::Histogram(histogram) => {
                    open.push_histogram(at, start, &histogram, histogram.reset_hint)
                }
            }
        }
        self.open = open;
        Ok(())
    }

    /// Drops the samples up to `time`; where decoding a chunk fails, all chunks that have a sample
    /// up to `time`.
    pub(crate) fn give_up_through(&mut self, time: TimestampMs) {
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

    /// How many samples there are.
    pub(crate) fn sample_count(&self) -> usize {
        let closed = self.closed().iter().map(Chunk::sample_count);
        closed.sum::<usize>() + self.open.sample_count()
    }

    /// Puts samples that were taken in order into their place; one whose time is taken is known
    /// already. Only replay needs it: records of the log may stand in another order than the head
    /// took them in.
    pub(crate) fn insert_displaced(
        &mut self,
        displaced: &[(TimestampMs, TimestampMs, Sample)],
    ) -> Result<(), Malformed> {
        let mut columns = Columns::default();
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

impl Sample {
    /// The sample, borrowed.
    pub(crate) fn as_value(&self) -> Value<'_> {
        match self {
            Self::Float(value) => Value::Float(*value),
            Self::Histogram(histogram) => Value::Histogram(histogram),
        }
    }
}
