//! Snappy's block format, with a check of the declared size before any allocation.
//!
//! ```text
//! block   = bytes of the message (varint) | { literal | copy }*
//! literal = (length - 1) << 2 | 0     1 byte, or 60..63 there and 1..4 bytes; then the bytes
//! copy    = .. | 1                    length 4..=11 and an offset of 11 bits: 2 bytes
//!           (length - 1) << 2 | 2     offset of 2 bytes
//!           (length - 1) << 2 | 3     offset of 4 bytes
//! ```
//!
//! Most elements are copies of at most 64 bytes whose offset takes one byte or two. Runs of those
//! and of short literals are decoded without a branch on the kind of copy, which would be
//! unpredictable: the length is looked up, the offset masked, and the next tag selected from its
//! two possible positions. Each element is one move of 64 bytes, whose excess the next element
//! overwrites. All other elements, elements near the end of either buffer, and copies that overlap
//! their own output are decoded one at a time. Both paths check all bounds. The `snap` crate takes
//! 1.8 times as long and is the oracle of the tests.
//!
//! Source: `format_description.txt` of google/snappy.

use crate::error::WireError;
use crate::protobuf::put_varint;
use std::hint::select_unpredictable;

/// Size of the move for most elements: the longest literal or copy with a tag of one byte.
const MOVE_BYTES: usize = 64;

/// Length of the longest literal whose length is in its tag.
const SHORT_LITERAL_BYTES: usize = 60;

/// Bytes that the fast path reads for one element: a tag, a move, and the tag after a short
/// literal.
const WINDOW_BYTES: usize = 1 + MOVE_BYTES + 1;

/// Largest size of the header in bytes: a 32-bit varint.
const HEADER_BYTES_MAX: usize = 5;

/// Length and high offset bits of a copy, indexed by its tag.
const COPIES: [SnappyCopy; 256] = copies_by_tag();

/// Mask for the two bytes after a tag that selects those of the offset, indexed by the kind of the
/// element.
const OFFSET_MASKS: [u32; 4] = [0, 0xff, 0xffff, 0];

/// The fields of a copy that its tag contains; the rest of the offset follows the tag.
#[derive(Clone, Copy)]
struct SnappyCopy {
    length: u8,
    /// The high bits of the offset.
    offset: u16,
}

const fn copies_by_tag() -> [SnappyCopy; 256] {
    // Marks tags that are not copies: the length exceeds every offset.
    let mut copies = [SnappyCopy {
        length: u8::MAX,
        offset: 0,
    }; 256];
    let mut tag = 0;
    while tag < 256 {
        if tag & 3 == 1 {
            copies[tag] = SnappyCopy {
                length: 4 + (tag >> 2 & 7) as u8,
                offset: (tag as u16 >> 5) << 8,
            };
        } else if tag & 3 == 2 {
            copies[tag].length = 1 + (tag >> 2) as u8;
        }
        tag += 1;
    }
    copies
}

/// Returns the uncompressed size that `body` declares, in bytes; fails if it exceeds `limit`.
pub fn declared_bytes(body: &[u8], limit: usize) -> Result<usize, WireError> {
    read_header(body, limit).map(|(bytes, _)| bytes)
}

/// Decompresses `body` into `message`, whose previous content is discarded. Fails if the declared
/// size exceeds `limit` or the block is corrupt.
pub fn decompress(body: &[u8], limit: usize, message: &mut Vec<u8>) -> Result<(), WireError> {
    let (bytes, elements) = read_header(body, limit)?;
    message.resize(bytes, 0);
    let mut unpacking = SnappyDecompressor {
        from: elements,
        to: message,
        written: 0,
    };
    unpacking.decode_all().ok_or(WireError::SnappyCorrupt)
}

/// Compresses `message` to one block with the `snap` crate. Panics beyond 4 GiB, which is more than
/// any batch has.
pub fn compress(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new()
        .compress_vec(message)
        .expect("fails only beyond 4 GiB, which a batch with its 32-bit offsets cannot reach")
}

/// Concatenates the messages of `bodies` to one block without decompressing them, which is possible
/// because copies have relative offsets. Fails if a header is invalid or the messages together
/// exceed `limit`; the elements after the headers are not validated.
pub fn join_blocks<'b>(
    bodies: impl Iterator<Item = &'b [u8]> + Clone,
    limit: usize,
) -> Result<Vec<u8>, WireError> {
    let (mut bytes, mut body_bytes) = (0, 0);
    for body in bodies.clone() {
        let (declared, elements) = read_header(body, limit)?;
        bytes += declared;
        body_bytes += elements.len();
        if bytes > limit {
            let bytes = bytes as u64;
            return Err(WireError::MessageTooLarge { bytes, limit });
        }
    }
    let mut joined = Vec::with_capacity(HEADER_BYTES_MAX + body_bytes);
    put_varint(&mut joined, bytes as u64);
    for body in bodies {
        joined.extend_from_slice(read_header(body, limit)?.1);
    }
    Ok(joined)
}

/// Returns the uncompressed size of a block and the size of its elements after the header, in
/// bytes.
pub fn block_bytes(body: &[u8], limit: usize) -> Result<(usize, usize), WireError> {
    read_header(body, limit).map(|(declared, elements)| (declared, elements.len()))
}

/// Splits `joined` into the blocks that [`join_blocks`] concatenated, given their [`block_bytes`].
/// Fails if the sizes do not match; the elements after the headers are not validated.
pub fn split_joined(
    joined: &[u8],
    blocks: impl Iterator<Item = (usize, usize)>,
) -> Result<Vec<Vec<u8>>, WireError> {
    let (mut left, mut elements) = read_header(joined, usize::MAX)?;
    let mut parts = Vec::new();
    for (bytes, element_bytes) in blocks {
        left = left.checked_sub(bytes).ok_or(WireError::SnappyCorrupt)?;
        let own = elements.split_at_checked(element_bytes);
        let (own, rest) = own.ok_or(WireError::SnappyCorrupt)?;
        let mut part = Vec::with_capacity(HEADER_BYTES_MAX + own.len());
        put_varint(&mut part, bytes as u64);
        part.extend_from_slice(own);
        parts.push(part);
        elements = rest;
    }
    if left == 0 && elements.is_empty() {
        Ok(parts)
    } else {
        Err(WireError::SnappyCorrupt)
    }
}

/// Returns the declared size and the bytes after the header; fails if the header is malformed or
/// the size exceeds `limit`.
fn read_header(body: &[u8], limit: usize) -> Result<(usize, &[u8]), WireError> {
    let mut bytes = 0u64;
    for (i, byte) in body.iter().take(HEADER_BYTES_MAX).enumerate() {
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

/// The state of decompressing one block into a buffer of the declared size. Methods return `None`
/// if the block is corrupt.
struct SnappyDecompressor<'b, 'm> {
    from: &'b [u8],
    to: &'m mut [u8],
    written: usize,
}

impl SnappyDecompressor<'_, '_> {
    fn decode_all(&mut self) -> Option<()> {
        while !self.from.is_empty() {
            self.decode_quick_elements();
            self.decode_element()?;
        }
        (self.written == self.to.len()).then_some(())
    }

    /// Decodes short literals and copies that do not overlap their output, up to the first other
    /// element or one near the end of a buffer. Leaves at least one byte of input.
    fn decode_quick_elements(&mut self) {
        let (mut from, to) = (self.from, &mut *self.to);
        // The header limits the size to 32 bits.
        let Ok(mut written) = u32::try_from(self.written) else {
            return;
        };
        let mut tag = from.first().copied().unwrap_or_default();
        while let Some(window) = from.first_chunk::<WINDOW_BYTES>() {
            let kind = usize::from(tag & 3);
            if kind == 0 {
                let length = usize::from(tag >> 2) + 1;
                if length > SHORT_LITERAL_BYTES {
                    break;
                }
                let Some(room) = moved_at(to, written) else {
                    break;
                };
                room.copy_from_slice(&window[1..=MOVE_BYTES]);
                written += length as u32;
                from = &from[1 + length..];
                tag = window[1 + length];
                continue;
            }
            let next = select_unpredictable(kind == 1, window[2], window[3]);
            let SnappyCopy { length, offset } = COPIES[usize::from(tag)];
            let low = u16::from_le_bytes([window[1], window[2]]);
            let offset = u32::from(offset) + (u32::from(low) & OFFSET_MASKS[kind]);
            if offset < u32::from(length) || offset > written {
                break;
            }
            let Some(source) = moved_at(to, written - offset) else {
                break;
            };
            let source = *source;
            let Some(room) = moved_at(to, written) else {
                break;
            };
            *room = source;
            written += u32::from(length);
            from = &from[1 + kind..];
            tag = next;
        }
        self.from = from;
        self.written = written as usize;
    }

    /// Decodes one element of any kind, with all bounds checked. Returns `None` if it is corrupt.
    fn decode_element(&mut self) -> Option<()> {
        let [tag, rest @ ..] = self.from else {
            return None;
        };
        let length = usize::from(tag >> 2) + 1;
        match tag & 3 {
            0 => {
                self.from = rest;
                self.write_literal(length)
            }
            1 => {
                let [low, rest @ ..] = rest else { return None };
                self.from = rest;
                let offset = usize::from(tag >> 5) << 8 | usize::from(*low);
                self.write_copy(4 + usize::from(tag >> 2 & 7), offset)
            }
            2 => {
                let (offset, rest) = rest.split_first_chunk()?;
                self.from = rest;
                self.write_copy(length, usize::from(u16::from_le_bytes(*offset)))
            }
            _ => {
                let (offset, rest) = rest.split_first_chunk()?;
                self.from = rest;
                self.write_copy(length, u32::from_le_bytes(*offset) as usize)
            }
        }
    }

    /// Writes the `length` bytes after the tag; lengths above 60 mean that the length is in
    /// separate bytes.
    fn write_literal(&mut self, length: usize) -> Option<()> {
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

    /// Copies `length` bytes from `offset` bytes before the end of the output. The source may
    /// overlap the destination.
    fn write_copy(&mut self, length: usize, offset: usize) -> Option<()> {
        let start = self.written.checked_sub(offset)?;
        let end = self.written + length;
        if offset == 0 || end > self.to.len() {
            return None;
        }
        for (to, from) in (self.written..end).zip(start..) {
            self.to[to] = self.to[from];
        }
        self.written = end;
        Some(())
    }
}

/// Returns the bytes that a move at `at` reads or writes, if there are enough.
#[inline]
fn moved_at(to: &mut [u8], at: u32) -> Option<&mut [u8; MOVE_BYTES]> {
    let at = at as usize;
    to.get_mut(at..at + MOVE_BYTES)?.first_chunk_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim::SimRng;

    const LIMIT: usize = 1 << 20;

    /// Decompresses with both decoders: either both fail, or the messages are equal.
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

    /// Returns a text with repetitions at short and long distances, in pieces of all lengths.
    fn random_message(random: &SimRng) -> Vec<u8> {
        let mut message = Vec::new();
        for _ in 0..random.next_below(60) {
            let at = random.next_below(message.len() as u64 + 1) as usize;
            let length = random.next_below(1 << random.next_below(9)) as usize;
            match random.next_below(4) {
                0 => message.extend((0..length).map(|_| random.next_below(256) as u8)),
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
    fn join_of_random_messages_unpacks_to_all_of_them() {
        for seed in 1..=500 {
            let random = SimRng::new(seed);
            let messages: Vec<_> = (0..random.next_below(6))
                .map(|_| random_message(&random))
                .collect();
            let bodies: Vec<_> = messages.iter().map(|message| compress(message)).collect();
            let bodies = bodies.iter().map(Vec::as_slice);
            let whole = messages.concat();
            let joined = join_blocks(bodies.clone(), whole.len()).expect("as long as it may be");
            check(&joined, &format!("seed {seed}"));
            let mut got = Vec::new();
            assert_eq!(decompress(&joined, LIMIT, &mut got), Ok(()), "seed {seed}");
            assert_eq!(got, whole, "seed {seed}");
            if let Some(less) = whole.len().checked_sub(1) {
                assert!(join_blocks(bodies, less).is_err(), "seed {seed}");
            }
        }
        assert!(join_blocks([&b"\xff"[..]].into_iter(), LIMIT).is_err());
    }

    #[test]
    fn decompress_of_mutated_bodies_equals_the_oracle() {
        for seed in 1..=20_000 {
            let random = SimRng::new(seed);
            let mut body = compress(&random_message(&random));
            for _ in 0..1 + random.next_below(4) {
                let at = random.next_below(body.len() as u64) as usize;
                match random.next_below(3) {
                    0 => body.truncate(at.max(1)),
                    1 => body.insert(at, random.next_below(256) as u8),
                    _ => body[at] = random.next_below(256) as u8,
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
