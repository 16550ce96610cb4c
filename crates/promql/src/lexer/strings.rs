//! String literals: finding their end, and turning them into bytes.
//!
//! Invariant: [`unquote`] cannot fail on what [`Lexer::string`] let through: both read escapes by
//! one function.

use super::{Lexer, Token, TokenKind};
use crate::quote::{REPLACEMENT, code_point};
use crate::syntax_error::SyntaxError;

impl Lexer<'_> {
    /// The rest of a string whose opening quote has been read.
    pub(super) fn string(&mut self, quote: char) -> Result<Token, SyntaxError> {
        let is_raw = quote == '`';
        loop {
            match self.bump() {
                None if is_raw => return self.fail("unterminated raw string"),
                None => return self.fail("unterminated quoted string"),
                Some(c) if c == quote => return self.emit(TokenKind::String),
                // The caller has replaced bytes that are not UTF-8 by this character.
                Some(REPLACEMENT) => return self.fail("invalid UTF-8 rune"),
                Some('\n') if !is_raw => return self.fail("unterminated quoted string"),
                Some('\\') if !is_raw => match escape(self.rest(), quote) {
                    Ok((_, rest)) => self.at = self.text.len() - rest.len(),
                    Err(why) => return self.fail(why),
                },
                Some(_) => {}
            }
        }
    }
}

/// What an escape stands for.
enum Escaped {
    Byte(u8),
    Char(char),
}

/// Reads the escape whose backslash stands before `text`, in a string between two of `quote`;
/// returns what follows it, too. The error is the lexer's.
fn escape(text: &str, quote: char) -> Result<(Escaped, &str), String> {
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
                // A quote is ASCII.
                c if c == quote => c as u8,
                c => return Err(format!("unknown escape sequence {}", code_point(c))),
            };
            return Ok((Escaped::Byte(byte), chars.as_str()));
        }
    };
    let mut value = first.unwrap_or_default();
    for _ in 0..digits {
        let c = next()?;
        let Some(digit) = c.to_digit(base) else {
            let c = code_point(c);
            return Err(format!("illegal character {c} in escape sequence"));
        };
        // Eight digits of four bits: nothing is shifted out.
        value = value * base + digit;
    }
    let escaped = match digits {
        2 => u8::try_from(value).ok().map(Escaped::Byte),
        _ => char::from_u32(value).map(Escaped::Char),
    };
    let escaped = escaped.ok_or("escape sequence is an invalid Unicode code point")?;
    Ok((escaped, chars.as_str()))
}

/// The bytes that a string literal, quotes included, stands for.
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
        rest = match escape(after, quote) {
            Ok((Escaped::Byte(byte), rest)) => {
                out.push(byte);
                rest
            }
            Ok((Escaped::Char(c), rest)) => {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest
            }
            Err(_) => after,
        };
    }
    out.extend_from_slice(rest.as_bytes());
    out
}
