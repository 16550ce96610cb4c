//! The lexer of the two text formats.
//!
//! ```text
//!                 Prometheus text format            OpenMetrics
//! blanks          any number between tokens         one space, part of the token after it
//! after a hash    HELP, TYPE, else a comment        HELP, TYPE, UNIT, EOF
//! last line       newline stored or implied         must be # EOF
//! exemplars       none                              after a value or a timestamp
//! ```
//!
//! In both formats NUL bytes are skipped in label values, help texts and comments. At the start of
//! a line, a NUL byte ends the whole text in the Prometheus format, as in upstream's generated
//! lexers.

use super::lex::{
    BLANK, DIGIT, LABEL, LABEL_START, METRIC, METRIC_START, Scanner, TEXT_VALUE, Token, WORD, is,
};

/// The text format that a lexer reads, which decides about blanks, comments and exemplars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    Prometheus,
    OpenMetrics,
}

/// The position within a line, which decides the tokens that may follow. The names are those of the
/// generated lexers.
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

/// Splits a text into tokens. The parser takes one at a time and may skip a series that it expects.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'t> {
    scanner: Scanner<'t>,
    syntax: Syntax,
    state: State,
}

impl<'t> Lexer<'t> {
    pub fn new(text: &'t [u8], syntax: Syntax) -> Self {
        Self {
            scanner: Scanner::new(text, syntax == Syntax::Prometheus),
            syntax,
            state: State::Init,
        }
    }

    /// Returns the cursor of the lexer, for the text and the span of the current token.
    pub fn scanner(&self) -> &Scanner<'t> {
        &self.scanner
    }

    /// Returns whether the lexer is at the start of a line.
    pub fn is_at_line(&self) -> bool {
        self.state == State::Init
    }

    /// Moves past the series `key`, which begins here and was parsed before.
    pub fn pass_series(&mut self, key: &[u8]) {
        self.scanner.pass_series(key);
        self.enter(State::Value);
    }

    /// Moves back to the start of the line at offset `line`.
    pub fn return_to(&mut self, line: usize) {
        self.scanner.at = line;
        self.enter(State::Init);
    }

    /// Reads and returns the next token. Invalid input gives [`Token::Invalid`], which the parser
    /// turns into an error.
    #[inline]
    pub fn next(&mut self) -> Token {
        if self.syntax == Syntax::Prometheus && self.state != State::MetaText {
            self.pass_blanks();
        }
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
            State::Labels => self.label_part(c, LABELS),
            State::Exemplar => self.label_part(c, EXEMPLAR),
            State::LabelValue => self.label_value(c, State::Labels),
            State::ExemplarValue if c == b'"' => self.label_value(c, State::Exemplar),
            State::Value => self.value(c, State::Timestamp),
            State::ExemplarValue => self.value(c, State::ExemplarTimestamp),
            State::Timestamp | State::ExemplarTimestamp => self.timestamp(c),
        }
    }

    #[inline]
    fn enter(&mut self, state: State) {
        self.state = state;
        self.scanner.passes_nul =
            matches!(state, State::LabelValue | State::MetaText | State::Comment);
    }

    #[inline]
    fn pass_blanks(&mut self) {
        let mut c = self.scanner.byte();
        while is(c, BLANK) {
            c = self.scanner.step();
        }
    }

    fn single(&mut self, token: Token, state: State) -> Token {
        self.scanner.step();
        self.enter(state);
        token
    }

    fn line_start(&mut self, c: u8) -> Token {
        match (c, self.syntax) {
            (b'#', _) => self.hash(),
            (b'{', _) => self.single(Token::BraceOpen, State::Labels),
            (b'\n', Syntax::Prometheus) => self.single(Token::Linebreak, State::Init),
            (0, Syntax::Prometheus) => self.single(Token::Eof, State::Init),
            _ if is(c, METRIC_START) => {
                self.scanner.scan(METRIC);
                self.enter(State::Value);
                Token::MetricName
            }
            _ => Token::Invalid,
        }
    }

    fn hash(&mut self) -> Token {
        let next = self.scanner.step();
        match self.syntax {
            Syntax::Prometheus if is(next, BLANK) => self.pass_blanks(),
            Syntax::Prometheus => return self.comment(),
            Syntax::OpenMetrics if next == b' ' => drop(self.scanner.step()),
            Syntax::OpenMetrics => return Token::Invalid,
        }
        self.enter(State::Comment);
        self.comment_word(self.scanner.byte())
    }

    /// Reads one of the keywords that may follow a hash. Any other word starts a comment, which
    /// OpenMetrics rejects.
    fn comment_word(&mut self, c: u8) -> Token {
        let (rest, token): (&[u8], _) = match (c, self.syntax) {
            (b'H', _) => (b"ELP", Token::Help),
            (b'T', _) => (b"YPE", Token::Type),
            (b'E', Syntax::OpenMetrics) => (b"OF", Token::EofWord),
            (b'U', Syntax::OpenMetrics) => (b"NIT", Token::Unit),
            _ => return self.comment(),
        };
        if !self.scanner.word(rest) {
            return self.comment();
        }
        let next = self.scanner.step();
        match self.syntax {
            _ if token == Token::EofWord => {
                if next == b'\n' {
                    self.scanner.step();
                }
                self.enter(State::Init);
                return token;
            }
            Syntax::Prometheus if is(next, BLANK) => self.pass_blanks(),
            Syntax::OpenMetrics if next == b' ' => drop(self.scanner.step()),
            _ => return self.comment(),
        }
        self.enter(State::MetaName);
        token
    }

    /// Reads the rest of the line as a comment, which OpenMetrics does not allow.
    fn comment(&mut self) -> Token {
        if self.syntax == Syntax::OpenMetrics {
            return Token::Invalid;
        }
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
            b'"' if self.scanner.quoted(true) => {}
            c if is(c, METRIC_START) => self.scanner.scan(METRIC),
            _ => return Token::Invalid,
        }
        self.enter(State::MetaText);
        Token::MetricName
    }

    fn meta_text(&mut self, first: u8) -> Token {
        if self.syntax == Syntax::OpenMetrics {
            return self.meta_text_with_newline(first);
        }
        self.pass_blanks();
        let mut c = self.scanner.byte();
        // If only blanks follow, the text is empty and begins after them.
        if c == b'\n' {
            self.scanner.start = self.scanner.at;
        }
        while !matches!(c, b'\n' | 0) {
            c = self.scanner.step();
        }
        self.enter(State::Init);
        Token::Text
    }

    fn meta_text_with_newline(&mut self, first: u8) -> Token {
        if first != b' ' {
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

    /// Reads one token between the braces of a label set. The token after the braces depends on
    /// `of`.
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
    fn label_value(&mut self, c: u8, after: State) -> Token {
        let spans_lines = self.syntax == Syntax::Prometheus;
        if c != b'"' || !self.scanner.quoted(spans_lines) {
            return Token::Invalid;
        }
        self.enter(after);
        Token::LabelValue
    }

    /// Reads the token after a metric name, or after the labels of an exemplar.
    #[inline]
    fn value(&mut self, c: u8, after: State) -> Token {
        let class = match (c, self.syntax) {
            (b'{', _) if self.state == State::Value => {
                return self.single(Token::BraceOpen, State::Labels);
            }
            (_, Syntax::Prometheus) if is(c, TEXT_VALUE) => TEXT_VALUE,
            (b' ', Syntax::OpenMetrics) if is(self.scanner.step(), WORD) => WORD,
            _ => return Token::Invalid,
        };
        self.scanner.scan(class);
        self.enter(after);
        Token::Value
    }

    #[inline]
    fn timestamp(&mut self, c: u8) -> Token {
        match (c, self.syntax) {
            (b'\n', _) => self.single(Token::Linebreak, State::Init),
            (_, Syntax::Prometheus) if is(c, DIGIT) => {
                self.scanner.scan(DIGIT);
                Token::Timestamp
            }
            (b' ', Syntax::OpenMetrics) => self.timestamp_or_exemplar(),
            _ => Token::Invalid,
        }
    }

    /// Reads a space and a word, or ` # {`, which begins an exemplar.
    fn timestamp_or_exemplar(&mut self) -> Token {
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

/// How to lex a pair of braces. Quoted strings may span lines in the labels of a series, but not in
/// those of an exemplar.
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
