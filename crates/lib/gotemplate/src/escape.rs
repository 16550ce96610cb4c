//! Escapes text for HTML, JavaScript and URL queries, and converts the case of letters.

use firn_model::quote::is_printable;
use std::fmt::Write;

/// Escapes text for HTML, like Go's `template.HTMLEscape`. A zero byte becomes the replacement
/// character.
pub(super) fn escape_html(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\0' => out.extend_from_slice("\u{fffd}".as_bytes()),
            b'"' => out.extend_from_slice(b"&#34;"),
            b'\'' => out.extend_from_slice(b"&#39;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            _ => out.push(*byte),
        }
    }
    out
}

/// Escapes text for a JavaScript string, like Go's `template.JSEscape`. Invalid bytes become
/// replacement characters.
pub(super) fn escape_js(bytes: &[u8]) -> Vec<u8> {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push_js(&mut out, c));
        chunk
            .invalid()
            .iter()
            .for_each(|_| out.push(char::REPLACEMENT_CHARACTER));
    }
    out.into_bytes()
}

fn push_js(out: &mut String, c: char) {
    let _ = match c {
        '\\' | '\'' | '"' => write!(out, "\\{c}"),
        '<' | '>' | '&' | '=' => write!(out, "\\u{:04X}", c as u32),
        _ if c < ' ' => write!(out, "\\u{:04X}", c as u32),
        _ if c.is_ascii() || is_printable(c) => write!(out, "{c}"),
        _ => write!(out, "\\u{:04X}", c as u32),
    };
}

/// Escapes text for the query of a URL. A space becomes a plus sign.
pub(super) fn escape_url_query(bytes: &[u8]) -> Vec<u8> {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b' ' => out.push('+'),
            b'-' | b'_' | b'.' | b'~' => out.push(char::from(*byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(*byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out.into_bytes()
}

/// Converts each character to upper case, like Go's `strings.ToUpper`. A character without a
/// single-character counterpart is unchanged.
pub(super) fn to_upper(bytes: &[u8]) -> Vec<u8> {
    map_chars(bytes, |c| single(c.to_uppercase()).unwrap_or(c))
}

/// Converts each character to lower case, like Go's `strings.ToLower`. A character without a
/// single-character counterpart is unchanged.
pub(super) fn to_lower(bytes: &[u8]) -> Vec<u8> {
    map_chars(bytes, |c| match c {
        '\u{130}' => 'i',
        c => single(c.to_lowercase()).unwrap_or(c),
    })
}

fn single(mut chars: impl Iterator<Item = char>) -> Option<char> {
    let first = chars.next()?;
    chars.next().is_none().then_some(first)
}

fn map_chars(bytes: &[u8], map: impl Fn(char) -> char) -> Vec<u8> {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(map)
        .collect::<String>()
        .into_bytes()
}

/// Converts the first letter of each word to title case and leaves the others unchanged.
///
/// A word may contain digits, underscores and marks, and a single `'`, `.` or `:` between its
/// parts. This follows the library that Prometheus uses (`golang.org/x/text/cases`).
pub(super) fn to_title(bytes: &[u8]) -> Vec<u8> {
    let mut out = String::with_capacity(bytes.len());
    let (mut in_word, mut was_joint) = (false, false);
    for c in String::from_utf8_lossy(bytes).chars() {
        let is_joint = matches!(
            c,
            '\'' | '.' | ':' | '·' | '\u{2019}' | '\u{2018}' | '\u{2024}'
        );
        if was_joint && is_joint {
            in_word = false;
        }
        was_joint = is_joint;
        if !(c.is_lowercase() || c.is_uppercase()) {
            let goes_on = is_joint || c == '_' || c.is_alphanumeric() || is_mark(c);
            in_word &= goes_on;
            out.push(c);
        } else if in_word {
            out.push(c);
        } else {
            in_word = true;
            push_title(&mut out, c);
        }
    }
    out.into_bytes()
}

/// Returns whether the character is a mark that combines with the letter before it.
fn is_mark(c: char) -> bool {
    const ENCLOSING: std::ops::RangeInclusive<char> = '\u{20d0}'..='\u{20ff}';
    matches!(c, '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200f}')
        || ENCLOSING.contains(&c)
}

fn push_title(out: &mut String, c: char) {
    // These characters have a title-case form that differs from their upper-case form.
    let title = match c {
        'Ǆ' | 'ǆ' => "ǅ",
        'Ǉ' | 'ǉ' => "ǈ",
        'Ǌ' | 'ǌ' => "ǋ",
        'Ǳ' | 'ǳ' => "ǲ",
        'ŉ' => "ʼN",
        _ => {
            let mut upper = c.to_uppercase();
            out.extend(upper.next());
            return out.extend(upper.flat_map(char::to_lowercase));
        }
    };
    out.push_str(title);
}
