//! Finds the end of numbers and durations. The parser determines their values.

use super::{PromqlLexer, PromqlToken, PromqlTokenKind, is_word};
use crate::quote::quote;
use crate::syntax_error::QuerySyntaxError;

impl PromqlLexer<'_> {
    /// Reads a number or duration. The first character must have been read already.
    pub(super) fn lex_number_or_duration(&mut self) -> Result<PromqlToken, QuerySyntaxError> {
        self.at = self.start;
        if self.scan_number() {
            return self.emit(PromqlTokenKind::Number);
        }
        // A text that is not a number may be a duration: in `1h30m` the number scan stopped at `h`.
        if self.scan_duration() {
            return self.emit(PromqlTokenKind::Duration);
        }
        let text = quote(&self.text.as_bytes()[self.start..self.at]);
        self.fail(format!("bad number or duration syntax: {text}"))
    }

    /// Reads digits, dots, exponents and underscores. Returns false if they are not a valid number.
    fn scan_number(&mut self) -> bool {
        let is_hex = self.take('0') && (self.take('x') || self.take('X'));
        let is_digit = |c: char| c.is_ascii_digit() || (is_hex && c.is_ascii_hexdigit());
        if is_hex {
            self.take('_');
        }
        self.take('.');
        self.take_one(is_digit);
        let (mut dot_seen, mut exponent_seen) = (false, false);
        loop {
            let Some(c) = self.peek() else { return true };
            // In a hexadecimal number `e` is treated as an exponent first, as in Prometheus.
            let goes_on = match c {
                '.' => {
                    self.advance();
                    !std::mem::replace(&mut dot_seen, true) && self.after_dot(is_hex)
                }
                'e' | 'E' => {
                    self.advance();
                    !std::mem::replace(&mut exponent_seen, true) && self.after_exponent()
                }
                '_' => {
                    self.advance();
                    self.after_underscore()
                }
                c if is_digit(c) => {
                    self.skip_while(is_digit);
                    true
                }
                c => return !is_word(c),
            };
            if !goes_on {
                return false;
            }
        }
    }

    fn after_dot(&mut self, is_hex: bool) -> bool {
        !self.take_one(|c| matches!(c, '_' | '.')) && !is_hex
    }

    fn after_exponent(&mut self) -> bool {
        self.take_one(|c| matches!(c, '+' | '-'));
        !self.take_one(is_separator) && self.peek().is_some()
    }

    fn after_underscore(&mut self) -> bool {
        !self.take_one(is_separator) && self.peek().is_some()
    }

    /// Reads a duration from the end of its first number on: a unit, then numbers and units in
    /// turn.
    fn scan_duration(&mut self) -> bool {
        if !self.take_one(|c| matches!(c, 's' | 'm' | 'h' | 'd' | 'w' | 'y')) {
            return false;
        }
        self.take('s');
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.skip_while(|c| c.is_ascii_digit());
            if !self.take_one(|c| matches!(c, 's' | 'm' | 'h' | 'd' | 'w')) {
                return false;
            }
            self.take('s');
        }
        match self.peek() {
            Some(c) if is_word(c) => {
                self.advance();
                false
            }
            _ => true,
        }
    }

    fn take_one(&mut self, wanted: impl Fn(char) -> bool) -> bool {
        let found = self.peek().is_some_and(wanted);
        if found {
            self.advance();
        }
        found
    }
}

fn is_separator(c: char) -> bool {
    matches!(c, '.' | '_' | 'e' | 'E')
}
