//! String literals: finding their end, and turning them into bytes.
//!
//! Invariant: [`unquote`] cannot fail on what [`Lexer::string`] let through.

use super::{Lexer, Token, TokenKind};
use crate::parser::Failure;
use crate::quote::{REPLACEMENT, code_point};

impl Lexer<'_> {
    /// The rest of a string whose opening quote has been read.
    pub(super) fn string(&mut self, quote: char) -> Result<Token, Failure> {
        let is_raw = quote == '`';
        loop {
            match self.bump() {
                None if is_raw => return self.fail("unterminated raw string"),
                None => return self.fail("unterminated quoted string"),
                Some(c) if c == quote => return self.emit(TokenKind::String),
                // The caller has replaced bytes that are not UTF-8 by this character.
                Some(REPLACEMENT) => return self.fail("invalid UTF-8 rune"),
                Some('\n') if !is_raw => return self.fail("unterminated quoted string"),
                Some('\\') if !is_raw => self.escape(quote)?,
                Some(_) => {}
            }
        }
    }

    fn escape(&mut self, quote: char) -> Result<(), Failure> {
        let Some(c) = self.bump() else {
            return self.fail("escape sequence not terminated");
        };
        let (digits, base, value_max) = match c {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' => return Ok(()),
            c if c == quote => return Ok(()),
            '0'..='7' => {
                self.at -= 1;
                (3, 8, 255)
            }
            'x' => (2, 16, 255),
            'u' => (4, 16, char::MAX as u32),
            'U' => (8, 16, char::MAX as u32),
            _ => return self.fail(format!("unknown escape sequence {}", code_point(c))),
        };
        let mut value: u32 = 0;
        for _ in 0..digits {
            let Some(c) = self.bump() else {
                return self.fail("escape sequence not terminated");
            };
            let Some(digit) = c.to_digit(base) else {
                let c = code_point(c);
                return self.fail(format!("illegal character {c} in escape sequence"));
            };
            // Eight digits of four bits: nothing is shifted out.
            value = value * base + digit;
        }
        if value > value_max || (0xd800..0xe000).contains(&value) {
            return self.fail("escape sequence is an invalid Unicode code point");
        }
        Ok(())
    }
}

/// The bytes that a string literal, quotes included, stands for.
pub(crate) fn unquote(literal: &str) -> Vec<u8> {
    let mut chars = literal.chars();
    let quote = chars.next();
    chars.next_back();
    let inner = chars.as_str();
    if quote == Some('`') || !inner.contains('\\') {
        return inner.as_bytes().to_vec();
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.extend_from_slice(plain.as_bytes());
        rest = push_escape(escape, &mut out);
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Appends what the escape after a backslash stands for; returns what follows it.
fn push_escape<'a>(text: &'a str, out: &mut Vec<u8>) -> &'a str {
    let Some(c) = text.chars().next() else {
        return text;
    };
    let (skip, digits, base) = match c {
        '0'..='7' => (0, 3, 8),
        'x' => (1, 2, 16),
        'u' => (1, 4, 16),
        'U' => (1, 8, 16),
        _ => {
            out.push(simple_escape(c));
            return &text[c.len_utf8()..];
        }
    };
    let (number, rest) = text[skip..].split_at_checked(digits).unwrap_or_default();
    let value = u32::from_str_radix(number, base).unwrap_or_default();
    match char::from_u32(value) {
        Some(c) if digits > 3 => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        _ => out.push(value as u8),
    }
    rest
}

fn simple_escape(c: char) -> u8 {
    match c {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        quote_or_backslash => quote_or_backslash as u8,
    }
}
