//! How much the write pipeline takes in.

use firn_wire::WireLimits;

/// Caps of the write pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestLimits {
    /// Caps on one request.
    pub wire: WireLimits,
    /// Bytes of all bodies and decoded messages together that are being worked on.
    pub in_flight_bytes_max: usize,
    /// How far ahead of the wall clock a sample may be.
    pub future_ms_max: i64,
}

impl Default for IngestLimits {
    fn default() -> Self {
        Self {
            wire: WireLimits::default(),
            // A largest message is held as body, message and batch: 32 + 32 + 128 MiB. This lets
            // one of them through beside 60 ordinary requests of 1 MiB.
            in_flight_bytes_max: 256 << 20,
            // Prometheus's: clocks of senders drift, but a day ahead would block a series for a
            // day.
            future_ms_max: 10 * 60 * 1000,
        }
    }
}
