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
use firn_wire::exposition::PieceLimits;
use firn_wire::unpack::{Packing, ZSTD_BLOCK_BYTES_MAX};

/// What a request takes besides its body and its batch, in messages: the message, its labels read
/// (an arena that doubles as it grows), the block for the log, and its copy on the way to the disk.
pub(crate) const WORK_MESSAGES: usize = 5;

/// Deltas that are added up take this part of what writes may take, beside it: they are memory that
/// stays, and are counted as the store's is.
const DELTAS_SHARE: usize = 4;

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
    /// Caps on one import of text.
    pub import: ImportLimits,
    /// What may be kept for the next requests.
    pub spare: SpareLimits,
    /// Bytes of streams of deltas that are added up.
    pub deltas_bytes_max: usize,
    /// How far ahead of the wall clock a sample may be.
    pub future_ms_max: i64,
}

/// Caps on an import of text, which is never held whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportLimits {
    /// Text that is parsed, stored and made durable at a time.
    pub text: PieceLimits,
    /// Bytes of the body that wait to be unpacked.
    pub input_bytes_max: usize,
    /// How far zstd may reach back.
    pub window_bytes_max: usize,
}

impl ImportLimits {
    /// Caps that fit into the room of the largest body.
    fn of(body_bytes_max: usize) -> Self {
        let line_bytes_max = body_bytes_max / 8;
        Self {
            text: PieceLimits {
                // Ten thousand samples, which take some 5 ms to store and one sync.
                piece_bytes: line_bytes_max / 4,
                line_bytes_max,
            },
            // A block of zstd is read as a whole.
            input_bytes_max: ZSTD_BLOCK_BYTES_MAX * 2,
            // With the most memory as far as zstd's levels up to 19 do.
            window_bytes_max: body_bytes_max / 4,
        }
    }

    /// Bytes of memory that an import takes beside its batches, of a body that says that it has
    /// `declared` bytes, or 0 if it does not say.
    pub fn room_bytes(&self, packing: Packing, declared: usize) -> usize {
        let lines = self.text.line_bytes_max;
        match (packing, declared) {
            // It waits as input, and as text.
            (Packing::None, 1..) => declared.min(self.input_bytes_max) + declared.min(lines),
            _ => self.input_bytes_max + lines + packing.memory_bytes(self.window_bytes_max),
        }
    }
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
        // Snappy makes no more of a message than it is, but for a little.
        let body = largest.body_bytes_max.min(large_bodies_bytes_max(large));
        Self {
            wire: WireLimits {
                body_bytes_max: body,
                message_bytes_max: message,
                batch_bytes_max: largest.batch_bytes_max.min(batch),
                ..largest
            },
            in_flight_bytes_max: in_flight,
            import: ImportLimits::of(body),
            spare: SpareLimits::of(shares),
            deltas_bytes_max: shares.writes / DELTAS_SHARE,
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
            let import = limits.import.room_bytes(Packing::Gzip, 0);
            assert!(import <= wire.body_bytes_max, "{mib} MiB: {import}");
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
        let limits = IngestLimits::of(&Shares::of(4 << 30));
        assert_eq!(limits.wire, WireLimits::default());
        assert_eq!(limits.import.window_bytes_max, 8 << 20);
    }
}
