//! Memory of a batch, counted and reserved before it is taken.

use crate::error::WireError;
use crate::limits::WireLimits;
use firn_model::budget::Reservation;

/// What a series costs in a batch besides its labels and samples.
pub(crate) const SERIES_BYTES: usize = 20;

/// What a float sample costs in a batch.
pub(crate) const SAMPLE_BYTES: usize = 16;

/// What an exemplar costs in a batch besides its labels.
pub(crate) const EXEMPLAR_BYTES: usize = 40;

/// Memory is reserved in steps of this: a request of 2,000 samples takes two.
const RESERVE_STEP_BYTES: usize = 64 << 10;

/// What the batch of one request takes.
pub(crate) struct Charges<'d> {
    limit: usize,
    memory: Option<&'d mut Reservation>,
    bytes: usize,
    reserved_bytes: usize,
}

impl<'d> Charges<'d> {
    /// Nothing yet; `memory` is where the request has its room.
    pub(crate) fn new(limits: &WireLimits, memory: Option<&'d mut Reservation>) -> Self {
        Self {
            limit: limits.batch_bytes_max,
            memory,
            bytes: 0,
            reserved_bytes: 0,
        }
    }

    /// Counts memory of the batch before it is taken.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), WireError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.reserved_bytes {
            self.reserve()?;
        }
        Ok(())
    }

    /// Reserves what is counted, and a step more so that this is rare.
    #[cold]
    fn reserve(&mut self) -> Result<(), WireError> {
        let limit = self.limit;
        if self.bytes > limit {
            return Err(WireError::TooManySamples { limit });
        }
        let wanted = self.bytes.saturating_add(RESERVE_STEP_BYTES).min(limit);
        if let Some(memory) = &mut self.memory {
            memory
                .grow(wanted - self.reserved_bytes)
                .map_err(|e| WireError::NoMemory(e.message))?;
        }
        self.reserved_bytes = wanted;
        Ok(())
    }
}
