//! The times that were decoded last, for series that were scraped together.

use super::pack;
use crate::encoding::Malformed;
use crate::encoding::time::TimeState;
use firn_model::sample::TimestampMs;

/// The times that were decoded last. Series that were scraped together have equal times: a reader
/// that goes from one to the next decodes the times of their packs once, and learns from
/// [`TimesKnown::generation`] that they did not change. Reuse one to keep its memory.
#[derive(Debug, Default)]
pub(crate) struct TimesKnown {
    first: TimestampMs,
    bytes: Vec<u8>,
    /// Those of the packs first; behind them may be those of loose samples.
    times: Vec<TimestampMs>,
    samples: usize,
    /// Behind the last of the packs.
    state: TimeState,
    /// Times of the last chunk of floats.
    count: usize,
    generation: u64,
}

impl TimesKnown {
    /// The times of the chunk of floats that was decoded last.
    pub(crate) fn newest(&self) -> &[TimestampMs] {
        &self.times[..self.count]
    }

    /// A number that changes whenever [`TimesKnown::newest`] does.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The first `samples` times, which [`TimesKnown::know`] has read.
    pub(super) fn first(&self, samples: usize) -> &[TimestampMs] {
        &self.times[..samples]
    }

    /// Makes sure that the times of packs are known; returns the state behind them.
    #[inline]
    pub(super) fn know(
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
        pack::times::read(bytes, &mut self.state, &mut self.times[..samples])?;
        self.samples = samples;
        Ok(())
    }

    /// The places of the times from `samples` up to `room`, for the caller to fill; only the first
    /// `samples` stay known.
    pub(super) fn places_behind(&mut self, samples: usize, room: usize) -> &mut [TimestampMs] {
        self.samples = samples;
        self.make_room(room);
        &mut self.times[samples..room]
    }

    /// Says that the first `count` times are those of a chunk of floats; `moved` if one of them
    /// changed.
    pub(super) fn keep(&mut self, count: usize, moved: bool) {
        if moved || self.count != count {
            self.forget();
            self.count = count;
        }
    }

    pub(super) fn forget(&mut self) {
        self.generation += 1;
        self.count = 0;
    }

    fn make_room(&mut self, samples: usize) {
        if self.times.len() < samples {
            self.times.resize(samples, 0);
        }
    }
}
