//! The protobuf wire format: a cursor over untrusted bytes, and functions that append fields.
//!
//! The cursor returns slices of its input and never copies. Decoders loop over
//! [`ProtobufCursor::read_field`] and skip unknown fields, so that they accept messages of newer
//! senders.

use crate::error::WireError;

/// Largest nesting depth of groups that [`ProtobufCursor::skip`] accepts. No Prometheus message has
/// a group.
const GROUP_DEPTH_MAX: usize = 16;

/// The encoding of a field's value, which the key of the field contains. Unknown fields are skipped
/// according to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireType {
    /// A variable-length integer.
    Varint,
    /// Eight bytes: a float or an integer of fixed size.
    Fixed64,
    /// A length, followed by that many bytes.
    Bytes,
    /// The start of a group, a deprecated form of nesting.
    GroupStart,
    /// The end of a group, whose number is that of its start.
    GroupEnd,
    /// Four bytes, which no field of the supported messages uses.
    Fixed32,
}

type Read<T> = Result<T, WireError>;

fn malformed<T>(what: &'static str) -> Read<T> {
    Err(WireError::Protobuf(what))
}

/// Reads the fields of one message in order, without copying. Methods fail with
/// [`WireError::Protobuf`] if the message ends too early.
#[derive(Clone, Debug)]
pub(crate) struct ProtobufCursor<'m> {
    rest: &'m [u8],
}

impl<'m> ProtobufCursor<'m> {
    /// Returns a cursor at the start of `message`, which must contain complete fields only.
    pub fn new(message: &'m [u8]) -> Self {
        Self { rest: message }
    }

    /// Returns the unread rest of the message. Its length gives the position of the cursor.
    pub fn rest(&self) -> &'m [u8] {
        self.rest
    }

    /// Reads the number and wire type of the next field; returns `None` at the end of the message.
    #[inline]
    pub fn read_field(&mut self) -> Read<Option<(u32, WireType)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.read_varint()?;
        let number = match u32::try_from(key >> 3) {
            Ok(number) if number > 0 => number,
            _ => return malformed("illegal field number"),
        };
        let wire_type = match key & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Bytes,
            3 => WireType::GroupStart,
            4 => WireType::GroupEnd,
            5 => WireType::Fixed32,
            _ => return malformed("illegal wire type"),
        };
        Ok(Some((number, wire_type)))
    }

    /// Reads a variable-length integer; fails if it is cut off or has more than 64 bits.
    #[inline]
    pub fn read_varint(&mut self) -> Read<u64> {
        if let [byte @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        self.read_long_varint()
    }

    fn read_long_varint(&mut self) -> Read<u64> {
        let mut value = 0u64;
        for (i, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(i + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        match self.rest.len() {
            0..10 => malformed("unexpected end of message"),
            _ => malformed("integer overflow"),
        }
    }

    /// Reads eight bytes as an unsigned little-endian integer. Fails if the message is shorter.
    #[inline]
    pub fn read_fixed64(&mut self) -> Read<u64> {
        match self.rest.split_first_chunk::<8>() {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(u64::from_le_bytes(*bytes))
            }
            None => malformed("unexpected end of message"),
        }
    }

    /// Reads eight bytes as a little-endian float, whose bits are preserved. Fails if the message
    /// is shorter.
    #[inline]
    pub fn read_double(&mut self) -> Read<f64> {
        self.read_fixed64().map(f64::from_bits)
    }

    /// Reads the length and the bytes of a length-delimited field; fails if the message is shorter.
    #[inline]
    pub fn read_bytes(&mut self) -> Read<&'m [u8]> {
        let length = self.read_varint()?;
        let split = usize::try_from(length)
            .ok()
            .and_then(|length| self.rest.split_at_checked(length));
        match split {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(bytes)
            }
            None => malformed("unexpected end of message"),
        }
    }

    /// Skips the value of an unknown field. Groups may nest up to [`GROUP_DEPTH_MAX`] levels. Fails
    /// if they nest deeper or the field is cut off.
    pub fn skip(&mut self, wire_type: WireType) -> Read<()> {
        let mut depth = 0usize;
        let mut wire_type = wire_type;
        loop {
            match wire_type {
                WireType::Varint => drop(self.read_varint()?),
                WireType::Fixed64 => drop(self.read_double()?),
                WireType::Bytes => drop(self.read_bytes()?),
                WireType::Fixed32 => match self.rest.get(4..) {
                    Some(rest) => self.rest = rest,
                    None => return malformed("unexpected end of message"),
                },
                WireType::GroupStart if depth == GROUP_DEPTH_MAX => {
                    return malformed("groups nest too deeply");
                }
                WireType::GroupStart => depth += 1,
                WireType::GroupEnd if depth == 0 => return malformed("unexpected end of group"),
                WireType::GroupEnd => depth -= 1,
            }
            if depth == 0 {
                return Ok(());
            }
            match self.read_field()? {
                Some((_, next)) => wire_type = next,
                None => return malformed("unexpected end of message"),
            }
        }
    }
}

/// Fails unless a known field has the wire type of its declared type.
#[inline]
pub(crate) fn expect_wire_type(wire_type: WireType, wanted: WireType) -> Read<()> {
    if wire_type != wanted {
        return malformed("wrong wire type for a known field");
    }
    Ok(())
}

/// Decodes a zigzag integer, in which the lowest bit is the sign.
pub(crate) fn from_zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Encodes an integer in zigzag form, which keeps small numbers of either sign short.
pub(crate) fn to_zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Appends a variable-length integer of one to ten bytes.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the key of a field, which consists of its number and wire type.
pub(crate) fn put_key(out: &mut Vec<u8>, number: u32, wire_type: WireType) {
    put_varint(out, u64::from(number) << 3 | wire_type as u64);
}

/// Appends an integer field, unless it has the default value, like Go's encoder.
pub(crate) fn put_integer(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_key(out, number, WireType::Varint);
        put_varint(out, value);
    }
}

/// Appends a float field, unless it has the bits of the default value; minus zero is appended.
pub(crate) fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    if value.to_bits() != 0 {
        put_key(out, number, WireType::Fixed64);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Appends a length-delimited field, also if it is empty: its key, length and bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_key(out, number, WireType::Bytes);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
