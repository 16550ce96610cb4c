//! Splits the text of a template into tokens: literal text and, inside `{{ }}`, words, literals and
//! symbols.
//!
//! Invariant: positions are byte offsets in the whole text, and lines count from one, as in Go's
//! error messages. After an error token, only end tokens follow. Tokens and messages follow Go's
//! `text/template/parse/lex.go`.

mod token;

pub(super) use token::{TemplateKeyword, TemplateToken, TemplateTokenKind};

use firn_model::quote::{is_printable, quote};
use token::keyword;

const LEFT: &str = "{{";
const RIGHT: &str = "}}";
/// Length of a trim marker: a minus sign and the space next to it.
const TRIM_LEN: usize = 2;

/// The lexer of one text: its position, the start of the current token, and whether it is inside an
/// action.
#[derive(Debug)]
pub(super) struct TemplateLexer<'t> {
    input: &'t str,
    at: usize,
    start: usize,
    line: usize,
    start_line: usize,
    paren_depth: usize,
    inside_action: bool,
}

impl<'t> TemplateLexer<'t> {
    pub fn new(input: &'t str) -> Self {
        Self {
            input,
            at: 0,
            start: 0,
            line: 1,
            start_line: 1,
            paren_depth: 0,
            inside_action: false,
        }
    }

    /// Returns the next token. After the end of the text, returns [`TemplateTokenKind::End`] on
    /// every call.
    pub fn next_token(&mut self) -> TemplateToken {
        if self.inside_action {
            self.lex_inside_action()
        } else {
            self.lex_text()
        }
    }

    fn rest(&self) -> &'t str {
        &self.input[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        if c == '\n' {
            self.line += 1;
        }
        Some(c)
    }

    /// Moves back by `c`, the last character that was read, and corrects the line number.
    fn back(&mut self, c: char) {
        self.at -= c.len_utf8();
        if c == '\n' {
            self.line -= 1;
        }
    }

    fn accept(&mut self, valid: &str) -> bool {
        let is_valid = self.peek().is_some_and(|c| valid.contains(c));
        if is_valid {
            self.next();
        }
        is_valid
    }

    fn accept_run(&mut self, valid: &str) {
        while self.accept(valid) {}
    }

    fn emit(&mut self, kind: TemplateTokenKind) -> TemplateToken {
        let token = TemplateToken {
            kind,
            position: self.start,
            text: self.input[self.start..self.at].to_owned(),
            line: self.start_line,
        };
        self.start = self.at;
        self.start_line = self.line;
        token
    }

    fn ignore(&mut self) {
        self.count_lines();
        self.start = self.at;
        self.start_line = self.line;
    }

    fn count_lines(&mut self) {
        let passed = &self.input[self.start..self.at];
        self.line += passed.bytes().filter(|b| *b == b'\n').count();
    }

    fn fail(&mut self, text: impl Into<String>) -> TemplateToken {
        let token = TemplateToken {
            kind: TemplateTokenKind::Error,
            position: self.start,
            text: text.into(),
            line: self.start_line,
        };
        (self.input, self.at, self.start) = ("", 0, 0);
        token
    }

    /// Returns the text up to the next action. Comments are skipped.
    fn lex_text(&mut self) -> TemplateToken {
        loop {
            let Some(length) = self.rest().find(LEFT) else {
                self.at = self.input.len();
                if self.at == self.start {
                    return self.emit(TemplateTokenKind::End);
                }
                self.count_lines();
                return self.emit(TemplateTokenKind::Text);
            };
            if length > 0 {
                self.at += length;
                let before = &self.input[self.start..self.at];
                let trims = starts_trim_left(&self.input[self.at + LEFT.len()..]);
                let trimmed = if trims {
                    before.len() - before.trim_end_matches(is_space).len()
                } else {
                    0
                };
                self.at -= trimmed;
                self.count_lines();
                let token = self.emit(TemplateTokenKind::Text);
                self.at += trimmed;
                self.ignore();
                if !token.text.is_empty() {
                    return token;
                }
            }
            if let Some(token) = self.lex_left_delim() {
                return token;
            }
        }
    }

    /// Reads the left delimiter of an action. Returns `None` if it started a comment, which is
    /// skipped.
    fn lex_left_delim(&mut self) -> Option<TemplateToken> {
        self.at += LEFT.len();
        let marker_len = if starts_trim_left(self.rest()) {
            TRIM_LEN
        } else {
            0
        };
        if self.rest()[marker_len..].starts_with("/*") {
            self.at += marker_len;
            self.ignore();
            return self.lex_comment();
        }
        let token = self.emit(TemplateTokenKind::LeftDelim);
        self.inside_action = true;
        self.at += marker_len;
        self.ignore();
        self.paren_depth = 0;
        Some(token)
    }

    /// Skips a comment. Returns an error token if it is malformed.
    fn lex_comment(&mut self) -> Option<TemplateToken> {
        let Some(length) = self.rest()[2..].find("*/") else {
            self.at += 2;
            return Some(self.fail("unclosed comment"));
        };
        self.at += 2 + length + 2;
        let Some(trims) = self.at_right_delim() else {
            return Some(self.fail("comment ends before closing delimiter"));
        };
        self.ignore();
        if trims {
            self.at += TRIM_LEN;
        }
        self.at += RIGHT.len();
        if trims {
            self.skip_spaces();
        }
        self.ignore();
        None
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches(is_space).len();
    }

    /// Checks for a right delimiter at the current position. Returns whether it trims the following
    /// text; `None` if there is none.
    fn at_right_delim(&self) -> Option<bool> {
        let rest = self.rest();
        let trims = starts_trim_right(rest) && rest[TRIM_LEN..].starts_with(RIGHT);
        (trims || rest.starts_with(RIGHT)).then_some(trims)
    }

    fn lex_right_delim(&mut self, trims: bool) -> TemplateToken {
        if trims {
            self.at += TRIM_LEN;
            self.ignore();
        }
        self.at += RIGHT.len();
        let token = self.emit(TemplateTokenKind::RightDelim);
        if trims {
            self.skip_spaces();
            self.ignore();
        }
        self.inside_action = false;
        token
    }

    fn lex_inside_action(&mut self) -> TemplateToken {
        if let Some(trims) = self.at_right_delim() {
            return match self.paren_depth {
                0 => self.lex_right_delim(trims),
                _ => self.fail("unclosed left paren"),
            };
        }
        let Some(c) = self.next() else {
            return self.fail("unclosed action");
        };
        match c {
            _ if is_space(c) => {
                self.back(c);
                self.lex_space()
            }
            '=' => self.emit(TemplateTokenKind::Assign),
            ':' if self.accept("=") => self.emit(TemplateTokenKind::Declare),
            ':' => self.fail("expected :="),
            '|' => self.emit(TemplateTokenKind::Pipe),
            '"' => self.lex_quoted('"', TemplateTokenKind::String, "unterminated quoted string"),
            '`' => self.lex_raw_quoted(),
            '$' => self.lex_field_or_variable(TemplateTokenKind::Variable),
            '\'' => self.lex_quoted(
                '\'',
                TemplateTokenKind::CharConstant,
                "unterminated character constant",
            ),
            '.' if !self.peek().is_some_and(|c| c.is_ascii_digit()) && !self.rest().is_empty() => {
                self.lex_field_or_variable(TemplateTokenKind::Field)
            }
            '.' | '+' | '-' | '0'..='9' => {
                self.back(c);
                self.lex_number()
            }
            _ if is_word(c) => {
                self.back(c);
                self.lex_identifier()
            }
            '(' => {
                self.paren_depth += 1;
                self.emit(TemplateTokenKind::LeftParen)
            }
            ')' if self.paren_depth == 0 => self.fail("unexpected right paren"),
            ')' => {
                self.paren_depth -= 1;
                self.emit(TemplateTokenKind::RightParen)
            }
            ' '..='~' => self.emit(TemplateTokenKind::Char),
            _ => self.fail(format!(
                "unrecognized character in action: {}",
                code_point(c)
            )),
        }
    }

    /// Reads a run of spaces. The last space is excluded if it belongs to a trimming delimiter `
    /// -}}`.
    fn lex_space(&mut self) -> TemplateToken {
        let mut count = 0;
        let mut last = ' ';
        while let Some(c) = self.peek().filter(|c| is_space(*c)) {
            self.next();
            last = c;
            count += 1;
        }
        let from_last = &self.input[self.at - last.len_utf8()..];
        if starts_trim_right(from_last) && from_last[TRIM_LEN..].starts_with(RIGHT) {
            self.back(last);
            if count == 1 {
                return self.lex_right_delim(true);
            }
        }
        self.emit(TemplateTokenKind::Space)
    }

    fn lex_identifier(&mut self) -> TemplateToken {
        while self.peek().is_some_and(is_word) {
            self.next();
        }
        if let Some(c) = self.bad_end() {
            return self.fail(format!("bad character {}", code_point(c)));
        }
        let word = &self.input[self.start..self.at];
        let kind = match keyword(word) {
            Some(keyword) => TemplateTokenKind::Keyword(keyword),
            None if matches!(word, "true" | "false") => TemplateTokenKind::Bool,
            None => TemplateTokenKind::Identifier,
        };
        self.emit(kind)
    }

    /// Reads a name after a dot or dollar sign. A sign without a name is a token of its own.
    fn lex_field_or_variable(&mut self, kind: TemplateTokenKind) -> TemplateToken {
        if self.bad_end().is_none() {
            return self.emit(match kind {
                TemplateTokenKind::Field => TemplateTokenKind::Dot,
                _ => kind,
            });
        }
        while self.peek().is_some_and(is_word) {
            self.next();
        }
        match self.bad_end() {
            Some(c) => self.fail(format!("bad character {}", code_point(c))),
            None => self.emit(kind),
        }
    }

    /// Returns the next character if a word must not end before it.
    fn bad_end(&self) -> Option<char> {
        let c = self.peek()?;
        let ends = is_space(c) || ".,|:()".contains(c) || self.rest().starts_with(RIGHT);
        (!ends).then_some(c)
    }

    fn lex_quoted(
        &mut self,
        end: char,
        kind: TemplateTokenKind,
        unterminated: &str,
    ) -> TemplateToken {
        loop {
            match self.next() {
                Some('\\') => {
                    if matches!(self.next(), None | Some('\n')) {
                        return self.fail(unterminated);
                    }
                }
                None | Some('\n') => return self.fail(unterminated),
                Some(c) if c == end => return self.emit(kind),
                Some(_) => {}
            }
        }
    }

    fn lex_raw_quoted(&mut self) -> TemplateToken {
        loop {
            match self.next() {
                None => return self.fail("unterminated raw quoted string"),
                Some('`') => return self.emit(TemplateTokenKind::RawString),
                Some(_) => {}
            }
        }
    }

    fn lex_number(&mut self) -> TemplateToken {
        let is_number = self.scan_number();
        let is_complex = is_number && matches!(self.peek(), Some('+' | '-'));
        if !is_number || is_complex && !(self.scan_number() && self.ends_imaginary()) {
            let text = &self.input[self.start..self.at];
            return self.fail(format!("bad number syntax: {}", quote(text.as_bytes())));
        }
        self.emit(if is_complex {
            TemplateTokenKind::Complex
        } else {
            TemplateTokenKind::Number
        })
    }

    fn ends_imaginary(&self) -> bool {
        self.input[..self.at].ends_with('i')
    }

    fn scan_number(&mut self) -> bool {
        const DECIMAL: &str = "0123456789_";
        self.accept("+-");
        let mut digits = DECIMAL;
        let (mut exponent, mut is_prefixed) = ("eE", false);
        if self.accept("0") {
            for (prefix, after, power) in [
                ("xX", "0123456789abcdefABCDEF_", "pP"),
                ("oO", "01234567_", ""),
                ("bB", "01_", ""),
            ] {
                if !is_prefixed && self.accept(prefix) {
                    (digits, exponent, is_prefixed) = (after, power, true);
                }
            }
        }
        self.accept_run(digits);
        if self.accept(".") {
            self.accept_run(digits);
        }
        if self.accept(exponent) {
            self.accept("+-");
            self.accept_run(DECIMAL);
        }
        self.accept("i");
        if self.peek().is_some_and(is_word) {
            self.next();
            return false;
        }
        true
    }
}

/// Returns whether the character is white space in Go's template syntax.
pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn starts_trim_left(text: &str) -> bool {
    text.strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(is_space))
}

fn starts_trim_right(text: &str) -> bool {
    text.strip_prefix(is_space)
        .is_some_and(|rest| rest.starts_with('-'))
}

/// Formats a character as `U+0071 'q'`, or as `U+0007` if it is not printable.
pub(super) fn code_point(c: char) -> String {
    if is_printable(c) {
        format!("U+{:04X} '{c}'", c as u32)
    } else {
        format!("U+{:04X}", c as u32)
    }
}
