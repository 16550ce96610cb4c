//! Reading and writing of integers, floats and byte strings, shared by all frames.
//!
//! Integers are varints of up to 64 bits; signed ones are zigzag encoded. Floats are eight bytes,
//! little endian, so that every bit of a NaN is kept. Invariant: [`PeerFrameReader`] never reads
//! beyond its bytes, and a count is checked against the remaining bytes before memory is allocated
//! for it.

use firn_model::error::{Error, ErrorKind};

/// The reason why bytes from a peer are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed frame of a peer: {0}")]
pub struct MalformedFrame(pub &'static str);

impl From<MalformedFrame> for Error {
    fn from(malformed: MalformedFrame) -> Self {
        Error::new(ErrorKind::Invalid, malformed.to_string())
    }
}

const TRUNCATED: MalformedFrame = MalformedFrame("truncated");

/// A cursor over untrusted bytes. Each method fails at the end of the bytes and for an invalid
/// encoding.
#[derive(Clone, Debug)]
pub(crate) struct PeerFrameReader<'a> {
    rest: &'a [u8],
}

impl<'a> PeerFrameReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Continues after bytes that another decoder has read.
    pub(crate) fn set_rest(&mut self, rest: &'a [u8]) {
        self.rest = rest;
    }

    /// Fails if bytes remain.
    pub(crate) fn finish(&self) -> Result<(), MalformedFrame> {
        match self.rest {
            [] => Ok(()),
            _ => Err(MalformedFrame("bytes after its end")),
        }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], MalformedFrame> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedFrame> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, MalformedFrame> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, MalformedFrame> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn f64(&mut self) -> Result<f64, MalformedFrame> {
        self.u64().map(f64::from_bits)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, MalformedFrame> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MalformedFrame("flag is neither 0 nor 1")),
        }
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, MalformedFrame> {
        if let Some((&short @ 0..0x80, rest)) = self.rest.split_first() {
            self.rest = rest;
            return Ok(u64::from(short));
        }
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(MalformedFrame("varint of more than 64 bits"))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MalformedFrame> {
        let number = self.varint()?;
        u32::try_from(number).map_err(|_| MalformedFrame("number of more than 32 bits"))
    }

    pub(crate) fn usize(&mut self) -> Result<usize, MalformedFrame> {
        let number = self.varint()?;
        usize::try_from(number).map_err(|_| MalformedFrame("number out of range"))
    }

    /// Reads a signed integer.
    #[inline]
    pub(crate) fn zigzag(&mut self) -> Result<i64, MalformedFrame> {
        let number = self.varint()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Reads the number of items of a list, each of which takes at least `bytes_min` bytes.
    pub(crate) fn count(&mut self, bytes_min: usize) -> Result<usize, MalformedFrame> {
        let count = self.usize()?;
        let needed = count.checked_mul(bytes_min);
        match needed {
            Some(needed) if needed <= self.rest.len() => Ok(count),
            _ => Err(MalformedFrame("count beyond its bytes")),
        }
    }

    /// Reads bytes that follow their length.
    pub(crate) fn prefixed(&mut self) -> Result<&'a [u8], MalformedFrame> {
        let count = self.count(1)?;
        self.bytes(count)
    }

    /// Reads a text that follows its length.
    pub(crate) fn text(&mut self) -> Result<&'a str, MalformedFrame> {
        std::str::from_utf8(self.prefixed()?).map_err(|_| MalformedFrame("text is not UTF-8"))
    }

    /// Reads an optional value: a flag, and the value if the flag is set.
    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, MalformedFrame>,
    ) -> Result<Option<T>, MalformedFrame> {
        if self.bool()? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }
}

/// Appends a varint.
#[inline]
pub(crate) fn push_varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Appends a number of items or bytes as a varint.
pub(crate) fn push_count(count: usize, into: &mut Vec<u8>) {
    push_varint(count as u64, into);
}

/// Appends a signed integer.
#[inline]
pub(crate) fn push_zigzag(value: i64, into: &mut Vec<u8>) {
    push_varint((value << 1 ^ value >> 63) as u64, into);
}

/// Appends the bits of a float.
pub(crate) fn push_f64(value: f64, into: &mut Vec<u8>) {
    into.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Appends the bits of floats, like [`push_f64`] of each.
pub(crate) fn push_floats(values: &[f64], into: &mut Vec<u8>) {
    let start = into.len();
    into.resize(start + 8 * values.len(), 0);
    let to = into[start..].as_chunks_mut().0.iter_mut();
    for (to, value) in to.zip(values) {
        *to = value.to_bits().to_le_bytes();
    }
}

/// Appends bytes after their length.
pub(crate) fn push_prefixed(bytes: &[u8], into: &mut Vec<u8>) {
    push_count(bytes.len(), into);
    into.extend_from_slice(bytes);
}

/// Appends a flag, and the value if it is present.
pub(crate) fn push_option<T>(
    value: Option<T>,
    into: &mut Vec<u8>,
    push: impl FnOnce(T, &mut Vec<u8>),
) {
    into.push(u8::from(value.is_some()));
    if let Some(value) = value {
        push(value, into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_written_are_read() {
        for value in [0, 1, -1, 63, -64, 64, 300, i64::MIN, i64::MAX] {
            let mut bytes = Vec::new();
            push_zigzag(value, &mut bytes);
            push_varint(value as u64, &mut bytes);
            push_option(Some(value), &mut bytes, push_zigzag);
            push_option(None, &mut bytes, push_zigzag);
            let mut reader = PeerFrameReader::new(&bytes);
            assert_eq!(reader.zigzag(), Ok(value));
            assert_eq!(reader.varint(), Ok(value as u64));
            assert_eq!(reader.option(PeerFrameReader::zigzag), Ok(Some(value)));
            assert_eq!(reader.option(PeerFrameReader::zigzag), Ok(None));
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn integers_that_are_long_or_cut_are_rejected() {
        let check =
            |bytes: &[u8]| assert!(PeerFrameReader::new(bytes).varint().is_err(), "{bytes:?}");
        check(&[]);
        check(&[0x80]);
        check(&[0xff; 11]);
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]);
    }

    #[test]
    fn count_beyond_the_bytes_is_rejected() {
        assert_eq!(PeerFrameReader::new(&[3, 0, 0, 0]).count(1), Ok(3));
        assert!(PeerFrameReader::new(&[3, 0, 0, 0]).count(2).is_err());
        assert!(PeerFrameReader::new(&[4, 0, 0, 0]).prefixed().is_err());
        assert!(PeerFrameReader::new(&[2]).bool().is_err());
    }
}
