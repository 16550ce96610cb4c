//! JSON parser that converts bytes to a tree, like Go's `encoding/json`.
//!
//! As in Go, each byte that is not valid UTF-8 and each unpaired surrogate becomes U+FFFD. Numbers
//! remain text, so that a number in an unused field may have any size.
//!
//! Invariant: the nesting depth is at most [`DEPTH_MAX`], and the tree has fewer values than the
//! text has bytes.

use std::fmt;

/// Maximum nesting depth. Go's limit of 10,000 would need a larger thread stack; API responses have
/// about ten levels.
const DEPTH_MAX: usize = 500;

/// A JSON value that owns its contents and preserves the order of keys.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum JsonTree {
    Null,
    Bool(bool),
    /// The digits of a number, as written in the text.
    Number(String),
    Text(String),
    List(Vec<JsonTree>),
    /// Keys and values in the order of the text, including duplicate keys.
    Object(Vec<(String, JsonTree)>),
}

/// A syntax error, with the offset of the byte at which it was detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonSyntaxError {
    offset: usize,
    problem: &'static str,
}

impl fmt::Display for JsonSyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.problem, self.offset)
    }
}

/// Parses bytes that contain exactly one JSON value, optionally surrounded by white space.
pub(super) fn parse(bytes: &[u8]) -> Result<JsonTree, JsonSyntaxError> {
    let mut reader = JsonTextReader {
        bytes,
        offset: 0,
        depth: 0,
    };
    let value = reader.parse_value()?;
    match reader.peek_after_space() {
        None => Ok(value),
        Some(_) => Err(reader.syntax_error("invalid character after top-level value")),
    }
}

struct JsonTextReader<'b> {
    bytes: &'b [u8],
    offset: usize,
    depth: usize,
}

impl JsonTextReader<'_> {
    fn syntax_error(&self, problem: &'static str) -> JsonSyntaxError {
        JsonSyntaxError {
            offset: self.offset,
            problem,
        }
    }

    /// Returns an error at the current byte, or "unexpected end" at the end of the text.
    fn unexpected_byte_error(&self, problem: &'static str) -> JsonSyntaxError {
        match self.peek_byte() {
            None => self.syntax_error("unexpected end of JSON input"),
            Some(_) => self.syntax_error(problem),
        }
    }

    fn peek_byte(&self) -> Option<u8> {
        self.bytes.get(self.offset).copied()
    }

    /// Skips white space and returns the next byte without consuming it.
    fn peek_after_space(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek_byte() {
            self.offset += 1;
        }
        self.peek_byte()
    }

    fn parse_value(&mut self) -> Result<JsonTree, JsonSyntaxError> {
        match self.peek_after_space() {
            Some(b'{') => self.parse_nested(Self::parse_object),
            Some(b'[') => self.parse_nested(Self::parse_list),
            Some(b'"') => Ok(JsonTree::Text(self.parse_text()?)),
            Some(b'-' | b'0'..=b'9') => self.parse_number(),
            Some(b't') => self.parse_literal("true", JsonTree::Bool(true)),
            Some(b'f') => self.parse_literal("false", JsonTree::Bool(false)),
            Some(b'n') => self.parse_literal("null", JsonTree::Null),
            _ => Err(self.unexpected_byte_error("invalid character, expected a value")),
        }
    }

    fn parse_nested(
        &mut self,
        read: impl Fn(&mut Self) -> Result<JsonTree, JsonSyntaxError>,
    ) -> Result<JsonTree, JsonSyntaxError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.syntax_error("exceeded max depth of 500"));
        }
        self.offset += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn parse_literal(&mut self, word: &str, value: JsonTree) -> Result<JsonTree, JsonSyntaxError> {
        if !self.bytes[self.offset..].starts_with(word.as_bytes()) {
            return Err(self.syntax_error("invalid character in literal"));
        }
        self.offset += word.len();
        Ok(value)
    }

    /// Consumes a comma or `end`. Returns whether it was a comma, so that another item follows.
    fn consume_separator(&mut self, end: u8) -> Result<bool, JsonSyntaxError> {
        let sign = self.peek_after_space();
        if sign != Some(b',') && sign != Some(end) {
            return Err(
                self.unexpected_byte_error("invalid character, expected a comma or the end")
            );
        }
        self.offset += 1;
        Ok(sign == Some(b','))
    }

    fn parse_list(&mut self) -> Result<JsonTree, JsonSyntaxError> {
        let mut items = Vec::new();
        if self.peek_after_space() == Some(b']') {
            self.offset += 1;
            return Ok(JsonTree::List(items));
        }
        loop {
            items.push(self.parse_value()?);
            if !self.consume_separator(b']')? {
                return Ok(JsonTree::List(items));
            }
        }
    }

    fn parse_object(&mut self) -> Result<JsonTree, JsonSyntaxError> {
        let mut entries = Vec::new();
        if self.peek_after_space() == Some(b'}') {
            self.offset += 1;
            return Ok(JsonTree::Object(entries));
        }
        loop {
            if self.peek_after_space() != Some(b'"') {
                return Err(self.unexpected_byte_error("invalid character, expected a key"));
            }
            let key = self.parse_text()?;
            if self.peek_after_space() != Some(b':') {
                return Err(self.unexpected_byte_error("invalid character after object key"));
            }
            self.offset += 1;
            entries.push((key, self.parse_value()?));
            if !self.consume_separator(b'}')? {
                return Ok(JsonTree::Object(entries));
            }
        }
    }

    fn parse_number(&mut self) -> Result<JsonTree, JsonSyntaxError> {
        let start = self.offset;
        if self.peek_byte() == Some(b'-') {
            self.offset += 1;
        }
        match self.peek_byte() {
            Some(b'0') => self.offset += 1,
            _ => self.skip_digits()?,
        }
        if self.peek_byte() == Some(b'.') {
            self.offset += 1;
            self.skip_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek_byte() {
            self.offset += 1;
            if let Some(b'+' | b'-') = self.peek_byte() {
                self.offset += 1;
            }
            self.skip_digits()?;
        }
        let digits = String::from_utf8_lossy(&self.bytes[start..self.offset]);
        Ok(JsonTree::Number(digits.into_owned()))
    }

    fn skip_digits(&mut self) -> Result<(), JsonSyntaxError> {
        let start = self.offset;
        while self.peek_byte().is_some_and(|b| b.is_ascii_digit()) {
            self.offset += 1;
        }
        if self.offset > start {
            Ok(())
        } else {
            Err(self.unexpected_byte_error("invalid character in numeric literal"))
        }
    }

    fn parse_text(&mut self) -> Result<String, JsonSyntaxError> {
        self.offset += 1;
        let mut text = String::new();
        let mut start = self.offset;
        loop {
            match self.peek_byte() {
                Some(b'"') => {
                    push_repaired(&self.bytes[start..self.offset], &mut text);
                    self.offset += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    push_repaired(&self.bytes[start..self.offset], &mut text);
                    self.offset += 1;
                    text.push(self.parse_escape()?);
                    start = self.offset;
                }
                None | Some(..b' ') => {
                    return Err(self.unexpected_byte_error("invalid character in string literal"));
                }
                Some(_) => self.offset += 1,
            }
        }
    }

    fn parse_escape(&mut self) -> Result<char, JsonSyntaxError> {
        let c = match self.peek_byte() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.offset += 1;
                return self.parse_unicode_escape();
            }
            _ => return Err(self.unexpected_byte_error("invalid character in string escape code")),
        };
        self.offset += 1;
        Ok(c)
    }

    fn parse_unicode_escape(&mut self) -> Result<char, JsonSyntaxError> {
        let Some(unit) = self.decode_utf16_unit(self.offset) else {
            return Err(
                self.unexpected_byte_error("invalid character in \\u hexadecimal character escape")
            );
        };
        self.offset += 4;
        let is_escape = self.bytes[self.offset..].starts_with(b"\\u");
        let second = is_escape
            .then(|| self.decode_utf16_unit(self.offset + 2))
            .flatten();
        let pair = [unit, second.unwrap_or_default()];
        // A surrogate pair is one character. An unpaired surrogate becomes U+FFFD.
        match char::decode_utf16(pair).next() {
            Some(Ok(c)) => {
                self.offset += if c.len_utf16() == 2 { 6 } else { 0 };
                Ok(c)
            }
            _ => Ok(char::REPLACEMENT_CHARACTER),
        }
    }

    /// Decodes the four hexadecimal digits at `offset` as a UTF-16 code unit.
    fn decode_utf16_unit(&self, offset: usize) -> Option<u16> {
        let digits = self.bytes.get(offset..offset + 4)?;
        let digits = str::from_utf8(digits).ok()?;
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        is_hex
            .then(|| u16::from_str_radix(digits, 16).ok())
            .flatten()
    }
}

fn push_repaired(bytes: &[u8], text: &mut String) {
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}
