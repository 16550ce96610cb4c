//! Verbs of text: `%s`, `%q`, `%x`, `%c`, `%U`.

use super::printer::Printer;
use firn_model::quote::{is_printable, push_escaped};
use std::fmt::Write;

/// The first character and its length; a byte that is no UTF-8 reads as the replacement.
pub(super) fn first_char(bytes: &[u8]) -> (char, usize) {
    let Some(chunk) = bytes.utf8_chunks().next() else {
        return (char::REPLACEMENT_CHARACTER, 0);
    };
    match chunk.valid().chars().next() {
        Some(c) => (c, c.len_utf8()),
        None => (char::REPLACEMENT_CHARACTER, 1),
    }
}

/// Go's `strconv.Quote`, or its form without characters beyond ASCII.
fn quoted(bytes: &[u8], quote: char, is_ascii: bool) -> String {
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

/// Whether a string can stand between back quotes unchanged.
pub(in crate::template) fn can_back_quote(bytes: &[u8]) -> bool {
    let is_plain = |c: char| match c {
        '\u{feff}' | '`' | '\u{7f}' => false,
        '\t' => true,
        c => c >= ' ',
    };
    std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(is_plain))
}

impl Printer {
    /// The text up to the precision, in characters.
    fn cut<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(precision) = self.flags.precision else {
            return bytes;
        };
        let mut len = 0;
        for _ in 0..precision.min(bytes.len()) {
            len += first_char(&bytes[len..]).1;
        }
        &bytes[..len]
    }

    /// Writes a string; `false` if `verb` is none for strings.
    pub(super) fn text(&mut self, bytes: &[u8], verb: char) -> bool {
        match verb {
            'v' if self.flags.sharp_v => self.quoted_text(bytes),
            'v' | 's' => {
                let cut = self.cut(bytes);
                self.pad(cut);
            }
            'x' | 'X' => self.hex(bytes, verb == 'X'),
            'q' => self.quoted_text(bytes),
            _ => return false,
        }
        true
    }

    fn quoted_text(&mut self, bytes: &[u8]) {
        let cut = self.cut(bytes);
        if self.flags.sharp && can_back_quote(cut) {
            return self.pad(&[b"`", cut, b"`"].concat());
        }
        let text = quoted(cut, '"', self.flags.plus);
        self.pad(text.as_bytes());
    }

    /// `%x` of bytes: as many as the precision says.
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
            let _ = match upper {
                true => write!(text, "{byte:02X}"),
                false => write!(text, "{byte:02x}"),
            };
        }
        self.pad(text.as_bytes());
    }

    /// `%c`
    pub(super) fn character(&mut self, code: u64) {
        let c = as_char(code);
        self.pad(c.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// `%q` of a number.
    pub(super) fn quoted_character(&mut self, code: u64) {
        let mut text = String::from('\'');
        push_quoted(&mut text, as_char(code), '\'', self.flags.plus);
        text.push('\'');
        self.pad(text.as_bytes());
    }

    /// `%U`
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
