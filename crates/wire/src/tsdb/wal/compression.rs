//! Records as they were before they were packed: plain, snappy or zstd.

use crate::snappy;
use crate::tsdb::error::Malformed;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes of a record as it was: twice a segment, and the longest record that fits into one is one
/// that grew a little when it was packed.
const RECORD_BYTES_MAX: usize = 256 << 20;

/// The furthest that zstd may reach back; four times what Prometheus's encoder uses.
const WINDOW_BYTES_MAX: u64 = 32 << 20;

/// The most that snappy can make of a byte: a copy of 64 bytes takes three.
const SNAPPY_RATIO_MAX: usize = 22;

/// Bytes that zstd unpacks before they are looked at.
const STEP_BYTES: usize = 1 << 20;

/// How a record is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Snappy's block format.
    Snappy,
    /// Frames of zstd.
    Zstd,
}

impl Compression {
    /// What the first byte of a fragment says.
    pub fn of_header(byte: u8) -> Self {
        match (byte & 0x08 != 0, byte & 0x10 != 0) {
            (true, _) => Compression::Snappy,
            (false, true) => Compression::Zstd,
            (false, false) => Compression::None,
        }
    }

    /// Replaces `out` with what `packed` unpacks to.
    pub fn unpack(self, packed: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        out.clear();
        match self {
            Compression::None => out.extend_from_slice(packed),
            Compression::Snappy if packed.is_empty() => {}
            Compression::Snappy => {
                let limit = RECORD_BYTES_MAX.min(packed.len().saturating_mul(SNAPPY_RATIO_MAX));
                let unpacked = snappy::decompress(packed, limit, out);
                unpacked.map_err(|_| Malformed::Invalid("a record is not valid snappy"))?;
            }
            Compression::Zstd => unpack_zstd(packed, out)?,
        }
        Ok(())
    }
}

fn unpack_zstd(mut packed: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    const WRONG: Malformed = Malformed::Invalid("a record is not valid zstd");
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(WINDOW_BYTES_MAX);
    while !packed.is_empty() {
        decoder.reset(&mut packed).map_err(|_| WRONG)?;
        while !decoder.is_finished() || decoder.can_collect() > 0 {
            let step = BlockDecodingStrategy::UptoBytes(STEP_BYTES);
            if !decoder.is_finished() {
                let decoded = decoder.decode_blocks(&mut packed, step);
                decoded.map_err(|_| WRONG)?;
            }
            if out.len().saturating_add(decoder.can_collect()) > RECORD_BYTES_MAX {
                return Err(Malformed::Invalid("a record is too large"));
            }
            decoder.collect_to_writer(&mut *out).map_err(|_| WRONG)?;
        }
    }
    Ok(())
}
