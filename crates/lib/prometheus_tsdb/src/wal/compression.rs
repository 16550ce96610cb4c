//! Decompresses the records of a WAL: plain, snappy or zstd.

use crate::error::MalformedTsdbBytes;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Largest size of a decompressed record in bytes: twice a segment. The longest record that fits
/// into a segment may have grown a little by compression.
const RECORD_BYTES_MAX: usize = 256 << 20;

/// Largest window of zstd in bytes; four times that of Prometheus's encoder.
const WINDOW_BYTES_MAX: u64 = 32 << 20;

/// Largest expansion by snappy: a copy of 64 bytes takes three.
const SNAPPY_RATIO_MAX: usize = 22;

/// Number of bytes that zstd decompresses between two checks of the limit.
const STEP_BYTES: usize = 1 << 20;

/// The compression of a record, which is the same for all its fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WalCompression {
    /// No compression: the fragments contain the record itself.
    #[default]
    None,
    /// Snappy's block format, without framing.
    Snappy,
    /// Zstd frames, one or more of them.
    Zstd,
}

impl WalCompression {
    /// Returns the compression in the first byte of a fragment.
    pub fn from_header(byte: u8) -> Self {
        match (byte & 0x08 != 0, byte & 0x10 != 0) {
            (true, _) => WalCompression::Snappy,
            (false, true) => WalCompression::Zstd,
            (false, false) => WalCompression::None,
        }
    }

    /// Replaces `out` with the decompressed bytes of `packed`; fails if they are invalid or too
    /// large.
    pub fn decompress(self, packed: &[u8], out: &mut Vec<u8>) -> Result<(), MalformedTsdbBytes> {
        out.clear();
        match self {
            WalCompression::None => out.extend_from_slice(packed),
            WalCompression::Snappy if packed.is_empty() => {}
            WalCompression::Snappy => {
                let limit = RECORD_BYTES_MAX.min(packed.len().saturating_mul(SNAPPY_RATIO_MAX));
                decompress_snappy(packed, limit, out)
                    .ok_or(MalformedTsdbBytes::Invalid("a record is not valid snappy"))?;
            }
            WalCompression::Zstd => decompress_zstd(packed, out)?,
        }
        Ok(())
    }
}

/// Replaces `out` with the decompressed bytes. Returns `None` if they are invalid or declared to be
/// more than `limit`.
fn decompress_snappy(packed: &[u8], limit: usize, out: &mut Vec<u8>) -> Option<()> {
    let declared = snap::raw::decompress_len(packed).ok()?;
    if declared > limit {
        return None;
    }
    out.resize(declared, 0);
    let written = snap::raw::Decoder::new().decompress(packed, out).ok()?;
    (written == declared).then_some(())
}

fn decompress_zstd(mut packed: &[u8], out: &mut Vec<u8>) -> Result<(), MalformedTsdbBytes> {
    const WRONG: MalformedTsdbBytes = MalformedTsdbBytes::Invalid("a record is not valid zstd");
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
                return Err(MalformedTsdbBytes::Invalid("a record is too large"));
            }
            decoder.collect_to_writer(&mut *out).map_err(|_| WRONG)?;
        }
    }
    Ok(())
}
