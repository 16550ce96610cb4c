//! Cache of the last decoded times, for series that were scraped together.

use super::pack;
use crate::encoding::DecodeError;
use crate::encoding::time::TimeState;
use firn_model::sample::TimestampMs;

/// The last decoded times. Series that were scraped together have equal times: a reader of several
/// series decodes the times of their packs once, and [`DecodedTimesCache::generation`] shows that
/// they did not change. Reuse an instance to keep its memory.
#[derive(Debug, Default)]
pub(crate) struct DecodedTimesCache {
    first: TimestampMs,
    bytes: Vec<u8>,
    /// Times of the packs first; the times of unpacked samples may follow.
    times: Vec<TimestampMs>,
    samples: usize,
    /// State of the decoder after the last pack.
    state: TimeState,
    /// Number of times of the last chunk of floats.
    count: usize,
    generation: u64,
}

impl DecodedTimesCache {
    /// Returns the times of the last decoded chunk of floats.
    pub(crate) fn newest(&self) -> &[TimestampMs] {
        &self.times[..self.count]
    }

    /// Returns a number that changes whenever [`DecodedTimesCache::newest`] changes.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the first `samples` times, which [`DecodedTimesCache::decode_cached`] must have
    /// decoded.
    pub(super) fn first(&self, samples: usize) -> &[TimestampMs] {
        &self.times[..samples]
    }

    /// Decodes the times of packs, unless they are cached. Returns the decoder state after them.
    #[inline]
    pub(super) fn decode_cached(
        &mut self,
        first: TimestampMs,
        bytes: &[u8],
        samples: usize,
    ) -> Result<TimeState, DecodeError> {
        let is_known = (self.first, self.samples) == (first, samples) && self.bytes == bytes;
        if !is_known {
            self.decode_and_cache(first, bytes, samples)?;
        }
        Ok(self.state)
    }

    /// Decodes the times of packs and caches them with the bytes that they were decoded from.
    fn decode_and_cache(
        &mut self,
        first: TimestampMs,
        bytes: &[u8],
        samples: usize,
    ) -> Result<(), DecodeError> {
        self.samples = 0;
        self.invalidate();
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.first = first;
        self.state = TimeState::from_start(first);
        self.make_room(samples);
        pack::times::decode_times(bytes, &mut self.state, &mut self.times[..samples])?;
        self.samples = samples;
        Ok(())
    }

    /// Returns the places `samples..room` of the times for the caller to fill. Only the first
    /// `samples` times remain cached.
    pub(super) fn spare_times(&mut self, samples: usize, room: usize) -> &mut [TimestampMs] {
        self.samples = samples;
        self.make_room(room);
        &mut self.times[samples..room]
    }

    /// Records that the first `count` times belong to a chunk of floats; `moved` is true if any of
    /// them changed.
    pub(super) fn set_valid_count(&mut self, count: usize, moved: bool) {
        if moved || self.count != count {
            self.invalidate();
            self.count = count;
        }
    }

    /// Invalidates the times of the last chunk, so that readers see a new generation.
    pub(super) fn invalidate(&mut self) {
        self.generation += 1;
        self.count = 0;
    }

    fn make_room(&mut self, samples: usize) {
        if self.times.len() < samples {
            self.times.resize(samples, 0);
        }
    }
}
