//! Converts attribute values to text like upstream.
//!
//! Strings are unchanged. Numbers are formatted like in JavaScript, bytes in base64, lists and maps
//! in JSON with sorted keys. Values nest at most [`DEPTH_MAX`] levels, and a generated text is
//! never longer than the limit for label values.

use super::field::{key_value, list, value as field};
use super::text::{GeneratedTexts, LabelText};
use super::trouble::OtlpDecodeError;
use crate::protobuf::{ProtobufCursor, WireType, expect_wire_type};
use crate::remote_write::WriteRejectionReason;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Largest nesting depth of lists and maps.
const DEPTH_MAX: usize = 16;

/// An attribute value whose parts are not decoded. If several exclusive fields are present, the
/// last one wins, as in every `oneof`.
#[derive(Clone, Copy, Debug)]
enum OtlpValue<'m> {
    None,
    String(&'m [u8]),
    Bool(bool),
    Int(i64),
    Double(f64),
    List(&'m [u8]),
    Pairs(&'m [u8]),
    Bytes(&'m [u8]),
}

/// A decoded `KeyValue`: the key of an attribute, and its value as an undecoded message.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtlpAttribute<'m> {
    /// The key of the attribute, which need not be UTF-8.
    pub key: &'m [u8],
    /// An undecoded `AnyValue` message.
    pub value: &'m [u8],
}

/// Decodes a `KeyValue` message, with a fast path for short ones. Fails if the message is
/// malformed.
#[inline]
pub(super) fn decode_attribute(message: &[u8]) -> Result<OtlpAttribute<'_>, OtlpDecodeError> {
    // The form in which all senders encode a short attribute.
    if let [0x0a, key_bytes @ 0..0x80, rest @ ..] = message
        && let Some((key, [0x12, value_bytes @ 0..0x80, value @ ..])) =
            rest.split_at_checked(usize::from(*key_bytes))
        && value.len() == usize::from(*value_bytes)
    {
        return Ok(OtlpAttribute { key, value });
    }
    decode_any_attribute(message)
}

/// Like [`decode_attribute`], for fields in any order and of any length.
fn decode_any_attribute(message: &[u8]) -> Result<OtlpAttribute<'_>, OtlpDecodeError> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        let part = match number {
            key_value::KEY => &mut key,
            key_value::VALUE => &mut value,
            _ => {
                cursor.skip(wire_type)?;
                continue;
            }
        };
        expect_wire_type(wire_type, WireType::Bytes)?;
        *part = cursor.read_bytes()?;
    }
    Ok(OtlpAttribute { key, value })
}

/// Returns the text of an `AnyValue`. A text that has to be generated has at most `bytes_max`
/// bytes.
#[inline]
pub(super) fn text<'m>(
    message: &'m [u8],
    bytes_max: usize,
    made: &mut GeneratedTexts,
) -> Result<LabelText<'m>, OtlpDecodeError> {
    if let OtlpValue::String(text) = read(message)? {
        return Ok(LabelText::Message(text));
    }
    generate_text(message, bytes_max, made)
}

fn generate_text<'m>(
    message: &'m [u8],
    bytes_max: usize,
    made: &mut GeneratedTexts,
) -> Result<LabelText<'m>, OtlpDecodeError> {
    let start = made.len();
    let out = made.buffer_mut();
    match read(message)? {
        OtlpValue::None => return Ok(LabelText::Message(b"")),
        OtlpValue::String(text) => return Ok(LabelText::Message(text)),
        OtlpValue::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        OtlpValue::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
        OtlpValue::Double(value) => out.extend_from_slice(format_double(value).as_bytes()),
        OtlpValue::Bytes(bytes) => encode_base64(bytes, out, start + bytes_max)?,
        OtlpValue::List(_) | OtlpValue::Pairs(_) => {
            let mut json = GoJsonWriter {
                out,
                end: start + bytes_max,
                bytes_max,
                is_number_missing: false,
            };
            json.write_value(message, 0)?;
            // JSON cannot represent the number: the text is empty, as in upstream.
            if json.is_number_missing {
                out.truncate(start);
            }
        }
    }
    Ok(made.text_since(start))
}

fn read(message: &[u8]) -> Result<OtlpValue<'_>, OtlpDecodeError> {
    // The form in which all senders encode a short string.
    if let [0x0a, bytes @ 0..0x80, text @ ..] = message
        && text.len() == usize::from(*bytes)
    {
        return Ok(OtlpValue::String(text));
    }
    let mut value = OtlpValue::None;
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        let wanted = match number {
            field::BOOL | field::INT => WireType::Varint,
            field::DOUBLE => WireType::Fixed64,
            field::STRING | field::ARRAY | field::PAIRS | field::BYTES => WireType::Bytes,
            _ => {
                cursor.skip(wire_type)?;
                continue;
            }
        };
        expect_wire_type(wire_type, wanted)?;
        value = match number {
            field::STRING => OtlpValue::String(cursor.read_bytes()?),
            field::BOOL => OtlpValue::Bool(cursor.read_varint()? != 0),
            field::INT => OtlpValue::Int(cursor.read_varint()? as i64),
            field::DOUBLE => OtlpValue::Double(cursor.read_double()?),
            field::ARRAY => OtlpValue::List(cursor.read_bytes()?),
            field::PAIRS => OtlpValue::Pairs(cursor.read_bytes()?),
            _ => OtlpValue::Bytes(cursor.read_bytes()?),
        };
    }
    Ok(value)
}

/// Formats a number like ECMAScript, without an exponent between 1e-6 and 1e21.
fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
        _ => text,
    }
}

fn encode_base64(bytes: &[u8], out: &mut Vec<u8>, end: usize) -> Result<(), OtlpDecodeError> {
    check_end(out.len() + bytes.len() / 3 * 4, end)?;
    out.extend_from_slice(BASE64.encode(bytes).as_bytes());
    Ok(())
}

fn check_end(at: usize, end: usize) -> Result<(), OtlpDecodeError> {
    if at > end {
        Err(OtlpDecodeError::reject_point(
            WriteRejectionReason::LabelValueTooLong,
            "attribute value too long to be the value of a label",
        ))
    } else {
        Ok(())
    }
}

/// Writes JSON like Go, with sorted keys, and stops at the length limit.
struct GoJsonWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Largest length of the buffer after the text.
    end: usize,
    /// Largest length of the text in bytes.
    bytes_max: usize,
    /// True if a number was found that JSON cannot represent.
    is_number_missing: bool,
}

impl GoJsonWriter<'_> {
    fn write_value(&mut self, message: &[u8], depth: usize) -> Result<(), OtlpDecodeError> {
        check_end(self.out.len(), self.end)?;
        if depth > DEPTH_MAX {
            let what = format!("attribute value nests too deeply, limit {DEPTH_MAX}");
            return Err(OtlpDecodeError::reject_point(
                WriteRejectionReason::LabelValue,
                what,
            ));
        }
        match read(message)? {
            OtlpValue::None => self.out.extend_from_slice(b"null"),
            OtlpValue::String(text) => self.write_string(text)?,
            OtlpValue::Bool(value) => self.put(&value.to_string()),
            OtlpValue::Int(value) => self.put(&value.to_string()),
            OtlpValue::Double(value) if !value.is_finite() => self.is_number_missing = true,
            OtlpValue::Double(value) => self.put(&format_double(value)),
            OtlpValue::Bytes(bytes) => {
                self.out.push(b'"');
                encode_base64(bytes, self.out, self.end)?;
                self.out.push(b'"');
            }
            OtlpValue::List(list) => self.write_list(list, depth)?,
            OtlpValue::Pairs(pairs) => self.write_pairs(pairs, depth)?,
        }
        Ok(())
    }

    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn write_list(&mut self, message: &[u8], depth: usize) -> Result<(), OtlpDecodeError> {
        self.out.push(b'[');
        for (i, value) in list_elements(message, self.bytes_max)?
            .into_iter()
            .enumerate()
        {
            if i > 0 {
                self.out.push(b',');
            }
            self.write_value(value, depth + 1)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn write_pairs(&mut self, message: &[u8], depth: usize) -> Result<(), OtlpDecodeError> {
        let mut pairs = Vec::new();
        for pair in list_elements(message, self.bytes_max)? {
            pairs.push(decode_attribute(pair)?);
        }
        // The last of equal keys wins.
        pairs.sort_by_key(|pair| pair.key);
        let mut is_first = true;
        self.out.push(b'{');
        for (i, pair) in pairs.iter().enumerate() {
            if pairs.get(i + 1).is_some_and(|next| next.key == pair.key) {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            self.write_string(pair.key)?;
            self.out.push(b':');
            self.write_value(pair.value, depth + 1)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn write_string(&mut self, text: &[u8]) -> Result<(), OtlpDecodeError> {
        check_end(self.out.len() + text.len(), self.end)?;
        self.out.push(b'"');
        for chunk in text.utf8_chunks() {
            for c in chunk.valid().chars() {
                self.write_character(c);
            }
            for _ in chunk.invalid() {
                self.put("\\ufffd");
            }
        }
        self.out.push(b'"');
        Ok(())
    }

    fn write_character(&mut self, c: char) {
        match c {
            '"' => self.put("\\\""),
            '\\' => self.put("\\\\"),
            '\n' => self.put("\\n"),
            '\r' => self.put("\\r"),
            '\t' => self.put("\\t"),
            '\u{8}' => self.put("\\b"),
            '\u{c}' => self.put("\\f"),
            '\0'..' ' | '\u{2028}' | '\u{2029}' => self.put(&format!("\\u{:04x}", u32::from(c))),
            _ => self.put(c.encode_utf8(&mut [0; 4])),
        }
    }
}

/// Returns the undecoded elements of a list, at most `count_max`, because each takes at least one
/// byte of the text.
fn list_elements(message: &[u8], count_max: usize) -> Result<Vec<&[u8]>, OtlpDecodeError> {
    let mut values = Vec::new();
    let mut cursor = ProtobufCursor::new(message);
    while let Some((number, wire_type)) = cursor.read_field()? {
        match number {
            list::VALUES => {
                expect_wire_type(wire_type, WireType::Bytes)?;
                values.push(cursor.read_bytes()?);
                check_end(values.len(), count_max)?;
            }
            _ => cursor.skip(wire_type)?,
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;

    fn check(json: &str, want: &str) {
        let message = json::transcode_value(json.as_bytes());
        let mut made = GeneratedTexts::default();
        let text = text(&message, 100, &mut made).unwrap();
        let got = String::from_utf8_lossy(made.get(text));
        assert_eq!(got, want, "{json}");
    }

    #[test]
    fn value_of_each_kind_is_written_as_upstream_writes_it() {
        for (json, want) in [
            ("{}", ""),
            (r#"{"stringValue":"a\"b"}"#, "a\"b"),
            (r#"{"boolValue":true}"#, "true"),
            (r#"{"intValue":"-7"}"#, "-7"),
            (r#"{"doubleValue":1.5}"#, "1.5"),
            (r#"{"doubleValue":1e21}"#, "1e+21"),
            (r#"{"doubleValue":1.25e-7}"#, "1.25e-7"),
            (r#"{"doubleValue":"NaN"}"#, "NaN"),
            (r#"{"doubleValue":"-Infinity"}"#, "-Infinity"),
            (r#"{"bytesValue":"AQID"}"#, "AQID"),
            (r#"{"arrayValue":{}}"#, "[]"),
            (
                r#"{"arrayValue":{"values":[{"intValue":1},{},{"stringValue":"<\u0001\u2028"}]}}"#,
                r#"[1,null,"<\u0001\u2028"]"#,
            ),
            (
                r#"{"kvlistValue":{"values":[{"key":"b","value":{"boolValue":false}},
                {"key":"a","value":{"intValue":1}},{"key":"b","value":{"bytesValue":"AQ=="}}]}}"#,
                r#"{"a":1,"b":"AQ=="}"#,
            ),
            (
                r#"{"arrayValue":{"values":[{"doubleValue":"NaN"},{"intValue":1}]}}"#,
                "",
            ),
        ] {
            check(json, want);
        }
    }

    #[test]
    fn value_that_is_deep_or_long_is_refused() {
        let mut deep = r#"{"intValue":1}"#.to_owned();
        for _ in 0..20 {
            deep = format!(r#"{{"arrayValue":{{"values":[{deep}]}}}}"#);
        }
        let long = format!(
            r#"{{"arrayValue":{{"values":[{}{{}}]}}}}"#,
            "{},".repeat(60)
        );
        let bytes = format!(r#"{{"bytesValue":"{}"}}"#, "AAAA".repeat(60));
        for (json, want) in [
            (deep, WriteRejectionReason::LabelValue),
            (long, WriteRejectionReason::LabelValueTooLong),
            (bytes, WriteRejectionReason::LabelValueTooLong),
        ] {
            let message = json::transcode_value(json.as_bytes());
            match text(&message, 100, &mut GeneratedTexts::default()) {
                Err(OtlpDecodeError::Point(offence)) => assert_eq!(offence.refusal, want),
                other => panic!("{other:?}"),
            }
        }
    }
}
