//! Characters and text in quotes as Go writes them, which error messages and the printed form of
//! expressions show.

pub use firn_model::quote::quote;
use firn_model::quote::{is_printable, push_escaped};

/// The character that stands for one that could not be decoded.
pub(crate) const REPLACEMENT: char = '\u{fffd}';

/// `'c'`, with the escapes of Go.
pub(crate) fn quote_char(c: char) -> String {
    let mut out = String::from("'");
    push_escaped(&mut out, c, '\'');
    out.push('\'');
    out
}

/// `U+0071 'q'`, or `U+0007` if the character cannot be printed.
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
