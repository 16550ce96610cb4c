//! What the lexers of the two text formats share: tokens, classes of characters, quoted strings.
//!
//! Both lexers follow upstream's generated ones (`model/textparse/promlex.l`, `openmetricslex.l`)
//! to the character at which they stop, because error messages show it.

use std::borrow::Cow;
use std::ops::Range;

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Invalid,
    Eof,
    Linebreak,
    Whitespace,
    Help,
    Type,
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
            Token::Whitespace => "WHITESPACE",
            Token::Help => "HELP",
            Token::Type => "TYPE",
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

/// A lexer as the code that both formats share sees it.
pub(super) trait Lex {
    /// The next token that means something.
    fn next(&mut self) -> Token;

    /// Where the current token begins, and how far the lexer has read.
    fn span(&self) -> Range<usize>;

    /// A part of what is read; what lies beyond its end is left out.
    fn bytes(&self, range: Range<usize>) -> Cow<'_, [u8]>;

    /// Whether this part, which lies inside the exposition, is UTF-8.
    fn is_utf8(&mut self, range: Range<usize>) -> bool;
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

/// The first place from `at` on whose character is not of the class, or the end.
#[inline]
pub(super) fn end_of(text: &[u8], at: usize, class: u8) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    match rest.iter().position(|c| !is(*c, class)) {
        Some(length) => at + length,
        None => text.len(),
    }
}
