//! Memory limits of the write pipeline.
//!
//! ```text
//! writes (a share of all memory)
//!   in flight 13/16                   spare decoders 2/16   spare bodies 1/16
//!     bodies of ordinary requests: half
//!     large requests: three quarters
//!       their bodies: a sixth of that
//! ```
//!
//! A quarter of the memory in flight is thus reserved for ordinary requests, however many large
//! ones arrive, and waiting bodies leave space for the processing of others.

use firn_model::shares::BudgetShares;
use firn_wire::WireLimits;
use firn_wire::exposition::PieceLimits;
use firn_wire::unpack::{ContentEncoding, ZSTD_BLOCK_BYTES_MAX};

/// Memory of a request without its body and its batch, as a multiple of the message: the message,
/// its decoded labels (an arena that doubles as it grows), the block for the log, and its copy on
/// the way to disk.
pub(crate) const WORK_MESSAGES: usize = 5;

/// Divisor for the memory of accumulated deltas: they may use this part of the write memory in
/// addition to it, because they are long-lived and accounted like the store's memory.
const DELTAS_SHARE: usize = 4;

/// Divisor for the memory of the series of pairs of replicas. Like the memory of deltas, it is
/// additional to the write memory.
const REPLICAS_SHARE: usize = 2;

/// Number of decoders kept for the next requests: as many as decode concurrently on a large
/// machine.
const SPARE_DECODERS_MAX: usize = 16;

/// Largest memory of a spare decoder in bytes. A request of 2,000 samples takes 1.2 MiB; larger
/// ones are rare, and their decoders are freed.
const SPARE_DECODER_BYTES_MAX: usize = 4 << 20;

/// Number of body buffers kept for the next requests: as many as a few busy senders fill
/// concurrently.
const SPARE_BODIES_MAX: usize = 16;

/// Largest memory of a spare body buffer in bytes: twice a request of 2,000 samples.
const SPARE_BODY_BYTES_MAX: usize = 256 << 10;

/// Limits of the write pipeline, derived from the memory that the process may use. They are fixed
/// for the lifetime of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestLimits {
    /// Limits of a single request, of any protocol.
    pub wire: WireLimits,
    /// Largest total size in bytes of the bodies, decoded messages and log blocks in processing.
    pub in_flight_bytes_max: usize,
    /// Limits of a single import of text.
    pub import: ImportLimits,
    /// Limits of the memory that is kept for the next requests.
    pub spare: SpareBufferLimits,
    /// Largest memory of accumulated delta streams in bytes.
    pub deltas_bytes_max: usize,
    /// Largest memory of the series of pairs of replicas in bytes.
    pub replicas_bytes_max: usize,
    /// Largest distance of a sample's timestamp into the future, in milliseconds.
    pub future_ms_max: i64,
}

/// Limits of an import of text, which is never in memory as a whole; derived from the largest body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportLimits {
    /// Limits of the piece of text that is parsed, stored and made durable at a time.
    pub text: PieceLimits,
    /// Largest number of body bytes that wait to be decompressed.
    pub input_bytes_max: usize,
    /// Largest accepted window of zstd in bytes.
    pub window_bytes_max: usize,
}

impl ImportLimits {
    /// Returns limits that fit into the memory of the largest body. A line may be an eighth of it.
    fn from_body_bytes(body_bytes_max: usize) -> Self {
        let line_bytes_max = body_bytes_max / 8;
        Self {
            text: PieceLimits {
                // Ten thousand samples, which take about 5 ms to store and one sync.
                piece_bytes: line_bytes_max / 4,
                line_bytes_max,
            },
            // A block of zstd must be in the input as a whole.
            input_bytes_max: ZSTD_BLOCK_BYTES_MAX * 2,
            // At the default body limit enough for the zstd levels up to 19.
            window_bytes_max: body_bytes_max / 4,
        }
    }

    /// Returns the memory of an import in bytes, without its batches, for a body with a declared
    /// size of `declared` bytes, or 0 if the size is unknown.
    pub fn reservation_bytes(&self, packing: ContentEncoding, declared: usize) -> usize {
        let lines = self.text.line_bytes_max;
        match (packing, declared) {
            // An uncompressed body is buffered as input and as text.
            (ContentEncoding::None, 1..) => {
                declared.min(self.input_bytes_max) + declared.min(lines)
            }
            _ => self.input_bytes_max + lines + packing.memory_bytes(self.window_bytes_max),
        }
    }
}

/// Memory that is kept for the next requests in order to save allocations; included in the share of
/// writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpareBufferLimits {
    /// Largest number of spare decoders, of all protocols.
    pub decoders: usize,
    /// Largest memory of a decoder in bytes.
    pub decoder_bytes: usize,
    /// Largest number of spare body buffers.
    pub bodies: usize,
    /// Largest memory of a body buffer in bytes.
    pub body_bytes: usize,
}

impl IngestLimits {
    /// Returns the limits for the share of writes. With 3 GB of memory or more, no ordinary request
    /// reaches the limits of a single request; with less, they are reduced to fit.
    pub fn from_write_share(shares: &BudgetShares) -> Self {
        let in_flight = shares.writes / 16 * 13;
        let large = large_bytes_max(in_flight);
        let largest = WireLimits::default();
        let message = largest.message_bytes_max.min(large / (WORK_MESSAGES + 1));
        let batch = large - WORK_MESSAGES * message;
        // Snappy expands a message only slightly.
        let body = largest.body_bytes_max.min(large_bodies_bytes_max(large));
        Self {
            wire: WireLimits {
                body_bytes_max: body,
                message_bytes_max: message,
                batch_bytes_max: largest.batch_bytes_max.min(batch),
                ..largest
            },
            in_flight_bytes_max: in_flight,
            import: ImportLimits::from_body_bytes(body),
            spare: SpareBufferLimits::from_total_bytes(shares),
            deltas_bytes_max: shares.writes / DELTAS_SHARE,
            replicas_bytes_max: shares.writes / REPLICAS_SHARE,
            // The limit of Prometheus: clocks of senders drift, but a sample one day ahead would
            // block its series for a day.
            future_ms_max: 10 * 60 * 1000,
        }
    }
}

impl SpareBufferLimits {
    fn from_total_bytes(shares: &BudgetShares) -> Self {
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

/// Returns the part of `in_flight` bytes that all large requests together may use.
pub(crate) fn large_bytes_max(in_flight: usize) -> usize {
    in_flight / 4 * 3
}

/// Returns the part of the memory of large requests that their bodies may use, chosen so that the
/// rest suffices for the processing of the largest message.
pub(crate) fn large_bodies_bytes_max(large: usize) -> usize {
    large / (WORK_MESSAGES + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ingest_limits_of_any_memory_are_within_the_share_of_writes() {
        for mib in [77, 128, 256, 512, 1 << 10, 16 << 10] {
            let shares = BudgetShares::from_limit(mib << 20);
            let limits = IngestLimits::from_write_share(&shares);
            let spare = limits.spare;
            let spare = spare.decoders * spare.decoder_bytes + spare.bodies * spare.body_bytes;
            assert!(limits.in_flight_bytes_max + spare <= shares.writes, "{mib}");
            let wire = limits.wire;
            let import = limits.import.reservation_bytes(ContentEncoding::Gzip, 0);
            assert!(import <= wire.body_bytes_max, "{mib} MiB: {import}");
            let large = large_bytes_max(limits.in_flight_bytes_max);
            let one = WORK_MESSAGES * wire.message_bytes_max + wire.batch_bytes_max;
            assert!(
                one <= large,
                "{mib} MiB: one request takes {one} of {large}"
            );
            // The uncompressed size of a request of 2,000 samples, or of ten times as many.
            let ordinary = if mib < 256 { 3 << 18 } else { 3 << 20 };
            assert!(wire.message_bytes_max >= ordinary, "{mib} MiB: {wire:?}");
        }
        let limits = IngestLimits::from_write_share(&BudgetShares::from_limit(4 << 30));
        assert_eq!(limits.wire, WireLimits::default());
        assert_eq!(limits.import.window_bytes_max, 8 << 20);
    }
}
