//! Snappy's block format, with the size checked before anything is allocated.
//!
//! ```text
//! block   = bytes of the message (varint) | { literal | copy }*
//! literal = (length - 1) << 2 | 0     1 byte, or 60..63 there and 1..4 bytes; then the bytes
//! copy    = .. | 1                    length 4..=11 and an offset of 11 bits: 2 bytes
//!           (length - 1) << 2 | 2     offset of 2 bytes
//!           (length - 1) << 2 | 3     offset of 4 bytes
//! ```
//!
//! Nearly every element is at most 64 bytes long, so one move of that size does for it, past whose
//! end the next element writes; what lies near an end of either buffer, and copies of what they
//! write themselves, go byte by byte. Both are checked against the bounds. The `snap` crate takes
//! 1.5 times as long and is the oracle of the tests.
//!
//! Source: `format_description.txt` of google/snappy.

use crate::error::WireError;

/// Bytes of the move that serves most elements: the longest literal or copy of one tag byte.
const MOVE_BYTES: usize = 64;

/// The longest literal whose length stands in its tag.
const SHORT_LITERAL_BYTES: usize = 60;

/// Bytes that `body` declares to unpack to; fails if it is over `limit`.
pub fn declared_bytes(body: &[u8], limit: usize) -> Result<usize, WireError> {
    read_header(body, limit).map(|(bytes, _)| bytes)
}

/// Unpacks `body` into `message`, of which what it held before is gone.
pub fn decompress(body: &[u8], limit: usize, message: &mut Vec<u8>) -> Result<(), WireError> {
    let (bytes, elements) = read_header(body, limit)?;
    message.resize(bytes, 0);
    let mut unpacking = Unpacking {
        from: elements,
        to: message,
        written: 0,
    };
    unpacking.run().ok_or(WireError::SnappyCorrupt)
}

/// Packs `message`.
pub fn compress(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new()
        .compress_vec(message)
        .expect("fails only beyond 4 GiB, which a batch with its 32-bit offsets cannot reach")
}

/// The declared bytes, and what follows the header.
fn read_header(body: &[u8], limit: usize) -> Result<(usize, &[u8]), WireError> {
    let mut bytes = 0u64;
    for (i, byte) in body.iter().take(5).enumerate() {
        bytes |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            if bytes > u64::from(u32::MAX) {
                break;
            }
            if bytes > limit as u64 {
                return Err(WireError::MessageTooLarge { bytes, limit });
            }
            let elements = body.get(i + 1..).unwrap_or_default();
            return Ok((bytes as usize, elements));
        }
    }
    Err(WireError::SnappyCorrupt)
}

/// A block under way. `None` from its methods means that it is corrupt.
struct Unpacking<'b, 'm> {
    from: &'b [u8],
    to: &'m mut [u8],
    written: usize,
}

impl Unpacking<'_, '_> {
    fn run(&mut self) -> Option<()> {
        while let [tag, rest @ ..] = self.from {
            let length = usize::from(tag >> 2) + 1;
            match tag & 3 {
                0 => {
                    self.from = rest;
                    self.literal(length)?;
                }
                1 => {
                    let [low, rest @ ..] = rest else { return None };
                    self.from = rest;
                    let offset = usize::from(tag >> 5) << 8 | usize::from(*low);
                    self.copy(4 + usize::from(tag >> 2 & 7), offset)?;
                }
                2 => {
                    let (offset, rest) = rest.split_first_chunk()?;
                    self.from = rest;
                    self.copy(length, usize::from(u16::from_le_bytes(*offset)))?;
                }
                _ => {
                    let (offset, rest) = rest.split_first_chunk()?;
                    self.from = rest;
                    self.copy(length, u32::from_le_bytes(*offset) as usize)?;
                }
            }
        }
        (self.written == self.to.len()).then_some(())
    }

    /// Writes `length` bytes that follow the tag; more than 60 stand for a length of its own.
    #[inline]
    fn literal(&mut self, length: usize) -> Option<()> {
        let to = self.to.get_mut(self.written..)?;
        if length <= SHORT_LITERAL_BYTES
            && let (Some(to), Some(from)) = (to.first_chunk_mut(), self.from.first_chunk())
        {
            let from: &[u8; MOVE_BYTES] = from;
            *to = *from;
            self.from = self.from.get(length..)?;
            self.written += length;
            return Some(());
        }
        self.long_literal(length)
    }

    fn long_literal(&mut self, length: usize) -> Option<()> {
        let mut length = length;
        if let Some(bytes @ 1..) = length.checked_sub(SHORT_LITERAL_BYTES) {
            let (digits, rest) = self.from.split_at_checked(bytes)?;
            let number = digits.iter().rev().fold(0, |n, d| n << 8 | usize::from(*d));
            length = number + 1;
            self.from = rest;
        }
        let (literal, rest) = self.from.split_at_checked(length)?;
        let end = self.written.checked_add(length)?;
        self.to.get_mut(self.written..end)?.copy_from_slice(literal);
        self.from = rest;
        self.written = end;
        Some(())
    }

    /// Writes again `length` bytes, of which the first was written `offset` bytes ago.
    #[inline]
    fn copy(&mut self, length: usize, offset: usize) -> Option<()> {
        let start = self.written.checked_sub(offset)?;
        let end = self.written + length;
        if offset >= length
            && let Some(from) = self.to.get(start..)?.first_chunk()
            && self.written + MOVE_BYTES <= self.to.len()
        {
            let from: [u8; MOVE_BYTES] = *from;
            *self.to.get_mut(self.written..)?.first_chunk_mut()? = from;
            self.written = end;
            return Some(());
        }
        self.near_copy(start, end)
    }

    /// The same near the end of the message, or where the copy goes on into itself.
    fn near_copy(&mut self, start: usize, end: usize) -> Option<()> {
        if start == self.written || end > self.to.len() {
            return None;
        }
        for (to, from) in (self.written..end).zip(start..) {
            self.to[to] = self.to[from];
        }
        self.written = end;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    const LIMIT: usize = 1 << 20;

    /// Both decoders on the same bytes: equal messages, or both refuse.
    fn check(body: &[u8], what: &str) {
        let mut message = vec![7; 100];
        let ours = decompress(body, LIMIT, &mut message).map(|()| message);
        let declared = snap::raw::decompress_len(body).unwrap_or(usize::MAX);
        if declared > LIMIT {
            assert!(ours.is_err(), "{what}");
            return;
        }
        let theirs = snap::raw::Decoder::new().decompress_vec(body);
        assert_eq!(ours.ok(), theirs.ok(), "{what}");
    }

    /// Text that repeats itself near and far, in pieces of all lengths.
    fn random_message(random: &SimRng) -> Vec<u8> {
        let mut message = Vec::new();
        for _ in 0..random.below(60) {
            let at = random.below(message.len() as u64 + 1) as usize;
            let length = random.below(1 << random.below(9)) as usize;
            match random.below(4) {
                0 => message.extend((0..length).map(|_| random.below(256) as u8)),
                1 => message.extend(std::iter::repeat_n(at as u8, length)),
                _ => {
                    let end = message.len().min(at + length);
                    message.extend_from_within(at..end);
                }
            }
        }
        message
    }

    #[test]
    fn decompress_of_random_messages_equals_the_oracle() {
        for seed in 1..=2_000 {
            let random = SimRng::new(seed);
            let message = random_message(&random);
            let body = compress(&message);
            let mut got = Vec::new();
            assert_eq!(decompress(&body, LIMIT, &mut got), Ok(()), "seed {seed}");
            assert_eq!(got, message, "seed {seed}");
        }
    }

    #[test]
    fn decompress_of_mutated_bodies_equals_the_oracle() {
        for seed in 1..=20_000 {
            let random = SimRng::new(seed);
            let mut body = compress(&random_message(&random));
            for _ in 0..1 + random.below(4) {
                let at = random.below(body.len() as u64) as usize;
                match random.below(3) {
                    0 => body.truncate(at.max(1)),
                    1 => body.insert(at, random.below(256) as u8),
                    _ => body[at] = random.below(256) as u8,
                }
            }
            check(&body, &format!("seed {seed}"));
        }
    }

    #[test]
    fn decompress_of_hand_made_elements_equals_the_oracle() {
        let cases: [&[u8]; 12] = [
            b"\x00",
            b"\x05\x10abcde",
            b"\x05\x10abcd",
            b"\x08\x0cabcd\x01\x04",
            b"\x08\x0cabcd\x0e\x04\x00",
            b"\x08\x0cabcd\x0f\x04\x00\x00\x00",
            b"\x0a\x00a\x22\x01\x00",
            b"\x0a\x00a\x22\x00\x00",
            b"\x0a\x00a\x22\x02\x00",
            b"\x04\xf0\x03abcd",
            b"\x04\xfc\x03\x00\x00\x00abcd",
            b"\x04\xfc\xff\xff\xff\xffabcd",
        ];
        for body in cases {
            check(body, &format!("{body:?}"));
        }
    }
}
