//! Transcodes OTLP requests from JSON to protobuf.
//!
//! The text is read once, driven by the tables of [`super::schema`], without a tree in memory.
//! Unknown fields are skipped, `null` counts as absent, numbers may be strings, and field names are
//! those that upstream's reader accepts. The JSON reader limits the nesting depth, and the size of
//! the message is limited too.

use super::schema::{OtlpFieldKind, OtlpFieldSchema, OtlpMessageSchema, REQUEST, TEMPORALITIES};
use crate::error::WireError;
use crate::protobuf::{WireType, put_bytes, put_key, put_varint, to_zigzag};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// Bytes reserved for the length of a message, which is known only after the message is written.
const LENGTH_BYTES: usize = 5;

/// Appends the protobuf encoding of the JSON request `text` to `out`. Fails if `out` would
/// exceed `bytes_max` bytes or the text is invalid.
pub fn to_protobuf(text: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
    let read = transcode(text, &REQUEST, bytes_max, out);
    if out.len() > bytes_max {
        return Err(WireError::MessageTooLarge {
            bytes: out.len() as u64,
            limit: bytes_max,
        });
    }
    read.map_err(|e| WireError::Json(e.to_string()))
}

/// Transcodes an `AnyValue`.
#[cfg(test)]
pub(super) fn transcode_value(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    transcode(text, &super::schema::VALUE, usize::MAX, &mut out).unwrap();
    out
}

fn transcode(
    text: &[u8],
    message: &'static OtlpMessageSchema,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let mut writer = OtlpJsonTranscoder { out, bytes_max };
    JsonObjectVisitor {
        writer: &mut writer,
        message,
    }
    .deserialize(&mut json)?;
    json.end()
}

struct OtlpJsonTranscoder<'o> {
    out: &'o mut Vec<u8>,
    bytes_max: usize,
}

impl OtlpJsonTranscoder<'_> {
    fn check<E: Error>(&self) -> Result<(), E> {
        if self.out.len() > self.bytes_max {
            Err(E::custom("the message is too large"))
        } else {
            Ok(())
        }
    }

    /// Writes a length-delimited field whose content is written by `write`, and then fills in its
    /// length. Fails if the message exceeds its limit.
    fn write_nested<T, E: Error>(
        &mut self,
        number: u32,
        write: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        self.check()?;
        put_key(self.out, number, WireType::Bytes);
        let start = self.out.len();
        self.out.extend_from_slice(&[0; LENGTH_BYTES]);
        let written = write(self)?;
        let content = start + LENGTH_BYTES;
        let length = self.out.len() - content;
        // Most messages are short, and a length of one byte is faster to read.
        if length < 0x80 {
            self.out.copy_within(content.., start + 1);
            self.out.truncate(start + 1 + length);
            if let Some(byte) = self.out.get_mut(start) {
                *byte = length as u8;
            }
            return Ok(written);
        }
        let place = self.out.get_mut(start..start + LENGTH_BYTES);
        for (i, byte) in place.into_iter().flatten().enumerate() {
            let more = if i + 1 < LENGTH_BYTES { 0x80 } else { 0 };
            *byte = (length >> (7 * i)) as u8 & 0x7f | more;
        }
        Ok(written)
    }
}

/// Visitor for an object, which writes its known fields and skips the others.
struct JsonObjectVisitor<'w, 'o> {
    writer: &'w mut OtlpJsonTranscoder<'o>,
    message: &'static OtlpMessageSchema,
}

impl<'de> DeserializeSeed<'de> for JsonObjectVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonObjectVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key_seed(JsonFieldNameVisitor)? {
            let fields = self.message.0.iter();
            let mut fields = fields.filter(|f| f.name == name || f.plain_name == name);
            match fields.next() {
                Some(field) => map.next_value_seed(JsonValueVisitor {
                    writer: &mut *self.writer,
                    field,
                    is_element: false,
                })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Visitor for a field name, which borrows from the text unless the name contains escapes.
struct JsonFieldNameVisitor;

impl<'de> DeserializeSeed<'de> for JsonFieldNameVisitor {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Cow<'de, str>, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for JsonFieldNameVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// Visitor for the value of a field, or for one element of a repeated field.
struct JsonValueVisitor<'w, 'o> {
    writer: &'w mut OtlpJsonTranscoder<'o>,
    field: &'static OtlpFieldSchema,
    is_element: bool,
}

impl<'de> DeserializeSeed<'de> for JsonValueVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        match (self.field.kind, self.field.is_list && !self.is_element) {
            (OtlpFieldKind::Message(message), false) => {
                let writer = self.writer;
                writer.write_nested(self.field.number, |writer| {
                    JsonObjectVisitor { writer, message }.deserialize(json)
                })
            }
            _ => json.deserialize_any(self),
        }
    }
}

impl JsonValueVisitor<'_, '_> {
    fn unsupported<T, E: Error>(&self) -> Result<T, E> {
        Err(E::custom(format!(
            "unsupported value type of the field {}",
            self.field.name
        )))
    }

    /// Fails if a list is found where a single value is required, or the reverse.
    fn check<E: Error>(&self) -> Result<(), E> {
        if self.field.is_list == self.is_element {
            self.writer.check()
        } else {
            self.unsupported()
        }
    }

    fn write_fixed<E: Error>(self, bits: u64) -> Result<(), E> {
        put_key(self.writer.out, self.field.number, WireType::Fixed64);
        self.writer.out.extend_from_slice(&bits.to_le_bytes());
        Ok(())
    }

    fn write_varint<E: Error>(self, value: u64) -> Result<(), E> {
        put_key(self.writer.out, self.field.number, WireType::Varint);
        put_varint(self.writer.out, value);
        Ok(())
    }

    fn write_integer<E: Error>(self, value: i128) -> Result<(), E> {
        self.check()?;
        let out_of_range = || E::custom(format!("{value} is out of range"));
        match self.field.kind {
            OtlpFieldKind::Unsigned => {
                self.write_varint(u64::try_from(value).map_err(|_| out_of_range())?)
            }
            OtlpFieldKind::Fixed => {
                self.write_fixed(u64::try_from(value).map_err(|_| out_of_range())?)
            }
            OtlpFieldKind::Signed => {
                let value = i64::try_from(value).map_err(|_| out_of_range())?;
                self.write_varint(value as u64)
            }
            OtlpFieldKind::SignedFixed => {
                let value = i64::try_from(value).map_err(|_| out_of_range())?;
                self.write_fixed(value as u64)
            }
            OtlpFieldKind::Zigzag | OtlpFieldKind::Temporality => {
                let number = i32::try_from(value).map_err(|_| out_of_range())?;
                match self.field.kind {
                    OtlpFieldKind::Zigzag => self.write_varint(to_zigzag(i64::from(number))),
                    _ => self.write_varint(i64::from(number) as u64),
                }
            }
            OtlpFieldKind::Double => self.write_fixed((value as f64).to_bits()),
            _ => self.unsupported(),
        }
    }

    fn write_text<E: Error>(self, text: &str) -> Result<(), E> {
        self.check()?;
        let number = self.field.number;
        match self.field.kind {
            OtlpFieldKind::Text => put_bytes(self.writer.out, number, text.as_bytes()),
            OtlpFieldKind::Bytes => {
                let bytes = BASE64.decode(text).map_err(E::custom)?;
                put_bytes(self.writer.out, number, &bytes);
            }
            OtlpFieldKind::Hex => {
                let bytes = write_hex(text).ok_or_else(|| E::custom("an id is not hexadecimal"))?;
                put_bytes(self.writer.out, number, &bytes);
            }
            OtlpFieldKind::Temporality => {
                let number = TEMPORALITIES.iter().position(|name| *name == text);
                let number = number.ok_or_else(|| E::custom(format!("unknown {text:?}")))?;
                return self.write_varint(number as u64);
            }
            OtlpFieldKind::Double => {
                let value: f64 = text.parse().map_err(E::custom)?;
                return self.write_fixed(value.to_bits());
            }
            OtlpFieldKind::Bool | OtlpFieldKind::Message(_) => return self.unsupported(),
            _ => {
                let value = match text.parse::<u64>() {
                    Ok(value) => i128::from(value),
                    Err(_) => text.parse().map_err(E::custom)?,
                };
                return self.write_integer(value);
            }
        }
        Ok(())
    }
}

fn write_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8));
    rest.is_empty().then(|| bytes.collect()).flatten()
}

impl<'de> Visitor<'de> for JsonValueVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of the field {}", self.field.name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.check()?;
        match self.field.kind {
            OtlpFieldKind::Bool => self.write_varint(u64::from(value)),
            _ => self.unsupported(),
        }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.write_integer(i128::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.write_integer(i128::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.check()?;
        match self.field.kind {
            OtlpFieldKind::Double => self.write_fixed(value.to_bits()),
            _ => self.unsupported(),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.write_text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.is_element || !self.field.is_list {
            return self.unsupported();
        }
        loop {
            let element = JsonValueVisitor {
                writer: &mut *self.writer,
                field: self.field,
                is_element: true,
            };
            if list.next_element_seed(element)?.is_none() {
                return Ok(());
            }
        }
    }
}
