//! Cursor over one line of a text, byte by byte.
//!
//! A line ends with a line feed. The last line of a text may lack it: reading past its last byte is
//! an error, as in upstream's reader.

use firn_model::quote::{push_escaped, quote};

/// Error for reading past the end of a line without a line feed.
const BREAKS_OFF: &str = "unexpected end of input stream";

/// A position in a line, which only advances. Parsers of names, values and comments share it.
pub(super) struct LineCursor<'t> {
    bytes: &'t [u8],
    is_whole: bool,
    at: usize,
}

impl<'t> LineCursor<'t> {
    /// Starts at the beginning of the line `bytes`, which `is_whole` if a line feed follows it.
    pub(super) fn new(bytes: &'t [u8], is_whole: bool) -> Self {
        Self {
            bytes,
            is_whole,
            at: 0,
        }
    }

    /// Returns the current byte, which is a line feed at the end of the line.
    pub(super) fn here(&self) -> Result<u8, String> {
        match self.bytes.get(self.at) {
            Some(byte) => Ok(*byte),
            None if self.is_whole => Ok(b'\n'),
            None => Err(BREAKS_OFF.into()),
        }
    }

    /// Returns whether all bytes were read, except a line feed that may be missing.
    pub(super) fn is_over(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Advances the position by one byte.
    pub(super) fn step(&mut self) {
        self.at += 1;
    }

    /// Skips blanks and tabs and returns the byte after them.
    pub(super) fn skip_blanks(&mut self) -> Result<u8, String> {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        self.here()
    }

    /// Returns the bytes up to a blank, a tab or the end.
    pub(super) fn word(&mut self) -> Result<&'t [u8], String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|byte| matches!(byte, b' ' | b'\t'));
        let word = &rest[..end.unwrap_or(rest.len())];
        self.at += word.len();
        self.here()?;
        Ok(word)
    }

    /// Returns all remaining bytes and advances to the end.
    pub(super) fn rest(&mut self) -> Result<&'t [u8], String> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        self.at = self.bytes.len();
        self.here()?;
        Ok(rest)
    }

    /// Returns a name of letters, digits and underscores, and of colons if it `may_have_colons`. In
    /// double quotes it may contain any bytes. Empty if no name begins here.
    pub(super) fn name(&mut self, may_have_colons: bool) -> Result<Vec<u8>, String> {
        let is_start = |byte: u8| {
            let is_colon = may_have_colons && byte == b':';
            byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'"') || is_colon
        };
        let mut name = Vec::new();
        if !is_start(self.here()?) {
            return Ok(name);
        }
        let mut is_quoted = false;
        loop {
            match self.here()? {
                b'"' if is_quoted => {
                    self.step();
                    self.here()?;
                    return Ok(name);
                }
                b'"' => is_quoted = true,
                b'\n' => {
                    let what = if may_have_colons { "metric" } else { "label" };
                    let name = quote(&name);
                    return Err(format!("{what} name {name} contains unescaped new-line"));
                }
                b'\\' => name.push(self.escaped()?),
                byte => name.push(byte),
            }
            self.step();
            let next = self.here()?;
            if !is_quoted && !is_start(next) && !next.is_ascii_digit() {
                return Ok(name);
            }
        }
    }

    /// Returns the value of a label, starting after its first quote.
    pub(super) fn value(&mut self) -> Result<Vec<u8>, String> {
        let mut value = Vec::new();
        loop {
            match self.here()? {
                b'"' => {
                    self.step();
                    return Ok(value);
                }
                b'\n' => {
                    let value = quote(&value);
                    return Err(format!("label value {value} contains unescaped new-line"));
                }
                b'\\' => value.push(self.escaped()?),
                byte => value.push(byte),
            }
            self.step();
        }
    }

    /// Returns all remaining bytes, with escape sequences resolved, and advances to the end.
    pub(super) fn unescaped_rest(&mut self) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        loop {
            match self.here()? {
                b'\n' => return Ok(text),
                b'\\' => text.push(self.escaped()?),
                byte => text.push(byte),
            }
            self.step();
        }
    }

    /// Returns the byte of the escape sequence that begins here, and advances to its last byte.
    fn escaped(&mut self) -> Result<u8, String> {
        self.step();
        match self.here()? {
            b'n' => Ok(b'\n'),
            byte @ (b'\\' | b'"') => Ok(byte),
            byte => {
                let byte = char::from(byte);
                Err(format!("invalid escape sequence '\\{byte}'"))
            }
        }
    }
}

/// Formats a byte as a quoted character, like Go's `%q`.
pub(super) fn quoted_byte(byte: u8) -> String {
    let mut out = String::from("'");
    push_escaped(&mut out, char::from(byte), '\'');
    out + "'"
}
