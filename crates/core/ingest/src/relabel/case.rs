//! Lower and upper case like in Go, which maps each character to exactly one character.
//!
//! Rust follows the full mapping of Unicode, which may map one character to several (`ß` to `SS`)
//! and depends on neighbours; in those cases this module uses Go's simple mapping.

/// Returns `text` in lower case. Bytes that are not UTF-8 become replacement characters.
pub(super) fn to_lowercase(text: &[u8]) -> Vec<u8> {
    map_chars(text, |c| match c {
        'İ' => 'i',
        c => single_char(c.to_lowercase()).unwrap_or(c),
    })
}

/// Returns `text` in upper case. Bytes that are not UTF-8 become replacement characters.
pub(super) fn to_uppercase(text: &[u8]) -> Vec<u8> {
    map_chars(text, |c| match c {
        // Greek vowels with iota subscript, whose full upper case has a separate iota.
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
            shift_char(c, 8)
        }
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => shift_char(c, 9),
        c => single_char(c.to_uppercase()).unwrap_or(c),
    })
}

fn map_chars(text: &[u8], change: impl Fn(char) -> char) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    text.chars().map(change).collect::<String>().into_bytes()
}

/// Returns the character of `chars` if there is exactly one.
fn single_char(mut chars: impl ExactSizeIterator<Item = char>) -> Option<char> {
    match chars.len() {
        1 => chars.next(),
        _ => None,
    }
}

fn shift_char(c: char, by: u32) -> char {
    char::from_u32(c as u32 + by).unwrap_or(c)
}
