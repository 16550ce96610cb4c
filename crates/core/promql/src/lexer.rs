//! Splits a query text into tokens. The rules depend on the context: between braces every word is
//! an identifier; between brackets only durations and their arithmetic are allowed; elsewhere
//! keywords are recognized.
//!
//! Invariant: tokens cover the text in order without overlapping. Every call either advances
//! towards the end of the text or returns [`PromqlTokenKind::Eof`] or an error. The set of rejected
//! texts and the error messages follow `promql/parser/lex.go` of Prometheus 3.14, character by
//! character.

mod number;
mod strings;
mod token;

pub(crate) use strings::unquote;
pub(crate) use token::{PromqlKeyword, PromqlToken, PromqlTokenKind};

use crate::ast::BinaryOp;
use crate::quote::{REPLACEMENT, quote_char};
use crate::syntax_error::QuerySyntaxError;

/// Reads tokens from a query text, one at a time.
#[derive(Clone, Debug)]
pub(crate) struct PromqlLexer<'a> {
    text: &'a str,
    /// Byte offset of the next character that has not been read yet.
    at: usize,
    /// Byte offset of the first character of the current token, or the end of the last one.
    start: usize,
    parens_open: i64,
    in_braces: bool,
    brackets: BracketState,
}

/// The state of the lexer with respect to brackets.
#[derive(Clone, Copy, Debug, Default)]
struct BracketState {
    open: bool,
    /// True until a number is read after the last `[`. From the first number on the rules outside
    /// of brackets apply, except for words and colons.
    before_number: bool,
    /// True if a colon was read since the last `[`.
    colon_seen: bool,
    /// True if a number was read in any brackets so far. Prometheus does not reset it at `[`,
    /// either.
    number_seen: bool,
}

impl<'a> PromqlLexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            start: 0,
            parens_open: 0,
            in_braces: false,
            brackets: BracketState::default(),
        }
    }

    /// Returns the text of a token, which must belong to this lexer's text.
    pub(crate) fn text(&self, token: PromqlToken) -> &'a str {
        &self.text[token.start..token.end]
    }

    /// Returns the next token and skips comments. The caller must not call it again after an error
    /// or the end.
    pub(crate) fn next(&mut self) -> Result<PromqlToken, QuerySyntaxError> {
        if self.in_braces {
            self.skip_spaces_and_comments();
            return self.lex_inside_braces();
        }
        if self.brackets.open && self.brackets.before_number {
            self.skip_spaces();
            return self.lex_inside_brackets();
        }
        self.skip_spaces_and_comments();
        self.lex_outside()
    }

    fn lex_outside(&mut self) -> Result<PromqlToken, QuerySyntaxError> {
        let Some(c) = self.advance() else {
            return self.lex_end_of_input();
        };
        match c {
            ',' => self.emit(PromqlTokenKind::Comma),
            '@' => self.emit(PromqlTokenKind::At),
            '*' | '/' | '%' | '+' | '-' | '^' => self.lex_arithmetic(c),
            '=' | '!' | '<' | '>' => self.lex_comparison(c),
            '0'..='9' => self.lex_number_or_duration(),
            '.' if self.peek().is_some_and(|c| c.is_ascii_digit()) => self.lex_number_or_duration(),
            '"' | '\'' | '`' => self.lex_string(c),
            ':' | 'a'..='z' | 'A'..='Z' | '_' if self.brackets.open => self.lex_word_in_brackets(c),
            ':' | 'a'..='z' | 'A'..='Z' | '_' => self.lex_word(),
            '(' => self.lex_left_paren(),
            ')' => self.lex_right_paren(),
            '{' => {
                self.in_braces = true;
                self.emit(PromqlTokenKind::LeftBrace)
            }
            '[' => self.lex_left_bracket(),
            ']' if self.brackets.open => {
                self.brackets.open = false;
                self.emit(PromqlTokenKind::RightBracket)
            }
            ']' => self.fail(format!("unexpected right bracket {}", quote_char(c))),
            _ => self.fail(format!("unexpected character: {}", quote_char(c))),
        }
    }

    fn lex_end_of_input(&mut self) -> Result<PromqlToken, QuerySyntaxError> {
        if self.parens_open != 0 {
            return self.fail("unclosed left parenthesis");
        }
        if self.brackets.open {
            return self.fail("unclosed left bracket");
        }
        self.emit(PromqlTokenKind::Eof)
    }

    fn lex_arithmetic(&mut self, c: char) -> Result<PromqlToken, QuerySyntaxError> {
        self.emit(PromqlTokenKind::Operator(match c {
            '*' => BinaryOp::Mul,
            '/' => BinaryOp::Div,
            '%' => BinaryOp::Mod,
            '+' => BinaryOp::Add,
            '-' => BinaryOp::Sub,
            _ => BinaryOp::Pow,
        }))
    }

    fn lex_comparison(&mut self, c: char) -> Result<PromqlToken, QuerySyntaxError> {
        let next = self.peek();
        let two_characters = match (c, next) {
            ('=', Some('=')) => BinaryOp::Equal,
            ('!', Some('=')) => BinaryOp::NotEqual,
            ('<', Some('=')) => BinaryOp::LessOrEqual,
            ('<', Some('/')) => BinaryOp::TrimUpper,
            ('>', Some('=')) => BinaryOp::GreaterOrEqual,
            ('>', Some('/')) => BinaryOp::TrimLower,
            ('<', _) => return self.emit(PromqlTokenKind::Operator(BinaryOp::Less)),
            ('>', _) => return self.emit(PromqlTokenKind::Operator(BinaryOp::Greater)),
            ('=', next) if next != Some('~') => return self.emit(PromqlTokenKind::Assign),
            (_, next) => {
                let next = quote_char(next.unwrap_or(REPLACEMENT));
                return self.fail(format!("unexpected character after '{c}': {next}"));
            }
        };
        self.advance();
        self.emit(PromqlTokenKind::Operator(two_characters))
    }

    fn lex_left_paren(&mut self) -> Result<PromqlToken, QuerySyntaxError> {
        self.parens_open += 1;
        self.emit(PromqlTokenKind::LeftParen)
    }

    fn lex_right_paren(&mut self) -> Result<PromqlToken, QuerySyntaxError> {
        let token = self.emit(PromqlTokenKind::RightParen);
        self.parens_open -= 1;
        if self.parens_open < 0 {
            return self.fail("unexpected right parenthesis ')'");
        }
        token
    }

    fn lex_left_bracket(&mut self) -> Result<PromqlToken, QuerySyntaxError> {
        if self.brackets.open {
            return self.fail("unexpected left bracket '['");
        }
        self.brackets = BracketState {
            open: true,
            before_number: true,
            colon_seen: false,
            ..self.brackets
        };
        self.emit(PromqlTokenKind::LeftBracket)
    }

    fn lex_word(&mut self) -> Result<PromqlToken, QuerySyntaxError> {
        self.skip_while(|c| is_word(c) || c == ':');
        let text = &self.text[self.start..self.at];
        let kind = match token::word_kind(text) {
            // Otherwise a metric with this name could not be used: `fill + fill`.
            Some(PromqlTokenKind::Word(
                PromqlKeyword::Fill | PromqlKeyword::FillLeft | PromqlKeyword::FillRight,
            )) if !self.is_paren_next() => PromqlTokenKind::Identifier,
            Some(kind) => kind,
            None if text.contains(':') => PromqlTokenKind::MetricIdentifier,
            None => PromqlTokenKind::Identifier,
        };
        self.emit(kind)
    }

    fn is_paren_next(&self) -> bool {
        self.rest().trim_start_matches(is_space).starts_with('(')
    }

    /// Reads a colon or a word of duration expressions. Called for words and colons in brackets
    /// after a number.
    fn lex_word_in_brackets(&mut self, first: char) -> Result<PromqlToken, QuerySyntaxError> {
        if first == ':' && self.brackets.colon_seen {
            return self.fail("unexpected colon ':'");
        }
        if first == ':' {
            self.brackets.colon_seen = true;
            return self.emit(PromqlTokenKind::Colon);
        }
        match self.duration_word(first) {
            Some(word) => self.emit(PromqlTokenKind::Word(word)),
            None => {
                let first = quote_char(first);
                self.fail(format!("unexpected character: {first}, expected ':'"))
            }
        }
    }

    fn duration_word(&mut self, first: char) -> Option<PromqlKeyword> {
        if !matches!(first, 's' | 'S' | 'r' | 'R' | 'm' | 'M') {
            return None;
        }
        self.skip_while(|c| c == '_' || c.is_ascii_alphabetic());
        token::duration_word(&self.text[self.start..self.at].to_ascii_lowercase())
    }

    fn lex_inside_brackets(&mut self) -> Result<PromqlToken, QuerySyntaxError> {
        let Some(c) = self.advance() else {
            return self.fail("unexpected end of input in duration expression");
        };
        match c {
            ']' => {
                self.brackets.open = false;
                self.emit(PromqlTokenKind::RightBracket)
            }
            ':' => self.colon_before_number(),
            '(' => self.lex_left_paren(),
            ')' => self.lex_right_paren(),
            ',' => self.emit(PromqlTokenKind::Comma),
            '*' | '/' | '%' | '+' | '-' | '^' => self.lex_arithmetic(c),
            '.' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => self.not_a_duration(c),
            '0'..='9' | '.' => {
                self.brackets.before_number = false;
                self.brackets.number_seen = true;
                self.lex_number_or_duration()
            }
            _ => match self.duration_word(c) {
                Some(word) => self.emit(PromqlTokenKind::Word(word)),
                None => self.not_a_duration(c),
            },
        }
    }

    fn colon_before_number(&mut self) -> Result<PromqlToken, QuerySyntaxError> {
        let token = self.emit(PromqlTokenKind::Colon);
        if !self.brackets.number_seen {
            return self.fail("unexpected colon before duration in duration expression");
        }
        if std::mem::replace(&mut self.brackets.colon_seen, true) {
            return self.fail("unexpected repeated colon in duration expression");
        }
        token
    }

    fn not_a_duration(&mut self, c: char) -> Result<PromqlToken, QuerySyntaxError> {
        let c = quote_char(c);
        self.fail(format!("unexpected character in duration expression: {c}"))
    }

    fn lex_inside_braces(&mut self) -> Result<PromqlToken, QuerySyntaxError> {
        let Some(c) = self.advance() else {
            return self.fail("unexpected end of input inside braces");
        };
        match c {
            'a'..='z' | 'A'..='Z' | '_' => {
                self.skip_while(is_word);
                self.emit(PromqlTokenKind::Identifier)
            }
            ',' => self.emit(PromqlTokenKind::Comma),
            '"' | '\'' | '`' => self.lex_string(c),
            '=' if self.take('~') => self.emit(PromqlTokenKind::EqualRegex),
            '=' => self.emit(PromqlTokenKind::Assign),
            '!' if self.take('~') => self.emit(PromqlTokenKind::NotEqualRegex),
            '!' if self.take('=') => self.emit(PromqlTokenKind::Operator(BinaryOp::NotEqual)),
            '!' => {
                let next = quote_char(self.peek().unwrap_or(REPLACEMENT));
                self.fail(format!(
                    "unexpected character after '!' inside braces: {next}"
                ))
            }
            '{' => self.fail("unexpected left brace '{'"),
            '}' => {
                self.in_braces = false;
                self.emit(PromqlTokenKind::RightBrace)
            }
            _ => self.fail(format!(
                "unexpected character inside braces: {}",
                quote_char(c)
            )),
        }
    }

    fn skip_spaces_and_comments(&mut self) {
        loop {
            self.skip_spaces();
            if self.peek() != Some('#') {
                return;
            }
            self.skip_while(|c| c != '\n' && c != '\r');
        }
    }

    fn skip_spaces(&mut self) {
        self.skip_while(is_space);
        self.start = self.at;
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn advance(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn skip_while(&mut self, keep: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches(keep).len();
    }

    /// Ends the current token at the current position and returns it. The next token starts there.
    fn emit(&mut self, kind: PromqlTokenKind) -> Result<PromqlToken, QuerySyntaxError> {
        let start = std::mem::replace(&mut self.start, self.at);
        Ok(PromqlToken {
            kind,
            start,
            end: self.at,
        })
    }

    /// Returns an error at the start of the current token.
    fn fail<T>(&self, message: impl Into<String>) -> Result<T, QuerySyntaxError> {
        Err(QuerySyntaxError::new(self.start, message))
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

pub(crate) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}
