//! Converts attribute values to text like upstream.
//!
//! Strings are unchanged. Numbers are formatted like in JavaScript, bytes in base64, lists and maps
//! in JSON with sorted keys. Values nest at most [`DEPTH_MAX`] levels, and a generated text is
//! never longer than the limit for label values.

use super::field::{key_value, list, value as field};
use super::text::{Made, Text};
use super::trouble::Trouble;
use crate::protobuf::{Cursor, WireType, expect};
use crate::remote_write::Refusal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Largest nesting depth of lists and maps.
const DEPTH_MAX: usize = 16;

/// An attribute value whose parts are not decoded. If several exclusive fields are present, the
/// last one wins, as in every `oneof`.
#[derive(Clone, Copy, Debug)]
enum Value<'m> {
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
pub(super) struct Attribute<'m> {
    /// The key of the attribute, which need not be UTF-8.
    pub key: &'m [u8],
    /// An undecoded `AnyValue` message.
    pub value: &'m [u8],
}

/// Decodes a `KeyValue` message, with a fast path for short ones. Fails if the message is
/// malformed.
#[inline]
pub(super) fn attribute(message: &[u8]) -> Result<Attribute<'_>, Trouble> {
    // The form in which all senders encode a short attribute.
    if let [0x0a, key_bytes @ 0..0x80, rest @ ..] = message
        && let Some((key, [0x12, value_bytes @ 0..0x80, value @ ..])) =
            rest.split_at_checked(usize::from(*key_bytes))
        && value.len() == usize::from(*value_bytes)
    {
        return Ok(Attribute { key, value });
    }
    any_attribute(message)
}

/// Like [`attribute`], for fields in any order and of any length.
fn any_attribute(message: &[u8]) -> Result<Attribute<'_>, Trouble> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    let mut cursor = Cursor::new(message);
    while let Some((number, wire_type)) = cursor.field()? {
        let part = match number {
            key_value::KEY => &mut key,
            key_value::VALUE => &mut value,
            _ => {
                cursor.skip(wire_type)?;
                continue;
            }
        };
        expect(wire_type, WireType::Bytes)?;
        *part = cursor.bytes()?;
    }
    Ok(Attribute { key, value })
}

/// Returns the text of an `AnyValue`. A text that has to be generated has at most `bytes_max`
/// bytes.
#[inline]
pub(super) fn text<'m>(
    message: &'m [u8],
    bytes_max: usize,
    made: &mut Made,
) -> Result<Text<'m>, Trouble> {
    if let Value::String(text) = read(message)? {
        return Ok(Text::Message(text));
    }
    make(message, bytes_max, made)
}

fn make<'m>(message: &'m [u8], bytes_max: usize, made: &mut Made) -> Result<Text<'m>, Trouble> {
    let start = made.len();
    let out = made.writer();
    match read(message)? {
        Value::None => return Ok(Text::Message(b"")),
        Value::String(text) => return Ok(Text::Message(text)),
        Value::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Value::Int(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Value::Double(value) => out.extend_from_slice(double(value).as_bytes()),
        Value::Bytes(bytes) => base64(bytes, out, start + bytes_max)?,
        Value::List(_) | Value::Pairs(_) => {
            let mut json = Json {
                out,
                end: start + bytes_max,
                bytes_max,
                is_number_missing: false,
            };
            json.value(message, 0)?;
            // JSON cannot represent the number: the text is empty, as in upstream.
            if json.is_number_missing {
                out.truncate(start);
            }
        }
    }
    Ok(made.since(start))
}

fn read(message: &[u8]) -> Result<Value<'_>, Trouble> {
    // The form in which all senders encode a short string.
    if let [0x0a, bytes @ 0..0x80, text @ ..] = message
        && text.len() == usize::from(*bytes)
    {
        return Ok(Value::String(text));
    }
    let mut value = Value::None;
    let mut cursor = Cursor::new(message);
    while let Some((number, wire_type)) = cursor.field()? {
        let wanted = match number {
            field::BOOL | field::INT => WireType::Varint,
            field::DOUBLE => WireType::Fixed64,
            field::STRING | field::ARRAY | field::PAIRS | field::BYTES => WireType::Bytes,
            _ => {
                cursor.skip(wire_type)?;
                continue;
            }
        };
        expect(wire_type, wanted)?;
        value = match number {
            field::STRING => Value::String(cursor.bytes()?),
            field::BOOL => Value::Bool(cursor.varint()? != 0),
            field::INT => Value::Int(cursor.varint()? as i64),
            field::DOUBLE => Value::Double(cursor.double()?),
            field::ARRAY => Value::List(cursor.bytes()?),
            field::PAIRS => Value::Pairs(cursor.bytes()?),
            _ => Value::Bytes(cursor.bytes()?),
        };
    }
    Ok(value)
}

/// Formats a number like ECMAScript, without an exponent between 1e-6 and 1e21.
fn double(value: f64) -> String {
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

fn base64(bytes: &[u8], out: &mut Vec<u8>, end: usize) -> Result<(), Trouble> {
    check_end(out.len() + bytes.len() / 3 * 4, end)?;
    out.extend_from_slice(BASE64.encode(bytes).as_bytes());
    Ok(())
}

fn check_end(at: usize, end: usize) -> Result<(), Trouble> {
    match at > end {
        true => Err(Trouble::point(
            Refusal::LabelValueTooLong,
            "attribute value too long to be the value of a label",
        )),
        false => Ok(()),
    }
}

/// Writes JSON like Go, with sorted keys, and stops at the length limit.
struct Json<'o> {
    out: &'o mut Vec<u8>,
    /// Largest length of the buffer after the text.
    end: usize,
    /// Largest length of the text in bytes.
    bytes_max: usize,
    /// True if a number was found that JSON cannot represent.
    is_number_missing: bool,
}

impl Json<'_> {
    fn value(&mut self, message: &[u8], depth: usize) -> Result<(), Trouble> {
        check_end(self.out.len(), self.end)?;
        if depth > DEPTH_MAX {
            let what = format!("attribute value nests too deeply, limit {DEPTH_MAX}");
            return Err(Trouble::point(Refusal::LabelValue, what));
        }
        match read(message)? {
            Value::None => self.out.extend_from_slice(b"null"),
            Value::String(text) => self.string(text)?,
            Value::Bool(value) => self.put(&value.to_string()),
            Value::Int(value) => self.put(&value.to_string()),
            Value::Double(value) if !value.is_finite() => self.is_number_missing = true,
            Value::Double(value) => self.put(&double(value)),
            Value::Bytes(bytes) => {
                self.out.push(b'"');
                base64(bytes, self.out, self.end)?;
                self.out.push(b'"');
            }
            Value::List(list) => self.list(list, depth)?,
            Value::Pairs(pairs) => self.pairs(pairs, depth)?,
        }
        Ok(())
    }

    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn list(&mut self, message: &[u8], depth: usize) -> Result<(), Trouble> {
        self.out.push(b'[');
        for (i, value) in values(message, self.bytes_max)?.into_iter().enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            self.value(value, depth + 1)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn pairs(&mut self, message: &[u8], depth: usize) -> Result<(), Trouble> {
        let mut pairs = Vec::new();
        for pair in values(message, self.bytes_max)? {
            pairs.push(attribute(pair)?);
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
            self.string(pair.key)?;
            self.out.push(b':');
            self.value(pair.value, depth + 1)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn string(&mut self, text: &[u8]) -> Result<(), Trouble> {
        check_end(self.out.len() + text.len(), self.end)?;
        self.out.push(b'"');
        for chunk in text.utf8_chunks() {
            for c in chunk.valid().chars() {
                self.character(c);
            }
            for _ in chunk.invalid() {
                self.put("\\ufffd");
            }
        }
        self.out.push(b'"');
        Ok(())
    }

    fn character(&mut self, c: char) {
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
fn values(message: &[u8], count_max: usize) -> Result<Vec<&[u8]>, Trouble> {
    let mut values = Vec::new();
    let mut cursor = Cursor::new(message);
    while let Some((number, wire_type)) = cursor.field()? {
        match number {
            list::VALUES => {
                expect(wire_type, WireType::Bytes)?;
                values.push(cursor.bytes()?);
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
        let message = json::value(json.as_bytes());
        let mut made = Made::default();
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
            (deep, Refusal::LabelValue),
            (long, Refusal::LabelValueTooLong),
            (bytes, Refusal::LabelValueTooLong),
        ] {
            let message = json::value(json.as_bytes());
            match text(&message, 100, &mut Made::default()) {
                Err(Trouble::Point(offence)) => assert_eq!(offence.refusal, want),
                other => panic!("{other:?}"),
            }
        }
    }
}
