//! The lexer of the Prometheus text format.
//!
//! Upstream appends a newline to what it reads; here one is there without being stored. A NUL is
//! passed over in label values, help texts and comments, and ends everything at the start of a
//! line, as upstream's generated lexer has it.

use super::super::lex::{
    BLANK, DIGIT, LABEL, LABEL_START, Lex, METRIC, METRIC_START, TEXT_VALUE, Token, end_of, is,
};
use std::borrow::Cow;
use std::ops::Range;

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Init,
    Comment,
    MetaName,
    MetaText,
    Labels,
    LabelValue,
    Value,
    Timestamp,
}

/// Splits a text into tokens.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'t> {
    text: &'t [u8],
    start: usize,
    at: usize,
    state: State,
    /// Whether all of the text is UTF-8, once that was asked.
    is_utf8: Option<bool>,
}

impl<'t> Lexer<'t> {
    pub fn new(text: &'t [u8]) -> Self {
        Self {
            text,
            start: 0,
            at: 0,
            state: State::Init,
            is_utf8: None,
        }
    }

    pub fn text(&self) -> &'t [u8] {
        self.text
    }

    /// How far has been read.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Goes on behind a series that begins here and was read once before.
    pub fn pass_series(&mut self, length: usize) {
        self.start = self.at;
        self.at += length;
        self.state = State::Value;
    }

    /// Goes back to the start of a line.
    pub fn return_to(&mut self, line: usize) {
        self.at = line;
        self.state = State::Init;
    }

    /// The byte at `at`; a newline follows the text, and NULs follow that.
    #[inline]
    fn byte(&self, at: usize) -> u8 {
        match self.text.get(at) {
            Some(byte) => *byte,
            None if at == self.text.len() => b'\n',
            None => 0,
        }
    }

    fn end(&self) -> usize {
        self.text.len() + 1
    }

    /// Goes on by a byte, and by the NULs behind it where they do not count.
    #[inline]
    fn step(&mut self) -> u8 {
        self.at += 1;
        if self.passes_nul() {
            while self.text.get(self.at) == Some(&0) {
                self.at += 1;
            }
        }
        self.byte(self.at)
    }

    #[inline]
    fn passes_nul(&self) -> bool {
        matches!(
            self.state,
            State::LabelValue | State::MetaText | State::Comment
        )
    }

    /// Passes over the byte here and what follows of the class.
    #[inline]
    fn scan(&mut self, class: u8) {
        self.at = end_of(self.text, self.at + 1, class);
    }

    #[inline]
    fn token(&mut self) -> Token {
        if self.at >= self.end() {
            return Token::Eof;
        }
        self.start = self.at;
        let c = self.byte(self.at);
        match self.state {
            State::Init => self.line_start(c),
            State::Comment => self.comment_word(c),
            State::MetaName => self.meta_name(c),
            State::MetaText => self.meta_text(c),
            State::Labels => self.label_part(c),
            State::LabelValue => self.label_value(c),
            State::Value => self.value(c),
            State::Timestamp => self.timestamp(c),
        }
    }

    fn blanks(&mut self) -> Token {
        while is(self.step(), BLANK) {}
        Token::Whitespace
    }

    fn single(&mut self, token: Token, state: State) -> Token {
        self.step();
        self.state = state;
        token
    }

    fn line_start(&mut self, c: u8) -> Token {
        match c {
            b'#' => match is(self.step(), BLANK) {
                true => {
                    self.blanks();
                    self.state = State::Comment;
                    self.comment_word(self.byte(self.at))
                }
                false => self.comment(),
            },
            b'\n' => self.single(Token::Linebreak, State::Init),
            b'{' => self.single(Token::BraceOpen, State::Labels),
            0 => self.single(Token::Eof, State::Init),
            c if is(c, BLANK) => self.blanks(),
            c if is(c, METRIC_START) => {
                self.scan(METRIC);
                self.state = State::Value;
                Token::MetricName
            }
            _ => Token::Invalid,
        }
    }

    /// `HELP`, `TYPE`, or any other word, which makes it a comment.
    fn comment_word(&mut self, c: u8) -> Token {
        let (rest, token): (&[u8], _) = match c {
            b'H' => (b"ELP", Token::Help),
            b'T' => (b"YPE", Token::Type),
            c if is(c, BLANK) => return self.blanks(),
            _ => return self.comment(),
        };
        for wanted in rest {
            if self.step() != *wanted {
                return self.comment();
            }
        }
        if !is(self.step(), BLANK) {
            return self.comment();
        }
        self.blanks();
        self.state = State::MetaName;
        token
    }

    /// The rest of the line.
    fn comment(&mut self) -> Token {
        let mut c = self.byte(self.at);
        loop {
            match c {
                0 => return Token::Eof,
                b'\n' => {
                    self.state = State::Init;
                    return Token::Comment;
                }
                _ => c = self.step(),
            }
        }
    }

    fn meta_name(&mut self, c: u8) -> Token {
        match c {
            b'"' if !self.quoted() => return Token::Invalid,
            b'"' => {}
            c if is(c, BLANK) => return self.blanks(),
            c if is(c, METRIC_START) => self.scan(METRIC),
            _ => return Token::Invalid,
        }
        self.state = State::MetaText;
        Token::MetricName
    }

    fn meta_text(&mut self, first: u8) -> Token {
        let mut c = first;
        while is(c, BLANK) {
            c = self.step();
        }
        if is(first, BLANK) && matches!(c, b'\n' | 0) {
            return Token::Whitespace;
        }
        while !matches!(c, b'\n' | 0) {
            c = self.step();
        }
        self.state = State::Init;
        Token::Text
    }

    #[inline]
    fn label_part(&mut self, c: u8) -> Token {
        match c {
            b'"' => match self.quoted() {
                true => Token::QuotedString,
                false => Token::Invalid,
            },
            b',' => self.single(Token::Comma, State::Labels),
            b'=' => self.single(Token::Equal, State::LabelValue),
            b'}' => self.single(Token::BraceClose, State::Value),
            c if is(c, BLANK) => self.blanks(),
            c if is(c, LABEL_START) => {
                self.scan(LABEL);
                Token::LabelName
            }
            _ => Token::Invalid,
        }
    }

    #[inline]
    fn label_value(&mut self, c: u8) -> Token {
        match c {
            b'"' if self.quoted() => {
                self.state = State::Labels;
                Token::LabelValue
            }
            c if is(c, BLANK) => self.blanks(),
            _ => Token::Invalid,
        }
    }

    #[inline]
    fn value(&mut self, c: u8) -> Token {
        match c {
            b'{' => self.single(Token::BraceOpen, State::Labels),
            c if is(c, BLANK) => self.blanks(),
            c if is(c, TEXT_VALUE) => {
                self.scan(TEXT_VALUE);
                self.state = State::Timestamp;
                Token::Value
            }
            _ => Token::Invalid,
        }
    }

    #[inline]
    fn timestamp(&mut self, c: u8) -> Token {
        match c {
            b'\n' => self.single(Token::Linebreak, State::Init),
            c if is(c, BLANK) => self.blanks(),
            c if is(c, DIGIT) => {
                self.scan(DIGIT);
                Token::Timestamp
            }
            _ => Token::Invalid,
        }
    }

    /// Reads from an opening quote to behind the closing one; false if there is none. Newlines may
    /// stand in between, but not behind a backslash.
    #[inline]
    fn quoted(&mut self) -> bool {
        let passes_nul = self.passes_nul();
        loop {
            let rest = self.text.get(self.at + 1..).unwrap_or_default();
            let is_plain = |c: &u8| !matches!(c, b'"' | b'\\') && (*c != 0 || passes_nul);
            self.at += rest.iter().take_while(|c| is_plain(c)).count();
            match self.step() {
                b'"' => {
                    self.step();
                    return true;
                }
                b'\\' if !matches!(self.step(), b'\n' | 0) => {}
                // The newline behind the text.
                b'\n' => {}
                _ => return false,
            }
        }
    }
}

impl Lex for Lexer<'_> {
    #[inline]
    fn next(&mut self) -> Token {
        loop {
            let token = self.token();
            if token != Token::Whitespace {
                return token;
            }
        }
    }

    fn span(&self) -> Range<usize> {
        self.start..self.at
    }

    fn bytes(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        let end = self.text.len();
        let inside = &self.text[range.start.min(end)..range.end.min(end)];
        match range.end > end && range.start <= end {
            true => [inside, b"\n"].concat().into(),
            false => inside.into(),
        }
    }

    fn is_utf8(&mut self, range: Range<usize>) -> bool {
        let text = self.text;
        let is_utf8 = *self
            .is_utf8
            .get_or_insert_with(|| std::str::from_utf8(text).is_ok());
        is_utf8
            || text
                .get(range)
                .is_some_and(|part| std::str::from_utf8(part).is_ok())
    }
}
