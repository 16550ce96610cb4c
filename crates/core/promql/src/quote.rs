//! Characters and texts quoted like Go's `%q`, for error messages and printed expressions.

pub use firn_model::quote::quote;
use firn_model::quote::{is_printable, push_escaped};

/// The Unicode replacement character, which replaces bytes that are not valid UTF-8.
pub(crate) const REPLACEMENT: char = '\u{fffd}';

/// Returns the character in single quotes, such as `'c'`, with the escapes of Go.
pub(crate) fn quote_char(c: char) -> String {
    let mut out = String::from("'");
    push_escaped(&mut out, c, '\'');
    out.push('\'');
    out
}

/// Returns the code point, such as `U+0071 'q'`, or only `U+0007` if the character is not
/// printable.
pub(crate) fn code_point(c: char) -> String {
    if is_printable(c) {
        format!("U+{:04X} '{c}'", c as u32)
    } else {
        format!("U+{:04X}", c as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quote_char_reads_as_go_writes_it() {
        assert_eq!(quote_char('\''), r"'\''");
        assert_eq!(quote_char('"'), "'\"'");
        assert_eq!(code_point('q'), "U+0071 'q'");
        assert_eq!(code_point('\n'), "U+000A");
    }
}
