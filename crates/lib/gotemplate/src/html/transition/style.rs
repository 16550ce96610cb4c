//! State transitions in CSS: strings, URLs, comments and escapes.

use super::{Moved, is_space, position, step_url};
use crate::html::context::{HtmlContext, HtmlState};
use firn_model::quote::quote;

pub(super) fn step_style(mut context: HtmlContext, text: &[u8]) -> (HtmlContext, usize) {
    let mut start = 0;
    while let Some(at) = position(&text[start..], b"(\"'/").map(|at| start + at) {
        start = at + 1;
        match (text[at], text.get(start)) {
            (b'(', _) if ends_with_url(&text[..at]) => {
                let spaces = text[start..].iter().take_while(|b| is_space(**b)).count();
                let value = start + spaces;
                let (state, len) = match text.get(value) {
                    Some(b'"') => (HtmlState::CssDoubleQuotedUrl, 1),
                    Some(b'\'') => (HtmlState::CssSingleQuotedUrl, 1),
                    _ => (HtmlState::CssUrl, 0),
                };
                context.state = state;
                return (context, value + len);
            }
            (b'/', Some(b'/')) => {
                context.state = HtmlState::CssLineComment;
                return (context, at + 2);
            }
            (b'/', Some(b'*')) => {
                context.state = HtmlState::CssBlockComment;
                return (context, at + 2);
            }
            (b'"', _) => {
                context.state = HtmlState::CssDoubleQuoted;
                return (context, at + 1);
            }
            (b'\'', _) => {
                context.state = HtmlState::CssSingleQuoted;
                return (context, at + 1);
            }
            _ => {}
        }
    }
    (context, text.len())
}

/// Returns whether the text ends with the word `url`, before an opening parenthesis.
fn ends_with_url(text: &[u8]) -> bool {
    let blanks = text.iter().rev().take_while(|b| is_space(**b)).count();
    let text = &text[..text.len() - blanks];
    let Some((before, word)) = text.split_last_chunk::<3>() else {
        return false;
    };
    let continues = |byte: &u8| is_name_byte(*byte) || !byte.is_ascii();
    word.eq_ignore_ascii_case(b"url") && !before.last().is_some_and(continues)
}

/// Returns whether an ASCII byte may be part of a CSS name.
pub(in crate::html) fn is_name_byte(byte: u8) -> bool {
    matches!(byte, b'-' | b'_') || byte.is_ascii_alphanumeric()
}

pub(super) fn step_string(mut context: HtmlContext, text: &[u8]) -> Moved {
    let specials: &[u8] = match context.state {
        HtmlState::CssDoubleQuoted | HtmlState::CssDoubleQuotedUrl => b"\\\"",
        HtmlState::CssSingleQuoted | HtmlState::CssSingleQuotedUrl => b"\\'",
        _ => b"\\\t\n\x0c\r )",
    };
    let mut start = 0;
    while let Some(at) = position(&text[start..], specials).map(|at| start + at) {
        if text[at] != b'\\' {
            context.state = HtmlState::Css;
            return Ok((context, at + 1));
        }
        let escaped = at + 1;
        if escaped == text.len() {
            let text = quote(text);
            return Err(format!("unfinished escape sequence in CSS string: {text}"));
        }
        context = step_url(context, &decode_escapes(&text[..=escaped]));
        start = escaped + 1;
    }
    context = step_url(context, &decode_escapes(&text[start..]));
    Ok((context, text.len()))
}

pub(super) fn step_line_comment(mut context: HtmlContext, text: &[u8]) -> (HtmlContext, usize) {
    match position(text, b"\n\x0c\r") {
        Some(at) => {
            context.state = HtmlState::Css;
            (context, at)
        }
        None => (context, text.len()),
    }
}

/// Decodes the escapes in a CSS text: hexadecimal code points and escaped characters.
pub(in crate::html) fn decode_escapes(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = position(rest, b"\\") {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let digits = rest.iter().take(6).take_while(|b| b.is_ascii_hexdigit());
        match digits.count() {
            0 => {
                let len = char_len(rest);
                out.extend_from_slice(&rest[..len]);
                rest = &rest[len..];
            }
            count => {
                let (c, read) = code_point(&rest[..count]);
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest = skip_space(&rest[read..]);
            }
        }
    }
    out.extend_from_slice(rest);
    out
}

/// Returns the character for these hexadecimal digits, and the number of digits that it uses.
fn code_point(digits: &[u8]) -> (char, usize) {
    let value = digits.iter().fold(0_u32, |value, digit| {
        value << 4 | char::from(*digit).to_digit(16).unwrap_or(0)
    });
    let (value, read) = if value > char::MAX as u32 {
        (value / 16, digits.len() - 1)
    } else {
        (value, digits.len())
    };
    let c = char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER);
    (c, read)
}

/// Returns the length of the first character in bytes; an invalid byte has length one.
fn char_len(text: &[u8]) -> usize {
    let chunk = text.utf8_chunks().next();
    let first = chunk.and_then(|chunk| chunk.valid().chars().next());
    first.map_or(text.len().min(1), char::len_utf8)
}

fn skip_space(text: &[u8]) -> &[u8] {
    match text {
        [b'\r', b'\n', rest @ ..] | [b'\t' | b'\n' | b'\x0c' | b' ' | b'\r', rest @ ..] => rest,
        _ => text,
    }
}
