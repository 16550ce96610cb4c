//! Formats strings and characters with the verbs `%s`, `%q`, `%x`, `%c` and `%U`.

use super::printer::PrintfPrinter;
use firn_model::quote::{is_printable, push_escaped};
use std::fmt::Write;

/// Returns the first character and its length in bytes. An invalid byte is the replacement
/// character with length one.
pub(super) fn first_char(bytes: &[u8]) -> (char, usize) {
    let Some(chunk) = bytes.utf8_chunks().next() else {
        return (char::REPLACEMENT_CHARACTER, 0);
    };
    match chunk.valid().chars().next() {
        Some(c) => (c, c.len_utf8()),
        None => (char::REPLACEMENT_CHARACTER, 1),
    }
}

/// Quotes text like Go's `strconv.Quote` or, with `is_ascii`, like `strconv.QuoteToASCII`.
fn quote_text(bytes: &[u8], quote: char, is_ascii: bool) -> String {
    let mut out = String::from(quote);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_quoted(&mut out, c, quote, is_ascii);
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push(quote);
    out
}

fn push_quoted(out: &mut String, c: char, quote: char, is_ascii: bool) {
    let _ = match c as u32 {
        code @ 0x80..=0xffff if is_ascii => write!(out, "\\u{code:04x}"),
        code @ 0x10000.. if is_ascii => write!(out, "\\U{code:08x}"),
        _ => {
            push_escaped(out, c, quote);
            Ok(())
        }
    };
}

/// Returns whether the string can be written in back quotes without change, like Go's
/// `strconv.CanBackquote`.
pub(crate) fn can_back_quote(bytes: &[u8]) -> bool {
    let is_plain = |c: char| match c {
        '\u{feff}' | '`' | '\u{7f}' => false,
        '\t' => true,
        c => c >= ' ',
    };
    std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(is_plain))
}

impl PrintfPrinter {
    /// Truncates the text to the precision of the directive, in characters.
    fn truncate<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(precision) = self.flags.precision else {
            return bytes;
        };
        let mut len = 0;
        for _ in 0..precision.min(bytes.len()) {
            len += first_char(&bytes[len..]).1;
        }
        &bytes[..len]
    }

    /// Writes a string, truncated to the precision. Returns whether `verb` applies to strings;
    /// otherwise writes nothing.
    pub(super) fn text(&mut self, bytes: &[u8], verb: char) -> bool {
        match verb {
            'v' if self.flags.sharp_v => self.quoted_text(bytes),
            'v' | 's' => {
                let cut = self.truncate(bytes);
                self.pad(cut);
            }
            'x' | 'X' => self.hex(bytes, verb == 'X'),
            'q' => self.quoted_text(bytes),
            _ => return false,
        }
        true
    }

    fn quoted_text(&mut self, bytes: &[u8]) {
        let cut = self.truncate(bytes);
        if self.flags.sharp && can_back_quote(cut) {
            return self.pad(&[b"`", cut, b"`"].concat());
        }
        let text = quote_text(cut, '"', self.flags.plus);
        self.pad(text.as_bytes());
    }

    /// Writes bytes in hexadecimal, at most as many as the precision allows.
    fn hex(&mut self, bytes: &[u8], upper: bool) {
        let bytes = &bytes[..self.flags.precision.unwrap_or(bytes.len()).min(bytes.len())];
        let mut text = String::new();
        for (index, byte) in bytes.iter().enumerate() {
            if self.flags.space && index > 0 {
                text.push(' ');
            }
            if self.flags.sharp && (self.flags.space || index == 0) {
                text.push_str(if upper { "0X" } else { "0x" });
            }
            let _ = if upper {
                write!(text, "{byte:02X}")
            } else {
                write!(text, "{byte:02x}")
            };
        }
        self.pad(text.as_bytes());
    }

    /// Writes the character with this code point (`%c`). An invalid code point becomes the
    /// replacement character.
    pub(super) fn character(&mut self, code: u64) {
        let c = as_char(code);
        self.pad(c.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// Writes the quoted character with this code point (`%q` of an integer).
    pub(super) fn quoted_character(&mut self, code: u64) {
        let mut text = String::from('\'');
        push_quoted(&mut text, as_char(code), '\'', self.flags.plus);
        text.push('\'');
        self.pad(text.as_bytes());
    }

    /// Writes a code point in the form `U+0041` (`%U`), with the character if the flag `#` is set.
    pub(super) fn unicode(&mut self, code: u64) {
        let digits = self
            .flags
            .precision
            .map_or(4, |precision| precision.clamp(4, 64));
        let mut text = format!("U+{code:0digits$X}");
        let c = u32::try_from(code).ok().and_then(char::from_u32);
        if let Some(c) = c.filter(|c| self.flags.sharp && is_printable(*c)) {
            text += &format!(" '{c}'");
        }
        let zero = std::mem::take(&mut self.flags.zero);
        self.pad(text.as_bytes());
        self.flags.zero = zero;
    }
}

fn as_char(code: u64) -> char {
    let c = u32::try_from(code).ok().and_then(char::from_u32);
    c.unwrap_or(char::REPLACEMENT_CHARACTER)
}
