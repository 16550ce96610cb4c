//! Escapes values for CSS strings and checks CSS property values.

use super::text::FAILSAFE;
use crate::html::transition::{decode_escapes, is_name_byte};

/// Escapes text for a quoted CSS string, in which it represents itself.
pub(super) fn escape_string(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let Some(escape) = escape(*byte) else {
            out.push(*byte);
            continue;
        };
        out.extend_from_slice(escape.as_bytes());
        // A hexadecimal digit or space after an escape would become part of it.
        let joins = |next: &u8| {
            next.is_ascii_hexdigit() || matches!(next, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ')
        };
        if *byte != b'\\' && bytes.get(at + 1).is_none_or(joins) {
            out.push(b' ');
        }
    }
    out
}

fn escape(byte: u8) -> Option<&'static str> {
    Some(match byte {
        b'\0' => "\\0",
        b'\t' => "\\9",
        b'\n' => "\\a",
        b'\x0c' => "\\c",
        b'\r' => "\\d",
        b'"' => "\\22",
        b'&' => "\\26",
        b'\'' => "\\27",
        b'(' => "\\28",
        b')' => "\\29",
        b'+' => "\\2b",
        b'/' => "\\2f",
        b':' => "\\3a",
        b';' => "\\3b",
        b'<' => "\\3c",
        b'>' => "\\3e",
        b'\\' => "\\\\",
        b'{' => "\\7b",
        b'}' => "\\7d",
        _ => return None,
    })
}

/// Returns a property value if it consists only of words, numbers and colours, else the failsafe.
pub(super) fn filter_value(bytes: &[u8]) -> Vec<u8> {
    const SPECIALS: &[u8] = b"\0\"'()/;@[\\]`{}<>";
    let meant = decode_escapes(bytes);
    let is_special = meant.iter().any(|byte| SPECIALS.contains(byte));
    let has_comment = meant.windows(2).any(|pair| pair == b"--");
    let letters = meant
        .iter()
        .filter(|byte| is_name_byte(**byte) && **byte != b'-');
    let word: Vec<u8> = letters.map(u8::to_ascii_lowercase).collect();
    // Some browsers execute these values, even if they contain other characters.
    let runs = [&b"expression"[..], b"mozbinding"]
        .iter()
        .any(|name| word.windows(name.len()).any(|window| window == *name));
    if is_special || has_comment || runs {
        FAILSAFE.to_vec()
    } else {
        meant
    }
}
