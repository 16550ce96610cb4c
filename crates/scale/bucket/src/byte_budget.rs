//! The budget of bytes in flight.
//!
//! Invariant: reserved bytes never exceed the budget, and every reservation returns its bytes when
//! it is dropped, whether the operation finished or was canceled.

use crate::error::{BucketError, BucketFailure};
use crate::metrics::BucketMetrics;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of a permit, since a semaphore counts in 32 bits.
const PERMIT_BYTES: u64 = 1 << 10;

/// The budget of a client, from which operations reserve [`ByteReservation`].
#[derive(Clone, Debug)]
pub(crate) struct ByteBudget {
    permits: Arc<Semaphore>,
    object_bytes_max: u64,
    metrics: Arc<BucketMetrics>,
}

impl ByteBudget {
    pub(crate) fn new(bytes: u64, object_bytes_max: u64, metrics: Arc<BucketMetrics>) -> Self {
        assert!(object_bytes_max <= bytes, "the limits were not checked");
        // The last permit may be partly used.
        let permits = permits(bytes).min(u64::from(u32::MAX)) as usize;
        Self {
            permits: Arc::new(Semaphore::new(permits)),
            object_bytes_max,
            metrics,
        }
    }

    /// Creates a reservation of no bytes.
    pub(crate) fn reservation(&self) -> ByteReservation {
        ByteReservation {
            budget: self.clone(),
            held: None,
        }
    }
}

fn permits(bytes: u64) -> u64 {
    bytes.div_ceil(PERMIT_BYTES)
}

/// Bytes that one attempt has reserved.
#[derive(Debug)]
pub(crate) struct ByteReservation {
    budget: ByteBudget,
    held: Option<OwnedSemaphorePermit>,
}

impl ByteReservation {
    /// Reserves `bytes` bytes and waits until they are free. An attempt reserves once, so that no
    /// two attempts wait for each other. Fails with [`BucketFailure::Limited`] if no object may be
    /// so large.
    pub(crate) async fn reserve(&mut self, bytes: u64) -> Result<(), BucketError> {
        assert!(self.held.is_none(), "an attempt reserves bytes once");
        let limit = self.budget.object_bytes_max;
        if bytes > limit {
            let text = format!("{bytes} bytes, limit {limit}");
            return Err(BucketError::new(BucketFailure::Limited, text));
        }
        let wanted = permits(bytes) as u32;
        let permits = self.budget.permits.clone();
        // The semaphore is never closed.
        if let Ok(held) = permits.acquire_many_owned(wanted).await {
            self.budget.metrics.bytes_in_flight.add(bytes_of(&held));
            self.held = Some(held);
        }
        Ok(())
    }
}

fn bytes_of(held: &OwnedSemaphorePermit) -> i64 {
    held.num_permits() as i64 * PERMIT_BYTES as i64
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            self.budget.metrics.bytes_in_flight.add(-bytes_of(held));
        }
    }
}
