//! How numbers, times, values and histograms become bytes, exact to the bit.
//!
//! This room lies at the bottom of storage: chunks, pages, the log's records and the catalogue
//! choose layouts made of these codes; nothing here knows any of them. An encoder appends to a
//! [`sink::Sink`]. A decoder reads through [`cursor::Cursor`], which checks every length: corrupt
//! bytes end in [`Malformed`], never in a panic or a large allocation. `docs/format/chunk.md` draws
//! the codes.

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

/// Encoded bytes that no encoder writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed bytes: {0}")]
pub struct Malformed(pub(crate) &'static str);

impl Malformed {
    /// Label sets among the bytes that no encoder writes.
    pub(crate) fn labels(MalformedLabels(what): MalformedLabels) -> Self {
        Self(what)
    }
}
