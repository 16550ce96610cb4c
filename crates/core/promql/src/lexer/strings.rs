//! String literals: finds their end and converts them to bytes.
//!
//! Invariant: [`unquote`] cannot fail on a literal that [`PromqlLexer::lex_string`] accepted,
//! because both read escapes with the same function.

use super::{PromqlLexer, PromqlToken, PromqlTokenKind};
use crate::quote::{REPLACEMENT, code_point};
use crate::syntax_error::QuerySyntaxError;

impl PromqlLexer<'_> {
    /// Reads the rest of a string. The opening quote must have been read already.
    pub(super) fn lex_string(&mut self, quote: char) -> Result<PromqlToken, QuerySyntaxError> {
        let is_raw = quote == '`';
        loop {
            match self.advance() {
                None if is_raw => return self.fail("unterminated raw string"),
                None => return self.fail("unterminated quoted string"),
                Some(c) if c == quote => return self.emit(PromqlTokenKind::String),
                // The caller has replaced invalid UTF-8 with this character.
                Some(REPLACEMENT) => return self.fail("invalid UTF-8 rune"),
                Some('\n') if !is_raw => return self.fail("unterminated quoted string"),
                Some('\\') if !is_raw => match read_escape(self.rest(), quote) {
                    Ok((_, rest)) => self.at = self.text.len() - rest.len(),
                    Err(why) => return self.fail(why),
                },
                Some(_) => {}
            }
        }
    }
}

/// The value of an escape sequence: a byte or a character.
enum EscapeValue {
    Byte(u8),
    Char(char),
}

/// Reads the escape sequence at the start of `text`, after its backslash, in a string quoted by
/// `quote`. Returns the value and the rest of the text; errors are those of the lexer.
fn read_escape(text: &str, quote: char) -> Result<(EscapeValue, &str), String> {
    let mut chars = text.chars();
    let mut next = || chars.next().ok_or("escape sequence not terminated");
    let (first, digits, base) = match next()? {
        c @ '0'..='7' => (c.to_digit(8), 2, 8),
        'x' => (None, 2, 16),
        'u' => (None, 4, 16),
        'U' => (None, 8, 16),
        c => {
            let byte = match c {
                'a' => 0x07,
                'b' => 0x08,
                'f' => 0x0c,
                'n' => b'\n',
                'r' => b'\r',
                't' => b'\t',
                'v' => 0x0b,
                '\\' => b'\\',
                // A quote is an ASCII character.
                c if c == quote => c as u8,
                c => return Err(format!("unknown escape sequence {}", code_point(c))),
            };
            return Ok((EscapeValue::Byte(byte), chars.as_str()));
        }
    };
    let mut value = first.unwrap_or_default();
    for _ in 0..digits {
        let c = next()?;
        let Some(digit) = c.to_digit(base) else {
            let c = code_point(c);
            return Err(format!("illegal character {c} in escape sequence"));
        };
        // Eight digits of four bits fit in 32 bits, so no bit is lost.
        value = value * base + digit;
    }
    let escaped = match digits {
        2 => u8::try_from(value).ok().map(EscapeValue::Byte),
        _ => char::from_u32(value).map(EscapeValue::Char),
    };
    let escaped = escaped.ok_or("escape sequence is an invalid Unicode code point")?;
    Ok((escaped, chars.as_str()))
}

/// Returns the bytes of a string literal, which is passed with its quotes.
pub(crate) fn unquote(literal: &str) -> Vec<u8> {
    let mut chars = literal.chars();
    let quote = chars.next().unwrap_or_default();
    chars.next_back();
    let inner = chars.as_str();
    if quote == '`' || !inner.contains('\\') {
        return inner.as_bytes().to_vec();
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((plain, after)) = rest.split_once('\\') {
        out.extend_from_slice(plain.as_bytes());
        rest = match read_escape(after, quote) {
            Ok((EscapeValue::Byte(byte), rest)) => {
                out.push(byte);
                rest
            }
            Ok((EscapeValue::Char(c), rest)) => {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest
            }
            Err(_) => after,
        };
    }
    out.extend_from_slice(rest.as_bytes());
    out
}
