//! Fast path for series in the form that all senders write: references, one float, metadata.

use crate::remote_write::sample;

/// Field keys of the parts of a series.
const REFS_KEY: u8 = 0x0a;

const SAMPLE_KEY: u8 = 0x12;

const METADATA_KEY: u8 = 0x2a;

/// A series with one float sample in the form of Go's encoder, which takes the fast path.
pub(super) struct PlainFloatSeries<'m> {
    pub(super) refs: &'m [u8],
    pub(super) time: i64,
    pub(super) value: f64,
    /// An undecoded `Metadata` message; empty if there is none.
    pub(super) said: &'m [u8],
}

/// Returns the parts of a series if it is a plain one.
#[inline]
pub(super) fn parse_plain_series(series: &[u8]) -> Option<PlainFloatSeries<'_>> {
    let [REFS_KEY, bytes @ 0..0x80, rest @ ..] = series else {
        return None;
    };
    let (refs, rest) = rest.split_at_checked(usize::from(*bytes))?;
    let [SAMPLE_KEY, bytes @ 0..0x80, rest @ ..] = rest else {
        return None;
    };
    let (sample, rest) = rest.split_at_checked(usize::from(*bytes))?;
    let (time, value) = sample::parse_plain(sample)?;
    let said = match rest {
        [] => &[][..],
        [METADATA_KEY, bytes @ 0..0x80, said @ ..] if said.len() == usize::from(*bytes) => said,
        _ => return None,
    };
    Some(PlainFloatSeries {
        refs,
        time,
        value,
        said,
    })
}
