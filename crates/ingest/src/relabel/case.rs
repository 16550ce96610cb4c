//! Small letters and capitals as Go maps them: each character to one character.
//!
//! Unicode's full mapping, which Rust follows, may write several characters for one (`ß` as `SS`)
//! and looks at the neighbours; then Go's simple mapping differs.

/// `text` in small letters.
pub(super) fn lower(text: &[u8]) -> Vec<u8> {
    map(text, |c| match c {
        'İ' => 'i',
        c => only(c.to_lowercase()).unwrap_or(c),
    })
}

/// `text` in capitals.
pub(super) fn upper(text: &[u8]) -> Vec<u8> {
    map(text, |c| match c {
        // Greek vowels with an iota below, whose full capital has the iota beside it.
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => shift(c, 8),
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => shift(c, 9),
        c => only(c.to_uppercase()).unwrap_or(c),
    })
}

fn map(text: &[u8], change: impl Fn(char) -> char) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    text.chars().map(change).collect::<String>().into_bytes()
}

/// The character of `chars` if it is the only one.
fn only(mut chars: impl ExactSizeIterator<Item = char>) -> Option<char> {
    match chars.len() {
        1 => chars.next(),
        _ => None,
    }
}

fn shift(c: char, by: u32) -> char {
    char::from_u32(c as u32 + by).unwrap_or(c)
}
