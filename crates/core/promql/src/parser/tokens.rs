//! The tokens of a query text, read one ahead, and the errors about unexpected ones.

use super::stop::{ParseStop, Parsed, fail};
use crate::ast::{BinaryOp, NumberLiteral, UnaryOp};
use crate::lexer::{PromqlKeyword, PromqlLexer, PromqlToken, PromqlTokenKind};
use crate::number::parse_number;
use crate::quote::quote;
use crate::syntax_error::QuerySyntaxError;
use firn_model::units::parse_duration;

/// The tokens of a query text. Created by the parser, which reads a token only where the grammar
/// requires it, because reading may fail.
pub(super) struct PromqlTokenReader<'a> {
    lexer: PromqlLexer<'a>,
    /// The token that was peeked at and not consumed yet.
    ahead: Option<PromqlToken>,
    /// Byte offset of the end of the last consumed token.
    pub(super) taken_end: usize,
}

impl<'a> PromqlTokenReader<'a> {
    /// Creates a reader at the first token of `text`.
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            lexer: PromqlLexer::new(text),
            ahead: None,
            taken_end: 0,
        }
    }

    /// Returns the next token without consuming it. Fails if the lexer does.
    pub(super) fn peek(&mut self) -> Parsed<PromqlToken> {
        if let Some(token) = self.ahead {
            return Ok(token);
        }
        let token = self.lexer.next()?;
        self.ahead = Some(token);
        Ok(token)
    }

    /// Consumes the next token and returns it. Fails if the lexer does.
    pub(super) fn next(&mut self) -> Parsed<PromqlToken> {
        let token = self.peek()?;
        self.ahead = None;
        self.taken_end = token.end;
        Ok(token)
    }

    /// Consumes the next token if it has the given kind.
    pub(super) fn take(&mut self, kind: PromqlTokenKind) -> Parsed<Option<PromqlToken>> {
        let token = self.peek()?;
        if token.kind != kind {
            return Ok(None);
        }
        self.next().map(Some)
    }

    pub(super) fn take_word(&mut self, word: PromqlKeyword) -> Parsed<bool> {
        Ok(self.take(PromqlTokenKind::Word(word))?.is_some())
    }

    pub(super) fn take_sign(&mut self) -> Parsed<Option<(UnaryOp, PromqlToken)>> {
        let token = self.peek()?;
        let sign = match token.kind {
            PromqlTokenKind::Operator(BinaryOp::Add) => UnaryOp::Plus,
            PromqlTokenKind::Operator(BinaryOp::Sub) => UnaryOp::Minus,
            _ => return Ok(None),
        };
        self.next()?;
        Ok(Some((sign, token)))
    }

    /// Consumes the next token, which must have the given kind.
    pub(super) fn expect(&mut self, kind: PromqlTokenKind) -> Parsed<PromqlToken> {
        match self.take(kind)? {
            Some(token) => Ok(token),
            None => self.stop_here(),
        }
    }

    /// Stops at the next token. An enclosing rule may add the expected token to the error.
    pub(super) fn stop_here<T>(&mut self) -> Parsed<T> {
        Err(ParseStop::Unexpected(self.peek()?))
    }

    /// Returns an error if the rule stopped at an unexpected token. The message contains the part
    /// of the grammar (`within`) and the `expected` token.
    pub(super) fn within<T>(&self, parsed: Parsed<T>, within: &str, expected: &str) -> Parsed<T> {
        parsed.map_err(|stop| match stop {
            ParseStop::Unexpected(token) => {
                self.unexpected_token_error(token, within, expected).into()
            }
            failed => failed,
        })
    }

    pub(super) fn unexpected_token_error(
        &self,
        token: PromqlToken,
        within: &str,
        expected: &str,
    ) -> QuerySyntaxError {
        let mut message = format!("unexpected {}", token.kind.describe(self.lexer.text(token)));
        if !within.is_empty() {
            message.push_str(&format!(" in {within}"));
        }
        if !expected.is_empty() {
            message.push_str(&format!(", expected {expected}"));
        }
        QuerySyntaxError::new(token.start, message)
    }

    pub(super) fn text(&self, token: PromqlToken) -> &'a str {
        self.lexer.text(token)
    }

    /// Returns the value of a number or duration token.
    pub(super) fn parse_number_literal(&self, token: PromqlToken) -> Parsed<NumberLiteral> {
        let text = self.text(token);
        let is_duration = token.kind == PromqlTokenKind::Duration;
        let value = if is_duration {
            parse_duration(text)
                .map(|duration| duration.as_millis() as f64 / 1000.0)
                .map_err(|e| e.to_string())
        } else {
            parse_number(text).map_err(|why| {
                let text = quote(text.as_bytes());
                format!("error parsing number: strconv.ParseFloat: parsing {text}: {why}")
            })
        };
        match value {
            Ok(value) => Ok(NumberLiteral { value, is_duration }),
            Err(why) => fail(token.start, why),
        }
    }

    /// Parses a number or duration with an optional sign, and returns its value.
    pub(super) fn parse_signed_number(&mut self) -> Parsed<f64> {
        let sign = self.take_sign()?;
        let token = self.peek()?;
        if !matches!(
            token.kind,
            PromqlTokenKind::Number | PromqlTokenKind::Duration
        ) {
            return self.stop_here();
        }
        self.next()?;
        let value = self.parse_number_literal(token)?.value;
        Ok(match sign {
            Some((UnaryOp::Minus, _)) => -value,
            _ => value,
        })
    }
}
