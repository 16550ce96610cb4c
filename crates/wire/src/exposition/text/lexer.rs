//! The lexer of the Prometheus text format.
//!
//! Upstream appends a newline to what it reads; here one is there without being stored. A NUL is
//! passed over in label values, help texts and comments, and ends everything at the start of a
//! line, as upstream's generated lexer has it.

use super::super::lex::{
    BLANK, DIGIT, LABEL, LABEL_START, Lex, METRIC, METRIC_START, Scanner, TEXT_VALUE, Token, is,
};

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
    scanner: Scanner<'t>,
    state: State,
}

impl<'t> Lexer<'t> {
    pub fn new(text: &'t [u8]) -> Self {
        Self {
            scanner: Scanner::new(text, true),
            state: State::Init,
        }
    }

    /// Goes on behind a series that begins here and was read once before.
    pub fn pass_series(&mut self, key: &[u8]) {
        self.scanner.pass_series(key);
        self.enter(State::Value);
    }

    /// Goes back to the start of a line.
    pub fn return_to(&mut self, line: usize) {
        self.scanner.at = line;
        self.enter(State::Init);
    }

    #[inline]
    fn enter(&mut self, state: State) {
        self.state = state;
        self.scanner.passes_nul =
            matches!(state, State::LabelValue | State::MetaText | State::Comment);
    }

    #[inline]
    fn token(&mut self) -> Token {
        if self.scanner.is_at_end() {
            return Token::Eof;
        }
        self.scanner.start = self.scanner.at;
        let c = self.scanner.byte();
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
        while is(self.scanner.step(), BLANK) {}
        Token::Whitespace
    }

    fn single(&mut self, token: Token, state: State) -> Token {
        self.scanner.step();
        self.enter(state);
        token
    }

    fn line_start(&mut self, c: u8) -> Token {
        match c {
            b'#' => match is(self.scanner.step(), BLANK) {
                true => {
                    self.blanks();
                    self.enter(State::Comment);
                    self.comment_word(self.scanner.byte())
                }
                false => self.comment(),
            },
            b'\n' => self.single(Token::Linebreak, State::Init),
            b'{' => self.single(Token::BraceOpen, State::Labels),
            0 => self.single(Token::Eof, State::Init),
            c if is(c, BLANK) => self.blanks(),
            c if is(c, METRIC_START) => {
                self.scanner.scan(METRIC);
                self.enter(State::Value);
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
        if !self.scanner.word(rest) || !is(self.scanner.step(), BLANK) {
            return self.comment();
        }
        self.blanks();
        self.enter(State::MetaName);
        token
    }

    /// The rest of the line.
    fn comment(&mut self) -> Token {
        let mut c = self.scanner.byte();
        loop {
            match c {
                0 => return Token::Eof,
                b'\n' => {
                    self.enter(State::Init);
                    return Token::Comment;
                }
                _ => c = self.scanner.step(),
            }
        }
    }

    fn meta_name(&mut self, c: u8) -> Token {
        match c {
            b'"' if !self.scanner.quoted(true) => return Token::Invalid,
            b'"' => {}
            c if is(c, BLANK) => return self.blanks(),
            c if is(c, METRIC_START) => self.scanner.scan(METRIC),
            _ => return Token::Invalid,
        }
        self.enter(State::MetaText);
        Token::MetricName
    }

    fn meta_text(&mut self, first: u8) -> Token {
        let mut c = first;
        while is(c, BLANK) {
            c = self.scanner.step();
        }
        if is(first, BLANK) && matches!(c, b'\n' | 0) {
            return Token::Whitespace;
        }
        while !matches!(c, b'\n' | 0) {
            c = self.scanner.step();
        }
        self.enter(State::Init);
        Token::Text
    }

    #[inline]
    fn label_part(&mut self, c: u8) -> Token {
        match c {
            b'"' => match self.scanner.quoted(true) {
                true => Token::QuotedString,
                false => Token::Invalid,
            },
            b',' => self.single(Token::Comma, State::Labels),
            b'=' => self.single(Token::Equal, State::LabelValue),
            b'}' => self.single(Token::BraceClose, State::Value),
            c if is(c, BLANK) => self.blanks(),
            c if is(c, LABEL_START) => {
                self.scanner.scan(LABEL);
                Token::LabelName
            }
            _ => Token::Invalid,
        }
    }

    #[inline]
    fn label_value(&mut self, c: u8) -> Token {
        match c {
            b'"' if self.scanner.quoted(true) => {
                self.enter(State::Labels);
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
                self.scanner.scan(TEXT_VALUE);
                self.enter(State::Timestamp);
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
                self.scanner.scan(DIGIT);
                Token::Timestamp
            }
            _ => Token::Invalid,
        }
    }
}

impl<'t> Lex<'t> for Lexer<'t> {
    #[inline]
    fn next(&mut self) -> Token {
        loop {
            let token = self.token();
            if token != Token::Whitespace {
                return token;
            }
        }
    }

    fn scanner(&self) -> &Scanner<'t> {
        &self.scanner
    }
}
