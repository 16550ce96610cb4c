//! Decodes the bytes of a YAML file, as UTF-8 or as UTF-16 with a byte order mark, and rejects
//! control characters.

use super::node::{YamlError, YamlPosition};
use std::borrow::Cow;

/// Decodes the bytes of a YAML file. Text is UTF-8 unless it begins with a UTF-16 byte order mark.
/// Borrows UTF-8 input without copying it.
pub fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, YamlError> {
    match bytes {
        [0xff, 0xfe, rest @ ..] => decode_utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => decode_utf16(rest, u16::from_be_bytes),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(e) => {
                let (valid, rest) = bytes.split_at(e.valid_up_to());
                let message = match e.error_len() {
                    None => "incomplete UTF-8 octet sequence".to_owned(),
                    Some(_) => format!("invalid UTF-8 octet 0x{:02x}", rest[0]),
                };
                let place = end_of(&String::from_utf8_lossy(valid));
                Err(YamlError { place, message })
            }
        },
    }
}

fn decode_utf16(bytes: &[u8], unit: impl Fn([u8; 2]) -> u16) -> Result<Cow<'_, str>, YamlError> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut text = String::new();
    let error = |text: &str, message: &str| YamlError {
        place: end_of(text),
        message: message.to_owned(),
    };
    for c in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        text.push(c.map_err(|_| error(&text, "invalid UTF-16 surrogate"))?);
    }
    match rest {
        [] => Ok(Cow::Owned(text)),
        _ => Err(error(&text, "incomplete UTF-16 character")),
    }
}

/// Rejects a text that contains control characters, as upstream does.
pub(super) fn check_characters(text: &str) -> Result<(), YamlError> {
    let is_control = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{85}' => false,
        c => c < ' ' || matches!(c, '\u{7f}'..'\u{a0}' | '\u{fffe}' | '\u{ffff}'),
    };
    match text.char_indices().find(|(_, c)| is_control(*c)) {
        None => Ok(()),
        Some((index, _)) => Err(YamlError {
            place: end_of(&text[..index]),
            message: "control characters are not allowed".into(),
        }),
    }
}

fn end_of(text: &str) -> YamlPosition {
    let line = text.rsplit('\n').next().unwrap_or_default();
    YamlPosition {
        line: text.matches('\n').count() + 1,
        column: line.chars().count() + 1,
    }
}
