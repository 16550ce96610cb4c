//! Accounts for the memory of a batch and reserves it before it is allocated.

use crate::error::WireError;
use crate::limits::WireLimits;
use firn_model::budget::Reservation;

/// Memory of a series in a batch, without labels and samples, in bytes.
pub(crate) const SERIES_BYTES: usize = 20;

/// Memory of a float sample in a batch, in bytes.
pub(crate) const SAMPLE_BYTES: usize = 16;

/// Memory of an exemplar in a batch, without its labels, in bytes.
pub(crate) const EXEMPLAR_BYTES: usize = 40;

/// Step in which memory is reserved: a request of 2,000 samples needs two.
const RESERVE_STEP_BYTES: usize = 64 << 10;

/// The memory account of one request's batch. Decoders add to it before they allocate, so that
/// limits hold for any input.
pub(crate) struct RequestMemoryAccount<'d> {
    limit: usize,
    memory: Option<&'d mut Reservation>,
    bytes: usize,
    reserved_bytes: usize,
}

impl<'d> RequestMemoryAccount<'d> {
    /// Returns an account at zero, which reserves in `memory` if that is given.
    pub(crate) fn new(limits: &WireLimits, memory: Option<&'d mut Reservation>) -> Self {
        Self {
            limit: limits.batch_bytes_max,
            memory,
            bytes: 0,
            reserved_bytes: 0,
        }
    }

    /// Adds memory that is about to be allocated. Fails beyond the limit, or if the budget is
    /// exhausted.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), WireError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.reserved_bytes {
            self.reserve()?;
        }
        Ok(())
    }

    /// Reserves the counted bytes plus one step, so that reservations are rare. Fails if the limit
    /// or the budget does not allow that.
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
