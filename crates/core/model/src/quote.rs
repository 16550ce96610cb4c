//! Texts quoted like Go's `strconv.Quote`, for error messages and printed expressions.
//!
//! Invariant: the result of [`quote`] for any bytes is a string literal of Go and of PromQL with
//! the same bytes.

use std::fmt::Write;

/// Returns the bytes in double quotes, with the escapes of Go. Invalid UTF-8 is written as `\xff`.
pub fn quote(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_escaped(&mut out, c, '"');
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

/// Appends `c` with the escapes of a string quoted by `quote`.
pub fn push_escaped(out: &mut String, c: char, quote: char) {
    let _ = match c {
        _ if c == quote || c == '\\' => write!(out, "\\{c}"),
        _ if is_printable(c) => write!(out, "{c}"),
        '\u{07}' => write!(out, "\\a"),
        '\u{08}' => write!(out, "\\b"),
        '\u{0c}' => write!(out, "\\f"),
        '\n' => write!(out, "\\n"),
        '\r' => write!(out, "\\r"),
        '\t' => write!(out, "\\t"),
        '\u{0b}' => write!(out, "\\v"),
        '\0'..='\u{1f}' | '\u{7f}' => write!(out, "\\x{:02x}", c as u32),
        '\u{80}'..='\u{ffff}' => write!(out, "\\u{:04x}", c as u32),
        _ => write!(out, "\\U{:08x}", c as u32),
    };
}

/// Returns whether Go considers the character printable: letters, marks, numbers, punctuation,
/// symbols and the ASCII space. The debug format of the standard library uses the same set.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // The debug format escapes a combining mark only at the start of a string.
    let mut bytes = [b'a'; 5];
    let length = c.encode_utf8(&mut bytes[1..]).len();
    std::str::from_utf8(&bytes[..=length]).is_ok_and(|s| s.escape_debug().eq(s.chars()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quote_any_bytes_reads_as_go_writes_it() {
        let cases: [(&[u8], &str); 7] = [
            (b"", r#""""#),
            (b"a'b\"c\\", r#""a'b\"c\\""#),
            (b"\x07\n\t\x01\x7f", r#""\a\n\t\x01\x7f""#),
            (b"ok\xffend\xc3", r#""ok\xffend\xc3""#),
            ("ü日\u{301}".as_bytes(), "\"ü日\u{301}\""),
            (
                "\u{a0}\u{200b}\u{fffd}".as_bytes(),
                "\"\\u00a0\\u200b\u{fffd}\"",
            ),
            ("\u{e0001}".as_bytes(), r#""\U000e0001""#),
        ];
        for (bytes, expected) in cases {
            assert_eq!(quote(bytes), expected);
        }
    }
}
