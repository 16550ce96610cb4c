//! Decodes HTML entities in attribute values, as far as they affect the parser state. Only ASCII
//! characters and spaces do.
//!
//! All numeric entities are decoded. Of the named ones, those for ASCII characters and the
//! non-breaking space are decoded. Other names are treated like letters, except in scripts and
//! styles, where they are rejected because a letter and its name may lead to different states.

use super::context::HtmlState;
use firn_model::quote::quote;

/// Maximum length of an entity name, which is longer than all names in Go's table.
const NAME_BYTES_MAX: usize = 32;

/// Entity names that require a semicolon, with the characters that they represent.
const NAMES: [(&[u8], char); 44] = [
    (b"Tab", '\t'),
    (b"NewLine", '\n'),
    (b"excl", '!'),
    (b"quot", '"'),
    (b"QUOT", '"'),
    (b"num", '#'),
    (b"dollar", '$'),
    (b"percnt", '%'),
    (b"amp", '&'),
    (b"AMP", '&'),
    (b"apos", '\''),
    (b"lpar", '('),
    (b"rpar", ')'),
    (b"ast", '*'),
    (b"midast", '*'),
    (b"plus", '+'),
    (b"comma", ','),
    (b"period", '.'),
    (b"sol", '/'),
    (b"colon", ':'),
    (b"semi", ';'),
    (b"lt", '<'),
    (b"LT", '<'),
    (b"equals", '='),
    (b"gt", '>'),
    (b"GT", '>'),
    (b"quest", '?'),
    (b"commat", '@'),
    (b"lsqb", '['),
    (b"lbrack", '['),
    (b"bsol", '\\'),
    (b"rsqb", ']'),
    (b"rbrack", ']'),
    (b"Hat", '^'),
    (b"lowbar", '_'),
    (b"UnderBar", '_'),
    (b"grave", '`'),
    (b"DiacriticalGrave", '`'),
    (b"lcub", '{'),
    (b"lbrace", '{'),
    (b"verbar", '|'),
    (b"rcub", '}'),
    (b"rbrace", '}'),
    (b"nbsp", '\u{a0}'),
];

/// Entity names that are valid without a semicolon, with the characters that they represent.
const BARE_NAMES: [(&[u8], char); 9] = [
    (b"quot", '"'),
    (b"QUOT", '"'),
    (b"amp", '&'),
    (b"AMP", '&'),
    (b"lt", '<'),
    (b"LT", '<'),
    (b"gt", '>'),
    (b"GT", '>'),
    (b"nbsp", '\u{a0}'),
];

/// Decodes the entities in `text`, the start of an attribute value in the given state. Fails for an
/// unsupported entity in a script or style.
pub(super) fn unescape(text: &[u8], state: HtmlState) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|b| *b == b'&') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let (c, len) = match entity(rest) {
            HtmlEntity::None => ('&', 1),
            HtmlEntity::Known(c, len) => (c, len),
            HtmlEntity::Unknown(len) if !is_code(state) => {
                out.extend_from_slice(&rest[..len]);
                rest = &rest[len..];
                continue;
            }
            HtmlEntity::Unknown(len) => {
                let name = quote(&rest[..len]);
                return Err(format!("{name} in a script or style is not supported"));
            }
        };
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[len..];
    }
    out.extend_from_slice(rest);
    Ok(out)
}

/// Interpretation of an ampersand in a text: a literal character, or an entity with or without a
/// supported name.
enum HtmlEntity {
    None,
    /// Decoded character, and the length of the entity in bytes.
    Known(char, usize),
    /// Length of an entity with an unsupported name, including its semicolon.
    Unknown(usize),
}

fn entity(text: &[u8]) -> HtmlEntity {
    if let [b'&', b'#', rest @ ..] = text {
        return number(rest);
    }
    let rest = &text[1..];
    let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric();
    let len = rest.iter().take_while(is_letter).count();
    let (name, is_ended) = (&rest[..len], rest.get(len) == Some(&b';'));
    if is_ended && let Some((_, c)) = NAMES.iter().find(|(known, _)| *known == name) {
        return HtmlEntity::Known(*c, 1 + len + 1);
    }
    if let Some((known, c)) = BARE_NAMES.iter().find(|(known, _)| name.starts_with(known)) {
        return HtmlEntity::Known(*c, 1 + known.len());
    }
    if is_ended && (1..=NAME_BYTES_MAX).contains(&len) {
        HtmlEntity::Unknown(1 + len + 1)
    } else {
        HtmlEntity::None
    }
}

/// Decodes a decimal or hexadecimal entity after `&#`. Invalid code points become the replacement
/// character.
fn number(text: &[u8]) -> HtmlEntity {
    let (is_hex, digits) = match text {
        [b'x' | b'X', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let radix = if is_hex { 16 } else { 10 };
    let digit = |byte: &u8| char::from(*byte).to_digit(radix);
    let len = digits.iter().take_while(|b| digit(b).is_some()).count();
    if len == 0 {
        return HtmlEntity::None;
    }
    let value = digits[..len].iter().filter_map(digit);
    let value = value.fold(0_u32, |value, digit| {
        value.saturating_mul(radix).saturating_add(digit)
    });
    let semicolon = usize::from(digits.get(len) == Some(&b';'));
    let len = 2 + usize::from(is_hex) + len + semicolon;
    let c = match value {
        0 => None,
        // Browsers map this range to Windows-1252. All its characters are non-ASCII, so any of them
        // gives the same result.
        0x80..=0x9f => Some('\u{80}'),
        _ => char::from_u32(value),
    };
    HtmlEntity::Known(c.unwrap_or(char::REPLACEMENT_CHARACTER), len)
}

/// Returns whether an attribute value in this state is a script or style.
fn is_code(state: HtmlState) -> bool {
    !matches!(
        state,
        HtmlState::Attr
            | HtmlState::Url
            | HtmlState::SrcSet
            | HtmlState::MetaContent
            | HtmlState::MetaContentUrl
    )
}
