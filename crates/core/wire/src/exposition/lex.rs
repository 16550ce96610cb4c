//! Building blocks of the lexer for the text formats: tokens, character classes, quoted strings.
//!
//! The lexer follows upstream's generated ones (`model/textparse/promlex.l`, `openmetricslex.l`) up
//! to the exact character at which they stop, because error messages contain it.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::Range;

/// A token of a line in either text format; its bytes are the span of the scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpositionToken {
    Invalid,
    Eof,
    Linebreak,
    Help,
    Type,
    Unit,
    EofWord,
    Text,
    Comment,
    MetricName,
    QuotedString,
    BraceOpen,
    BraceClose,
    LabelName,
    LabelValue,
    Comma,
    Equal,
    Timestamp,
    Value,
}

impl ExpositionToken {
    /// Returns the name of the token in error messages, which equals upstream's.
    pub fn name(self) -> &'static str {
        match self {
            ExpositionToken::Invalid => "INVALID",
            ExpositionToken::Eof => "EOF",
            ExpositionToken::Linebreak => "LINEBREAK",
            ExpositionToken::Help => "HELP",
            ExpositionToken::Type => "TYPE",
            ExpositionToken::Unit => "UNIT",
            ExpositionToken::EofWord => "EOFWORD",
            ExpositionToken::Text => "TEXT",
            ExpositionToken::Comment => "COMMENT",
            ExpositionToken::MetricName => "MNAME",
            ExpositionToken::QuotedString => "QSTRING",
            ExpositionToken::BraceOpen => "BOPEN",
            ExpositionToken::BraceClose => "BCLOSE",
            ExpositionToken::LabelName => "LNAME",
            ExpositionToken::LabelValue => "LVALUE",
            ExpositionToken::Comma => "COMMA",
            ExpositionToken::Equal => "EQUAL",
            ExpositionToken::Timestamp => "TIMESTAMP",
            ExpositionToken::Value => "VALUE",
        }
    }
}

/// A cursor over a text with the same movements as the generated lexers, so that errors show the
/// same excerpts.
#[derive(Clone, Debug)]
pub(super) struct ExpositionScanner<'t> {
    text: &'t [u8],
    /// Offset of the first byte of the current token.
    pub start: usize,
    /// Offset of the next byte to read.
    pub at: usize,
    /// True if the text is read as if a newline followed its last byte.
    adds_newline: bool,
    /// True while NUL bytes are skipped, in label values and comments.
    pub passes_nul: bool,
    /// Whether the whole text is UTF-8; computed at the first use.
    is_utf8: OnceCell<bool>,
}

impl<'t> ExpositionScanner<'t> {
    pub fn new(text: &'t [u8], adds_newline: bool) -> Self {
        Self {
            text,
            start: 0,
            at: 0,
            adds_newline,
            passes_nul: false,
            is_utf8: OnceCell::new(),
        }
    }

    pub fn text(&self) -> &'t [u8] {
        self.text
    }

    /// Returns the unread part of the text.
    pub fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Returns whether the whole text has been read. An implied newline counts as part of the text.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.at >= self.text.len() + usize::from(self.adds_newline)
    }

    /// Returns the current byte, or NUL after the end of the text.
    #[inline]
    pub fn current_byte(&self) -> u8 {
        match self.text.get(self.at) {
            Some(byte) => *byte,
            None if self.adds_newline && self.at == self.text.len() => b'\n',
            None => 0,
        }
    }

    /// Moves to the next byte, past NUL bytes while those are skipped, and returns it.
    #[inline]
    pub fn step(&mut self) -> u8 {
        self.at += 1;
        if self.passes_nul {
            while self.text.get(self.at) == Some(&0) {
                self.at += 1;
            }
        }
        self.current_byte()
    }

    /// Moves past the current byte and all following bytes of the class.
    #[inline]
    pub fn scan(&mut self, class: u8) {
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        self.at += 1 + rest.iter().take_while(|c| is_in_class(**c, class)).count();
    }

    /// Moves past the series `key`, which begins here, and leaves the cursor as if its tokens had
    /// been read one by one.
    #[inline]
    pub fn skip_series(&mut self, key: &[u8]) {
        let last_token = if key.ends_with(b"}") {
            key.len() - 1
        } else {
            0
        };
        self.start = self.at + last_token;
        self.at += key.len();
    }

    /// Reads `word` after the current byte; returns false at the first byte that differs. The
    /// current byte counts as read.
    pub fn scan_word(&mut self, word: &[u8]) -> bool {
        word.iter().all(|wanted| self.step() == *wanted)
    }

    /// Reads from an opening quote to the byte after the closing one; returns false if the quote is
    /// not closed. Newlines are allowed if the string `spans_lines`, but never after a backslash.
    #[inline]
    pub fn scan_quoted(&mut self, spans_lines: bool) -> bool {
        let passes_nul = self.passes_nul;
        loop {
            let rest = self.text.get(self.at + 1..).unwrap_or_default();
            let is_plain = |c: &&u8| match c {
                b'"' | b'\\' => false,
                b'\n' => spans_lines,
                0 => passes_nul,
                _ => true,
            };
            self.at += rest.iter().take_while(is_plain).count();
            match self.step() {
                b'"' => {
                    self.step();
                    return true;
                }
                b'\\' if !matches!(self.step(), b'\n' | 0) => {}
                // The implied newline after the text.
                b'\n' if spans_lines => {}
                _ => return false,
            }
        }
    }

    /// Returns the bytes of `range`, cut at the end of the text including the implied newline.
    pub fn bytes(&self, range: Range<usize>) -> Cow<'t, [u8]> {
        let end = self.text.len();
        let inside = &self.text[range.start.min(end)..range.end.min(end)];
        if self.adds_newline && range.end > end && range.start <= end {
            [inside, b"\n"].concat().into()
        } else {
            inside.into()
        }
    }

    /// Returns whether the bytes of `range`, which must be inside the text, are UTF-8.
    #[inline]
    pub fn is_utf8(&self, range: Range<usize>) -> bool {
        let is_utf8 = |part: &[u8]| std::str::from_utf8(part).is_ok();
        *self.is_utf8.get_or_init(|| is_utf8(self.text))
            || self.text.get(range).is_some_and(is_utf8)
    }

    /// Returns the byte range of the current token. It becomes the excerpt in error texts.
    #[inline]
    pub fn span(&self) -> Range<usize> {
        self.start..self.at
    }
}

/// Class of characters that may begin a metric name.
pub(super) const METRIC_START: u8 = 1;
/// Class of characters that may occur in a metric name.
pub(super) const METRIC: u8 = 2;
/// Class of characters that may begin a label name.
pub(super) const LABEL_START: u8 = 4;
/// Class of characters that may occur in a label name.
pub(super) const LABEL: u8 = 8;
/// Class of digits.
pub(super) const DIGIT: u8 = 16;
/// Class of blanks: space and tab.
pub(super) const BLANK: u8 = 32;
/// Class of characters in a value of the Prometheus text format.
pub(super) const TEXT_VALUE: u8 = 64;
/// Class of characters in a value or timestamp of OpenMetrics.
pub(super) const WORD: u8 = 128;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut i = 0;
    while i < 256 {
        let c = i as u8;
        let letter = c.is_ascii_alphabetic() || c == b'_';
        let digit = c.is_ascii_digit();
        let word = !matches!(c, 0 | b' ' | b'\n');
        let mut class = 0;
        if letter {
            class |= LABEL_START | METRIC_START;
        }
        if letter || digit {
            class |= LABEL | METRIC;
        }
        if c == b':' {
            class |= METRIC | METRIC_START;
        }
        if digit {
            class |= DIGIT;
        }
        if matches!(c, b' ' | b'\t') {
            class |= BLANK;
        }
        if word {
            class |= WORD;
        }
        if word && !matches!(c, b'\t' | b'{') {
            class |= TEXT_VALUE;
        }
        classes[i] = class;
        i += 1;
    }
    classes
}

/// Returns whether `c` belongs to one of the classes in the bit set `class`.
#[inline]
pub(super) fn is_in_class(c: u8, class: u8) -> bool {
    CLASSES[c as usize] & class != 0
}
