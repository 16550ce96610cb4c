//! DER reader that is as strict as Go's `cryptobyte`: single-byte tags, minimal lengths and
//! integers.
//!
//! Invariant: an element never extends beyond its parent. All violations return `None`; the caller
//! names the field.

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// Tag bits that announce a tag number above 30 in further bytes, which Go does not support.
const HIGH_TAG: u8 = 0x1f;

/// Returns the context-specific tag `number` for a primitive value.
pub(crate) const fn context_tag(number: u8) -> u8 {
    0x80 | number
}

/// Returns the context-specific tag `number` for a constructed value.
pub(crate) const fn constructed_tag(number: u8) -> u8 {
    0xa0 | number
}

/// Reader of DER data, which holds the part that has not been read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DerReader<'d>(&'d [u8]);

/// One element: a tag with its content, borrowed from the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DerElement<'d> {
    pub tag: u8,
    /// The complete element, including tag and length.
    pub whole: &'d [u8],
    pub content: &'d [u8],
}

/// Content of a BIT STRING, whose last byte may have unused bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitString<'d> {
    bytes: &'d [u8],
    unused_bits: u8,
}

impl<'d> DerReader<'d> {
    pub(crate) fn new(bytes: &'d [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the next element has this tag. Does not consume it.
    pub(crate) fn has(&self, tag: u8) -> bool {
        self.0.first() == Some(&tag)
    }

    /// Reads the next element, whatever its tag. Returns `None` if it is malformed or missing.
    pub(crate) fn read_any(&mut self) -> Option<DerElement<'d>> {
        let (tag, first) = (*self.0.first()?, *self.0.get(1)?);
        if tag & HIGH_TAG == HIGH_TAG {
            return None;
        }
        let (head, length) = if first < 0x80 {
            (2, usize::from(first))
        } else {
            self.long_length(first)?
        };
        let end = head.checked_add(length)?;
        let whole = self.0.get(..end)?;
        self.0 = self.0.get(end..)?;
        Some(DerElement {
            tag,
            whole,
            content: whole.get(head..)?,
        })
    }

    /// Decodes a length in long form. Returns the size of tag and length in bytes, and the length,
    /// which must not fit the short form.
    fn long_length(&self, first: u8) -> Option<(usize, usize)> {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > size_of::<u32>() {
            return None;
        }
        let bytes = self.0.get(2..2 + count)?;
        let length = bytes.iter().fold(0, |sum, b| sum << 8 | usize::from(*b));
        (length >= 0x80 && bytes[0] != 0).then_some((2 + count, length))
    }

    /// Reads the content of the next element, which must have this tag.
    pub(crate) fn read(&mut self, tag: u8) -> Option<&'d [u8]> {
        self.read_whole(tag).map(|element| element.content)
    }

    /// Reads the next element, which must have this tag, and returns a reader of its content.
    pub(crate) fn open(&mut self, tag: u8) -> Option<Self> {
        self.read(tag).map(Self)
    }

    /// Reads the complete next element, which must have this tag.
    pub(crate) fn read_whole(&mut self, tag: u8) -> Option<DerElement<'d>> {
        self.read_any().filter(|element| element.tag == tag)
    }

    /// Reads the next element if it has this tag. The outer `None` means that it is malformed.
    pub(crate) fn read_optional(&mut self, tag: u8) -> Option<Option<Self>> {
        if self.has(tag) {
            self.open(tag).map(Some)
        } else {
            Some(None)
        }
    }

    pub(crate) fn read_boolean(&mut self) -> Option<bool> {
        match self.read(BOOLEAN)? {
            [0] => Some(false),
            [0xff] => Some(true),
            _ => None,
        }
    }

    /// Reads an integer with this tag. Returns its bytes in two's complement.
    pub(crate) fn read_integer(&mut self, tag: u8) -> Option<&'d [u8]> {
        let bytes = self.read(tag)?;
        match bytes {
            [] | [0, 0..0x80, ..] | [0xff, 0x80..=0xff, ..] => None,
            _ => Some(bytes),
        }
    }

    /// Reads an integer with this tag that fits into `i64`.
    pub(crate) fn read_small_integer(&mut self, tag: u8) -> Option<i64> {
        let bytes = self.read_integer(tag)?;
        let is_negative = *bytes.first()? >= 0x80;
        let mut wide = [if is_negative { 0xff } else { 0 }; size_of::<i64>()];
        let start = wide.len().checked_sub(bytes.len())?;
        wide[start..].copy_from_slice(bytes);
        Some(i64::from_be_bytes(wide))
    }

    /// Reads a positive integer. Returns its bytes without leading zeros.
    pub(crate) fn read_positive_integer(&mut self) -> Option<&'d [u8]> {
        match self.read_integer(INTEGER)? {
            [0] | [0x80..=0xff, ..] => None,
            [0, rest @ ..] => Some(rest),
            bytes => Some(bytes),
        }
    }

    pub(crate) fn read_bits(&mut self) -> Option<BitString<'d>> {
        let (unused_bits, bytes) = self.read(BIT_STRING)?.split_first()?;
        let last = bytes.last().copied().unwrap_or(0);
        let fits = *unused_bits < 8 && (*unused_bits == 0 || !bytes.is_empty());
        (fits && last & ((1 << unused_bits) - 1) == 0).then_some(BitString {
            bytes,
            unused_bits: *unused_bits,
        })
    }

    /// Reads the bytes of an object identifier. Its arcs are below 2³¹, and its encoding is unique,
    /// so identifiers can be compared as bytes.
    pub(crate) fn read_oid(&mut self) -> Option<&'d [u8]> {
        let bytes = self.read(OID)?;
        let mut rest = bytes;
        let mut is_first = true;
        while is_first || !rest.is_empty() {
            rest = after_arc(rest)?;
            is_first = false;
        }
        Some(bytes)
    }
}

/// Returns the bytes after the first arc of an object identifier.
fn after_arc(bytes: &[u8]) -> Option<&[u8]> {
    const WITHOUT_ROOM: u32 = 1 << (31 - 7);
    if bytes.first() == Some(&0x80) {
        return None;
    }
    let mut arc = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if arc >= WITHOUT_ROOM {
            return None;
        }
        arc = arc << 7 | u32::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return bytes.get(index + 1..);
        }
    }
    None
}

impl BitString<'_> {
    /// Returns whether the bit `index` is set. Bit zero is the most significant bit of the first
    /// byte.
    pub(crate) fn has(&self, index: usize) -> bool {
        let byte = self.bytes.get(index / 8).copied().unwrap_or(0);
        byte & (0x80 >> (index % 8)) != 0
    }

    /// Returns the bits as a big-endian number, shifted by the unused bits.
    pub(crate) fn right_aligned(&self) -> Vec<u8> {
        if self.unused_bits == 0 {
            return self.bytes.to_vec();
        }
        let mut above = 0;
        let shifted = self.bytes.iter().map(|byte| {
            let carried = above << (8 - self.unused_bits);
            above = *byte;
            carried | byte >> self.unused_bits
        });
        shifted.collect()
    }
}
