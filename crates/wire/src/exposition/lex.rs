//! What the lexer of the text formats is made of: tokens, classes of characters, quoted strings.
//!
//! The lexer follows upstream's generated ones (`model/textparse/promlex.l`, `openmetricslex.l`)
//! to the character at which they stop, because error messages show it.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::Range;

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
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

impl Token {
    /// The token's name in error messages.
    pub fn name(self) -> &'static str {
        match self {
            Token::Invalid => "INVALID",
            Token::Eof => "EOF",
            Token::Linebreak => "LINEBREAK",
            Token::Help => "HELP",
            Token::Type => "TYPE",
            Token::Unit => "UNIT",
            Token::EofWord => "EOFWORD",
            Token::Text => "TEXT",
            Token::Comment => "COMMENT",
            Token::MetricName => "MNAME",
            Token::QuotedString => "QSTRING",
            Token::BraceOpen => "BOPEN",
            Token::BraceClose => "BCLOSE",
            Token::LabelName => "LNAME",
            Token::LabelValue => "LVALUE",
            Token::Comma => "COMMA",
            Token::Equal => "EQUAL",
            Token::Timestamp => "TIMESTAMP",
            Token::Value => "VALUE",
        }
    }
}

/// Walks over a text as the generated lexers do.
#[derive(Clone, Debug)]
pub(super) struct Scanner<'t> {
    text: &'t [u8],
    /// Where the current token begins.
    pub start: usize,
    /// How far has been read.
    pub at: usize,
    /// Whether a newline follows the text without being stored.
    adds_newline: bool,
    /// Whether NULs are passed over at the moment.
    pub passes_nul: bool,
    /// Whether all of the text is UTF-8, once that was asked.
    is_utf8: OnceCell<bool>,
}

impl<'t> Scanner<'t> {
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

    /// What lies from `at` on.
    pub fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Whether all has been read.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.at >= self.text.len() + usize::from(self.adds_newline)
    }

    /// The byte here; behind the end it is NUL.
    #[inline]
    pub fn byte(&self) -> u8 {
        match self.text.get(self.at) {
            Some(byte) => *byte,
            None if self.adds_newline && self.at == self.text.len() => b'\n',
            None => 0,
        }
    }

    /// Goes on by a byte, and by the NULs behind it if they are passed over.
    #[inline]
    pub fn step(&mut self) -> u8 {
        self.at += 1;
        if self.passes_nul {
            while self.text.get(self.at) == Some(&0) {
                self.at += 1;
            }
        }
        self.byte()
    }

    /// Passes over the byte here and what follows of the class.
    #[inline]
    pub fn scan(&mut self, class: u8) {
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        self.at += 1 + rest.iter().take_while(|c| is(**c, class)).count();
    }

    /// Goes on behind a series that begins here, as if its tokens had been read one by one.
    #[inline]
    pub fn pass_series(&mut self, key: &[u8]) {
        let last_token = if key.ends_with(b"}") {
            key.len() - 1
        } else {
            0
        };
        self.start = self.at + last_token;
        self.at += key.len();
    }

    /// Reads `word` and what comes behind it; false at the first byte that differs. The byte here
    /// counts as read.
    pub fn word(&mut self, word: &[u8]) -> bool {
        word.iter().all(|wanted| self.step() == *wanted)
    }

    /// Reads from an opening quote to behind the closing one; false if there is none. Newlines may
    /// stand in between if the text `spans_lines`, but never behind a backslash.
    #[inline]
    pub fn quoted(&mut self, spans_lines: bool) -> bool {
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
                // The newline behind the text.
                b'\n' if spans_lines => {}
                _ => return false,
            }
        }
    }

    /// A part of what is read; what lies beyond its end is left out.
    pub fn bytes(&self, range: Range<usize>) -> Cow<'t, [u8]> {
        let end = self.text.len();
        let inside = &self.text[range.start.min(end)..range.end.min(end)];
        match self.adds_newline && range.end > end && range.start <= end {
            true => [inside, b"\n"].concat().into(),
            false => inside.into(),
        }
    }

    /// Whether this part, which lies inside the text, is UTF-8.
    #[inline]
    pub fn is_utf8(&self, range: Range<usize>) -> bool {
        let is_utf8 = |part: &[u8]| std::str::from_utf8(part).is_ok();
        *self.is_utf8.get_or_init(|| is_utf8(self.text))
            || self.text.get(range).is_some_and(is_utf8)
    }

    /// Where the current token lies.
    #[inline]
    pub fn span(&self) -> Range<usize> {
        self.start..self.at
    }
}

/// Characters that may begin the name of a metric.
pub(super) const METRIC_START: u8 = 1;
/// Characters that may stand in the name of a metric.
pub(super) const METRIC: u8 = 2;
/// Characters that may begin the name of a label.
pub(super) const LABEL_START: u8 = 4;
/// Characters that may stand in the name of a label.
pub(super) const LABEL: u8 = 8;
/// Digits.
pub(super) const DIGIT: u8 = 16;
/// Space and tab.
pub(super) const BLANK: u8 = 32;
/// What a value of the Prometheus text format is made of.
pub(super) const TEXT_VALUE: u8 = 64;
/// What a value or a time of OpenMetrics is made of.
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

/// Whether `c` is of one of the classes.
#[inline]
pub(super) fn is(c: u8, class: u8) -> bool {
    CLASSES[c as usize] & class != 0
}
