//! The lexer of OpenMetrics.
//!
//! Blanks are single spaces and belong to the token behind them. A NUL is passed over in label
//! values, help texts and comments, as upstream's generated lexer has it.

use super::super::lex::{LABEL, LABEL_START, Lex, METRIC, METRIC_START, Scanner, Token, WORD, is};

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
    Exemplar,
    ExemplarValue,
    ExemplarTimestamp,
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
            scanner: Scanner::new(text, false),
            state: State::Init,
        }
    }

    /// Whether a line begins here.
    pub fn is_at_line(&self) -> bool {
        self.state == State::Init
    }

    /// Goes on behind a series that begins here and was read once before.
    pub fn pass_series(&mut self, key: &[u8]) {
        self.scanner.pass_series(key);
        self.enter(State::Value);
    }

    #[inline]
    fn enter(&mut self, state: State) {
        self.state = state;
        self.scanner.passes_nul =
            matches!(state, State::LabelValue | State::MetaText | State::Comment);
    }

    fn single(&mut self, token: Token, state: State) -> Token {
        self.scanner.step();
        self.enter(state);
        token
    }

    fn line_start(&mut self, c: u8) -> Token {
        match c {
            b'#' if self.scanner.step() == b' ' => {
                self.scanner.step();
                self.enter(State::Comment);
                self.comment_word(self.scanner.byte())
            }
            b'{' => self.single(Token::BraceOpen, State::Labels),
            c if is(c, METRIC_START) => {
                self.scanner.scan(METRIC);
                self.enter(State::Value);
                Token::MetricName
            }
            _ => Token::Invalid,
        }
    }

    /// One of the four words that may follow a hash; there are no other comments.
    fn comment_word(&mut self, c: u8) -> Token {
        let (rest, token): (&[u8], _) = match c {
            b'E' => (b"OF", Token::EofWord),
            b'H' => (b"ELP ", Token::Help),
            b'T' => (b"YPE ", Token::Type),
            b'U' => (b"NIT ", Token::Unit),
            _ => return Token::Invalid,
        };
        if !self.scanner.word(rest) {
            return Token::Invalid;
        }
        let next = self.scanner.step();
        if token == Token::EofWord {
            if next == b'\n' {
                self.scanner.step();
            }
            self.enter(State::Init);
        } else {
            self.enter(State::MetaName);
        }
        token
    }

    fn meta_name(&mut self, c: u8) -> Token {
        match c {
            b'"' if self.scanner.quoted(true) => {}
            c if is(c, METRIC_START) => self.scanner.scan(METRIC),
            _ => return Token::Invalid,
        }
        self.enter(State::MetaText);
        Token::MetricName
    }

    fn meta_text(&mut self, c: u8) -> Token {
        if c != b' ' {
            return Token::Invalid;
        }
        loop {
            match self.scanner.step() {
                b'\n' => return self.single(Token::Text, State::Init),
                0 => return Token::Invalid,
                _ => {}
            }
        }
    }

    /// A part of what stands in braces; a quoted string of labels may span lines, that of an
    /// exemplar may not.
    #[inline]
    fn label_part(&mut self, c: u8, of: Braces) -> Token {
        match c {
            b'"' => match self.scanner.quoted(of.strings_span_lines) {
                true => Token::QuotedString,
                false => Token::Invalid,
            },
            b',' => self.single(Token::Comma, self.state),
            b'=' => self.single(Token::Equal, of.after_equal),
            b'}' => self.single(Token::BraceClose, of.after_close),
            c if is(c, LABEL_START) => {
                self.scanner.scan(LABEL);
                Token::LabelName
            }
            _ => Token::Invalid,
        }
    }

    #[inline]
    fn label_value(&mut self, after: State) -> Token {
        if !self.scanner.quoted(false) {
            return Token::Invalid;
        }
        self.enter(after);
        Token::LabelValue
    }

    /// A space and a word.
    #[inline]
    fn value(&mut self, after: State) -> Token {
        if !is(self.scanner.step(), WORD) {
            return Token::Invalid;
        }
        self.scanner.scan(WORD);
        self.enter(after);
        Token::Value
    }

    /// A space and a word, or ` # {`, which begins an exemplar.
    fn timestamp(&mut self) -> Token {
        match self.scanner.step() {
            b'#' if self.state == State::Timestamp => {
                let next = self.scanner.step();
                if next != b' ' {
                    if is(next, WORD) {
                        self.scanner.scan(WORD);
                    }
                    return Token::Timestamp;
                }
                match self.scanner.step() {
                    b'{' => self.single(Token::Comment, State::Exemplar),
                    _ => Token::Invalid,
                }
            }
            c if is(c, WORD) => {
                self.scanner.scan(WORD);
                Token::Timestamp
            }
            _ => Token::Invalid,
        }
    }
}

/// How a pair of braces is read.
#[derive(Clone, Copy)]
struct Braces {
    strings_span_lines: bool,
    after_equal: State,
    after_close: State,
}

const LABELS: Braces = Braces {
    strings_span_lines: true,
    after_equal: State::LabelValue,
    after_close: State::Value,
};

const EXEMPLAR: Braces = Braces {
    strings_span_lines: false,
    after_equal: State::ExemplarValue,
    after_close: State::ExemplarValue,
};

impl<'t> Lex<'t> for Lexer<'t> {
    #[inline]
    fn next(&mut self) -> Token {
        if self.scanner.is_at_end() {
            return Token::Eof;
        }
        self.scanner.start = self.scanner.at;
        let c = self.scanner.byte();
        match (self.state, c) {
            (State::Init, c) => self.line_start(c),
            (State::Comment, c) => self.comment_word(c),
            (State::MetaName, c) => self.meta_name(c),
            (State::MetaText, c) => self.meta_text(c),
            (State::Labels, c) => self.label_part(c, LABELS),
            (State::Exemplar, c) => self.label_part(c, EXEMPLAR),
            (State::LabelValue, b'"') => self.label_value(State::Labels),
            (State::ExemplarValue, b'"') => self.label_value(State::Exemplar),
            (State::Value, b' ') => self.value(State::Timestamp),
            (State::ExemplarValue, b' ') => self.value(State::ExemplarTimestamp),
            (State::Value, b'{') => self.single(Token::BraceOpen, State::Labels),
            (State::Timestamp | State::ExemplarTimestamp, b'\n') => {
                self.single(Token::Linebreak, State::Init)
            }
            (State::Timestamp | State::ExemplarTimestamp, b' ') => self.timestamp(),
            _ => Token::Invalid,
        }
    }

    fn scanner(&self) -> &Scanner<'t> {
        &self.scanner
    }
}
