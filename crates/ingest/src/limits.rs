//! How much the write pipeline takes in.
//!
//! ```text
//! writes (a share of all memory)
//!   in flight 13/16                   spare decoders 2/16   spare bodies 1/16
//!     bodies of ordinary requests: half
//!     large requests: three quarters
//!       their bodies: a sixth of that
//! ```
//!
//! So a quarter of what is in flight is for ordinary requests alone, however many large ones come,
//! and bodies that wait leave room for those that are worked on.

use firn_model::shares::Shares;
use firn_wire::WireLimits;

/// What a request takes besides its body and its batch, in messages: the message, its labels read
/// (an arena that doubles as it grows), the block for the log, and its copy on the way to the disk.
pub(crate) const WORK_MESSAGES: usize = 5;

/// Decoders that wait for the next request: as many as decode at one time on a large machine.
const SPARE_DECODERS_MAX: usize = 16;

/// Memory that a waiting decoder may hold. A request of 2,000 samples takes 1.2 MiB; one that took
/// much more is rare and gives its memory back.
const SPARE_DECODER_BYTES_MAX: usize = 4 << 20;

/// Bodies that wait for the next request: as many as are read at one time by a few busy senders.
const SPARE_BODIES_MAX: usize = 16;

/// Memory that a waiting body may hold: twice a request of 2,000 samples.
const SPARE_BODY_BYTES_MAX: usize = 256 << 10;

/// Caps of the write pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestLimits {
    /// Caps on one request.
    pub wire: WireLimits,
    /// Bytes of all bodies, decoded messages and blocks for the log that are being worked on.
    pub in_flight_bytes_max: usize,
    /// What may be kept for the next requests.
    pub spare: SpareLimits,
    /// How far ahead of the wall clock a sample may be.
    pub future_ms_max: i64,
}

/// Memory that is kept for the next requests, so that they need not ask the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpareLimits {
    /// Decoders.
    pub decoders: usize,
    /// Bytes of each.
    pub decoder_bytes: usize,
    /// Bodies.
    pub bodies: usize,
    /// Bytes of each.
    pub body_bytes: usize,
}

impl IngestLimits {
    /// The caps for the share of writes. With 3 GB of memory or more no ordinary request meets the
    /// caps of one request; with less they say what fits.
    pub fn of(shares: &Shares) -> Self {
        let in_flight = shares.writes / 16 * 13;
        let large = large_bytes_max(in_flight);
        let largest = WireLimits::default();
        let message = largest.message_bytes_max.min(large / (WORK_MESSAGES + 1));
        let batch = large - WORK_MESSAGES * message;
        Self {
            wire: WireLimits {
                // Snappy makes no more of a message than it is, but for a little.
                body_bytes_max: largest.body_bytes_max.min(large_bodies_bytes_max(large)),
                message_bytes_max: message,
                batch_bytes_max: largest.batch_bytes_max.min(batch),
                ..largest
            },
            in_flight_bytes_max: in_flight,
            spare: SpareLimits::of(shares),
            // Prometheus's: clocks of senders drift, but a day ahead would block a series for a
            // day.
            future_ms_max: 10 * 60 * 1000,
        }
    }
}

impl SpareLimits {
    fn of(shares: &Shares) -> Self {
        let decoders = shares.writes / 16 * 2 / SPARE_DECODERS_MAX;
        let bodies = shares.writes / 16 / SPARE_BODIES_MAX;
        Self {
            decoders: SPARE_DECODERS_MAX,
            decoder_bytes: decoders.min(SPARE_DECODER_BYTES_MAX),
            bodies: SPARE_BODIES_MAX,
            body_bytes: bodies.min(SPARE_BODY_BYTES_MAX),
        }
    }
}

/// What all large requests may take of `in_flight` bytes.
pub(crate) fn large_bytes_max(in_flight: usize) -> usize {
    in_flight / 4 * 3
}

/// What the bodies of large requests may take of what these have: so much that beside all of them
/// the largest message can be worked on.
pub(crate) fn large_bodies_bytes_max(large: usize) -> usize {
    large / (WORK_MESSAGES + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ingest_limits_of_any_memory_are_within_the_share_of_writes() {
        for mib in [77, 128, 256, 512, 1 << 10, 16 << 10] {
            let shares = Shares::of(mib << 20);
            let limits = IngestLimits::of(&shares);
            let spare = limits.spare;
            let spare = spare.decoders * spare.decoder_bytes + spare.bodies * spare.body_bytes;
            assert!(limits.in_flight_bytes_max + spare <= shares.writes, "{mib}");
            let wire = limits.wire;
            let large = large_bytes_max(limits.in_flight_bytes_max);
            let one = WORK_MESSAGES * wire.message_bytes_max + wire.batch_bytes_max;
            assert!(
                one <= large,
                "{mib} MiB: one request takes {one} of {large}"
            );
            // A request of 2,000 samples, and of ten times as many, unpacks to this.
            let ordinary = if mib < 256 { 3 << 18 } else { 3 << 20 };
            assert!(wire.message_bytes_max >= ordinary, "{mib} MiB: {wire:?}");
        }
        let wire = IngestLimits::of(&Shares::of(4 << 30)).wire;
        assert_eq!(wire, WireLimits::default());
    }
}
