//! Bit-exact encodings of numbers, times, values and histograms.
//!
//! These codes are the lowest layer of the storage crate. Chunks, pages, log records and the
//! catalogue build their layouts from them; this module depends on none of those. An encoder
//! appends to a [`sink::EncodeSink`]. A decoder reads through a [`cursor::DecodeCursor`], which
//! checks every length: corrupt bytes cause a [`DecodeError`] error, never a panic or a large
//! allocation. `docs/format/chunk.md` describes the codes.

pub(crate) mod bits;
pub(crate) mod cursor;
pub(crate) mod decimal;
pub(crate) mod histogram;
pub(crate) mod lanes;
pub(crate) mod simd;
pub(crate) mod sink;
pub(crate) mod time;
pub(crate) mod value;
pub(crate) mod varint;

use firn_model::label_code::MalformedLabels;
pub(crate) use varint::{push_prefixed, push_uvarint, unzigzag, zigzag};

/// Error of a decoder: the bytes are truncated or corrupt. The text names the first violated rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed bytes: {0}")]
pub struct DecodeError(pub(crate) &'static str);

impl DecodeError {
    /// Converts the error of malformed label sets.
    pub(crate) fn from_labels(MalformedLabels(what): MalformedLabels) -> Self {
        Self(what)
    }
}
