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
    BLANK, DIGIT, ExpositionScanner, ExpositionToken, LABEL, LABEL_START, METRIC, METRIC_START,
    TEXT_VALUE, WORD, is_in_class,
};

/// The text format that a lexer reads, which decides about blanks, comments and exemplars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpositionSyntax {
    Prometheus,
    OpenMetrics,
}

/// The position within a line, which decides the tokens that may follow. The names are those of the
/// generated lexers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpositionLexerState {
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
pub(super) struct ExpositionLexer<'t> {
    scanner: ExpositionScanner<'t>,
    syntax: ExpositionSyntax,
    state: ExpositionLexerState,
}

impl<'t> ExpositionLexer<'t> {
    pub fn new(text: &'t [u8], syntax: ExpositionSyntax) -> Self {
        Self {
            scanner: ExpositionScanner::new(text, syntax == ExpositionSyntax::Prometheus),
            syntax,
            state: ExpositionLexerState::Init,
        }
    }

    /// Returns the cursor of the lexer, for the text and the span of the current token.
    pub fn scanner(&self) -> &ExpositionScanner<'t> {
        &self.scanner
    }

    /// Returns whether the lexer is at the start of a line.
    pub fn is_at_line(&self) -> bool {
        self.state == ExpositionLexerState::Init
    }

    /// Moves past the series `key`, which begins here and was parsed before.
    pub fn skip_series(&mut self, key: &[u8]) {
        self.scanner.skip_series(key);
        self.enter(ExpositionLexerState::Value);
    }

    /// Moves back to the start of the line at offset `line`.
    pub fn rewind_to_line(&mut self, line: usize) {
        self.scanner.at = line;
        self.enter(ExpositionLexerState::Init);
    }

    /// Reads and returns the next token. Invalid input gives [`ExpositionToken::Invalid`], which
    /// the parser turns into an error.
    #[inline]
    pub fn next(&mut self) -> ExpositionToken {
        if self.syntax == ExpositionSyntax::Prometheus
            && self.state != ExpositionLexerState::MetaText
        {
            self.skip_blanks();
        }
        if self.scanner.is_at_end() {
            return ExpositionToken::Eof;
        }
        self.scanner.start = self.scanner.at;
        let c = self.scanner.current_byte();
        match self.state {
            ExpositionLexerState::Init => self.lex_line_start(c),
            ExpositionLexerState::Comment => self.lex_comment_word(c),
            ExpositionLexerState::MetaName => self.lex_meta_name(c),
            ExpositionLexerState::MetaText => self.lex_meta_text(c),
            ExpositionLexerState::Labels => self.lex_label_part(c, LABELS),
            ExpositionLexerState::Exemplar => self.lex_label_part(c, EXEMPLAR),
            ExpositionLexerState::LabelValue => {
                self.lex_label_value(c, ExpositionLexerState::Labels)
            }
            ExpositionLexerState::ExemplarValue if c == b'"' => {
                self.lex_label_value(c, ExpositionLexerState::Exemplar)
            }
            ExpositionLexerState::Value => self.lex_value(c, ExpositionLexerState::Timestamp),
            ExpositionLexerState::ExemplarValue => {
                self.lex_value(c, ExpositionLexerState::ExemplarTimestamp)
            }
            ExpositionLexerState::Timestamp | ExpositionLexerState::ExemplarTimestamp => {
                self.lex_timestamp(c)
            }
        }
    }

    #[inline]
    fn enter(&mut self, state: ExpositionLexerState) {
        self.state = state;
        self.scanner.passes_nul = matches!(
            state,
            ExpositionLexerState::LabelValue
                | ExpositionLexerState::MetaText
                | ExpositionLexerState::Comment
        );
    }

    #[inline]
    fn skip_blanks(&mut self) {
        let mut c = self.scanner.current_byte();
        while is_in_class(c, BLANK) {
            c = self.scanner.step();
        }
    }

    fn lex_single(
        &mut self,
        token: ExpositionToken,
        state: ExpositionLexerState,
    ) -> ExpositionToken {
        self.scanner.step();
        self.enter(state);
        token
    }

    fn lex_line_start(&mut self, c: u8) -> ExpositionToken {
        match (c, self.syntax) {
            (b'#', _) => self.lex_hash(),
            (b'{', _) => self.lex_single(ExpositionToken::BraceOpen, ExpositionLexerState::Labels),
            (b'\n', ExpositionSyntax::Prometheus) => {
                self.lex_single(ExpositionToken::Linebreak, ExpositionLexerState::Init)
            }
            (0, ExpositionSyntax::Prometheus) => {
                self.lex_single(ExpositionToken::Eof, ExpositionLexerState::Init)
            }
            _ if is_in_class(c, METRIC_START) => {
                self.scanner.scan(METRIC);
                self.enter(ExpositionLexerState::Value);
                ExpositionToken::MetricName
            }
            _ => ExpositionToken::Invalid,
        }
    }

    fn lex_hash(&mut self) -> ExpositionToken {
        let next = self.scanner.step();
        match self.syntax {
            ExpositionSyntax::Prometheus if is_in_class(next, BLANK) => self.skip_blanks(),
            ExpositionSyntax::Prometheus => return self.lex_comment(),
            ExpositionSyntax::OpenMetrics if next == b' ' => drop(self.scanner.step()),
            ExpositionSyntax::OpenMetrics => return ExpositionToken::Invalid,
        }
        self.enter(ExpositionLexerState::Comment);
        self.lex_comment_word(self.scanner.current_byte())
    }

    /// Reads one of the keywords that may follow a hash. Any other word starts a comment, which
    /// OpenMetrics rejects.
    fn lex_comment_word(&mut self, c: u8) -> ExpositionToken {
        let (rest, token): (&[u8], _) = match (c, self.syntax) {
            (b'H', _) => (b"ELP", ExpositionToken::Help),
            (b'T', _) => (b"YPE", ExpositionToken::Type),
            (b'E', ExpositionSyntax::OpenMetrics) => (b"OF", ExpositionToken::EofWord),
            (b'U', ExpositionSyntax::OpenMetrics) => (b"NIT", ExpositionToken::Unit),
            _ => return self.lex_comment(),
        };
        if !self.scanner.scan_word(rest) {
            return self.lex_comment();
        }
        let next = self.scanner.step();
        match self.syntax {
            _ if token == ExpositionToken::EofWord => {
                if next == b'\n' {
                    self.scanner.step();
                }
                self.enter(ExpositionLexerState::Init);
                return token;
            }
            ExpositionSyntax::Prometheus if is_in_class(next, BLANK) => self.skip_blanks(),
            ExpositionSyntax::OpenMetrics if next == b' ' => drop(self.scanner.step()),
            _ => return self.lex_comment(),
        }
        self.enter(ExpositionLexerState::MetaName);
        token
    }

    /// Reads the rest of the line as a comment, which OpenMetrics does not allow.
    fn lex_comment(&mut self) -> ExpositionToken {
        if self.syntax == ExpositionSyntax::OpenMetrics {
            return ExpositionToken::Invalid;
        }
        let mut c = self.scanner.current_byte();
        loop {
            match c {
                0 => return ExpositionToken::Eof,
                b'\n' => {
                    self.enter(ExpositionLexerState::Init);
                    return ExpositionToken::Comment;
                }
                _ => c = self.scanner.step(),
            }
        }
    }

    fn lex_meta_name(&mut self, c: u8) -> ExpositionToken {
        match c {
            b'"' if self.scanner.scan_quoted(true) => {}
            c if is_in_class(c, METRIC_START) => self.scanner.scan(METRIC),
            _ => return ExpositionToken::Invalid,
        }
        self.enter(ExpositionLexerState::MetaText);
        ExpositionToken::MetricName
    }

    fn lex_meta_text(&mut self, first: u8) -> ExpositionToken {
        if self.syntax == ExpositionSyntax::OpenMetrics {
            return self.lex_meta_text_with_newline(first);
        }
        self.skip_blanks();
        let mut c = self.scanner.current_byte();
        // If only blanks follow, the text is empty and begins after them.
        if c == b'\n' {
            self.scanner.start = self.scanner.at;
        }
        while !matches!(c, b'\n' | 0) {
            c = self.scanner.step();
        }
        self.enter(ExpositionLexerState::Init);
        ExpositionToken::Text
    }

    fn lex_meta_text_with_newline(&mut self, first: u8) -> ExpositionToken {
        if first != b' ' {
            return ExpositionToken::Invalid;
        }
        loop {
            match self.scanner.step() {
                b'\n' => return self.lex_single(ExpositionToken::Text, ExpositionLexerState::Init),
                0 => return ExpositionToken::Invalid,
                _ => {}
            }
        }
    }

    /// Reads one token between the braces of a label set. The token after the braces depends on
    /// `of`.
    #[inline]
    fn lex_label_part(&mut self, c: u8, of: BraceLexing) -> ExpositionToken {
        match c {
            b'"' => {
                if self.scanner.scan_quoted(of.strings_span_lines) {
                    ExpositionToken::QuotedString
                } else {
                    ExpositionToken::Invalid
                }
            }
            b',' => self.lex_single(ExpositionToken::Comma, self.state),
            b'=' => self.lex_single(ExpositionToken::Equal, of.after_equal),
            b'}' => self.lex_single(ExpositionToken::BraceClose, of.after_close),
            c if is_in_class(c, LABEL_START) => {
                self.scanner.scan(LABEL);
                ExpositionToken::LabelName
            }
            _ => ExpositionToken::Invalid,
        }
    }

    #[inline]
    fn lex_label_value(&mut self, c: u8, after: ExpositionLexerState) -> ExpositionToken {
        let spans_lines = self.syntax == ExpositionSyntax::Prometheus;
        if c != b'"' || !self.scanner.scan_quoted(spans_lines) {
            return ExpositionToken::Invalid;
        }
        self.enter(after);
        ExpositionToken::LabelValue
    }

    /// Reads the token after a metric name, or after the labels of an exemplar.
    #[inline]
    fn lex_value(&mut self, c: u8, after: ExpositionLexerState) -> ExpositionToken {
        let class = match (c, self.syntax) {
            (b'{', _) if self.state == ExpositionLexerState::Value => {
                return self.lex_single(ExpositionToken::BraceOpen, ExpositionLexerState::Labels);
            }
            (_, ExpositionSyntax::Prometheus) if is_in_class(c, TEXT_VALUE) => TEXT_VALUE,
            (b' ', ExpositionSyntax::OpenMetrics) if is_in_class(self.scanner.step(), WORD) => WORD,
            _ => return ExpositionToken::Invalid,
        };
        self.scanner.scan(class);
        self.enter(after);
        ExpositionToken::Value
    }

    #[inline]
    fn lex_timestamp(&mut self, c: u8) -> ExpositionToken {
        match (c, self.syntax) {
            (b'\n', _) => self.lex_single(ExpositionToken::Linebreak, ExpositionLexerState::Init),
            (_, ExpositionSyntax::Prometheus) if is_in_class(c, DIGIT) => {
                self.scanner.scan(DIGIT);
                ExpositionToken::Timestamp
            }
            (b' ', ExpositionSyntax::OpenMetrics) => self.lex_timestamp_or_exemplar(),
            _ => ExpositionToken::Invalid,
        }
    }

    /// Reads a space and a word, or ` # {`, which begins an exemplar.
    fn lex_timestamp_or_exemplar(&mut self) -> ExpositionToken {
        match self.scanner.step() {
            b'#' if self.state == ExpositionLexerState::Timestamp => {
                let next = self.scanner.step();
                if next != b' ' {
                    if is_in_class(next, WORD) {
                        self.scanner.scan(WORD);
                    }
                    return ExpositionToken::Timestamp;
                }
                match self.scanner.step() {
                    b'{' => {
                        self.lex_single(ExpositionToken::Comment, ExpositionLexerState::Exemplar)
                    }
                    _ => ExpositionToken::Invalid,
                }
            }
            c if is_in_class(c, WORD) => {
                self.scanner.scan(WORD);
                ExpositionToken::Timestamp
            }
            _ => ExpositionToken::Invalid,
        }
    }
}

/// How to lex a pair of braces. Quoted strings may span lines in the labels of a series, but not in
/// those of an exemplar.
#[derive(Clone, Copy)]
struct BraceLexing {
    strings_span_lines: bool,
    after_equal: ExpositionLexerState,
    after_close: ExpositionLexerState,
}

const LABELS: BraceLexing = BraceLexing {
    strings_span_lines: true,
    after_equal: ExpositionLexerState::LabelValue,
    after_close: ExpositionLexerState::Value,
};

const EXEMPLAR: BraceLexing = BraceLexing {
    strings_span_lines: false,
    after_equal: ExpositionLexerState::ExemplarValue,
    after_close: ExpositionLexerState::ExemplarValue,
};
