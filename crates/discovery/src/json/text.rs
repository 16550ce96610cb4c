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
pub(super) enum Json {
    Null,
    Bool(bool),
    /// The digits of a number, as written in the text.
    Number(String),
    Text(String),
    List(Vec<Json>),
    /// Keys and values in the order of the text, including duplicate keys.
    Object(Vec<(String, Json)>),
}

/// A syntax error, with the offset of the byte at which it was detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    offset: usize,
    problem: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.problem, self.offset)
    }
}

/// Parses bytes that contain exactly one JSON value, optionally surrounded by white space.
pub(super) fn parse(bytes: &[u8]) -> Result<Json, Malformed> {
    let mut reader = Reader {
        bytes,
        offset: 0,
        depth: 0,
    };
    let value = reader.value()?;
    match reader.next_sign() {
        None => Ok(value),
        Some(_) => Err(reader.malformed("invalid character after top-level value")),
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    offset: usize,
    depth: usize,
}

impl Reader<'_> {
    fn malformed(&self, problem: &'static str) -> Malformed {
        Malformed {
            offset: self.offset,
            problem,
        }
    }

    /// Returns an error at the current byte, or "unexpected end" at the end of the text.
    fn unexpected(&self, problem: &'static str) -> Malformed {
        match self.byte() {
            None => self.malformed("unexpected end of JSON input"),
            Some(_) => self.malformed(problem),
        }
    }

    fn byte(&self) -> Option<u8> {
        self.bytes.get(self.offset).copied()
    }

    /// Skips white space and returns the next byte without consuming it.
    fn next_sign(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.byte() {
            self.offset += 1;
        }
        self.byte()
    }

    fn value(&mut self) -> Result<Json, Malformed> {
        match self.next_sign() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::list),
            Some(b'"') => Ok(Json::Text(self.text()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            _ => Err(self.unexpected("invalid character, expected a value")),
        }
    }

    fn nested(
        &mut self,
        read: impl Fn(&mut Self) -> Result<Json, Malformed>,
    ) -> Result<Json, Malformed> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.malformed("exceeded max depth of 500"));
        }
        self.offset += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, Malformed> {
        if !self.bytes[self.offset..].starts_with(word.as_bytes()) {
            return Err(self.malformed("invalid character in literal"));
        }
        self.offset += word.len();
        Ok(value)
    }

    /// Consumes a comma or `end`. Returns whether it was a comma, so that another item follows.
    fn goes_on(&mut self, end: u8) -> Result<bool, Malformed> {
        let sign = self.next_sign();
        if sign != Some(b',') && sign != Some(end) {
            return Err(self.unexpected("invalid character, expected a comma or the end"));
        }
        self.offset += 1;
        Ok(sign == Some(b','))
    }

    fn list(&mut self) -> Result<Json, Malformed> {
        let mut items = Vec::new();
        if self.next_sign() == Some(b']') {
            self.offset += 1;
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value()?);
            if !self.goes_on(b']')? {
                return Ok(Json::List(items));
            }
        }
    }

    fn object(&mut self) -> Result<Json, Malformed> {
        let mut entries = Vec::new();
        if self.next_sign() == Some(b'}') {
            self.offset += 1;
            return Ok(Json::Object(entries));
        }
        loop {
            if self.next_sign() != Some(b'"') {
                return Err(self.unexpected("invalid character, expected a key"));
            }
            let key = self.text()?;
            if self.next_sign() != Some(b':') {
                return Err(self.unexpected("invalid character after object key"));
            }
            self.offset += 1;
            entries.push((key, self.value()?));
            if !self.goes_on(b'}')? {
                return Ok(Json::Object(entries));
            }
        }
    }

    fn number(&mut self) -> Result<Json, Malformed> {
        let start = self.offset;
        if self.byte() == Some(b'-') {
            self.offset += 1;
        }
        match self.byte() {
            Some(b'0') => self.offset += 1,
            _ => self.digits()?,
        }
        if self.byte() == Some(b'.') {
            self.offset += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.offset += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.offset += 1;
            }
            self.digits()?;
        }
        let digits = String::from_utf8_lossy(&self.bytes[start..self.offset]);
        Ok(Json::Number(digits.into_owned()))
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.offset;
        while self.byte().is_some_and(|b| b.is_ascii_digit()) {
            self.offset += 1;
        }
        match self.offset > start {
            true => Ok(()),
            false => Err(self.unexpected("invalid character in numeric literal")),
        }
    }

    fn text(&mut self) -> Result<String, Malformed> {
        self.offset += 1;
        let mut text = String::new();
        let mut start = self.offset;
        loop {
            match self.byte() {
                Some(b'"') => {
                    push_repaired(&self.bytes[start..self.offset], &mut text);
                    self.offset += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    push_repaired(&self.bytes[start..self.offset], &mut text);
                    self.offset += 1;
                    text.push(self.escape()?);
                    start = self.offset;
                }
                None | Some(..b' ') => {
                    return Err(self.unexpected("invalid character in string literal"));
                }
                Some(_) => self.offset += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, Malformed> {
        let c = match self.byte() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.offset += 1;
                return self.numbered_character();
            }
            _ => return Err(self.unexpected("invalid character in string escape code")),
        };
        self.offset += 1;
        Ok(c)
    }

    fn numbered_character(&mut self) -> Result<char, Malformed> {
        let Some(unit) = self.unit(self.offset) else {
            return Err(self.unexpected("invalid character in \\u hexadecimal character escape"));
        };
        self.offset += 4;
        let is_escape = self.bytes[self.offset..].starts_with(b"\\u");
        let second = is_escape.then(|| self.unit(self.offset + 2)).flatten();
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
    fn unit(&self, offset: usize) -> Option<u16> {
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
