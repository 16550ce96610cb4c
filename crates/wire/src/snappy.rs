//! Snappy's block format, with the size checked before anything is allocated.

use crate::error::WireError;

/// Bytes that `body` declares to unpack to; fails if it is over `limit`.
pub(crate) fn declared_bytes(body: &[u8], limit: usize) -> Result<usize, WireError> {
    let bytes = snap::raw::decompress_len(body).map_err(|_| WireError::SnappyCorrupt)?;
    if bytes > limit {
        return Err(WireError::MessageTooLarge {
            bytes: bytes as u64,
            limit,
        });
    }
    Ok(bytes)
}

/// Unpacks `body` into `message`, of which what it held before is gone.
pub(crate) fn decompress(
    body: &[u8],
    limit: usize,
    message: &mut Vec<u8>,
) -> Result<(), WireError> {
    let bytes = declared_bytes(body, limit)?;
    message.resize(bytes, 0);
    let written = snap::raw::Decoder::new()
        .decompress(body, message)
        .map_err(|_| WireError::SnappyCorrupt)?;
    message.truncate(written);
    Ok(())
}

/// Packs `message`.
pub(crate) fn compress(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new()
        .compress_vec(message)
        .expect("fails only beyond 4 GiB, which a batch with its 32-bit offsets cannot reach")
}
