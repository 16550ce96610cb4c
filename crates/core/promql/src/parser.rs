//! Parses a query text into a checked tree, by recursive descent and precedence climbing.
//!
//! The accepted texts, and the positions and texts of errors, follow Prometheus 3.14. Its parser is
//! generated from a grammar (`promql/parser/generated_parser.y`). If a text contains several
//! errors, the reported one depends on when that parser reads its single token of lookahead,
//! because reading a token may fail in the lexer. Therefore this parser reads the next token only
//! where the grammar requires it.
//!
//! Invariants:
//! - The first error ends the parse.
//! - Nesting and the height of the tree are bounded by [`NESTING_MAX`] and [`HEIGHT_MAX`].
//! - The memory of the tree is reserved before it is allocated.
//! - A returned tree has passed the type checker.

mod check;
mod duration;
mod expression;
mod limits;
mod selector;
mod stop;
mod tokens;

#[cfg(test)]
mod tests;

pub use crate::syntax_error::position;
pub use limits::{HEIGHT_MAX, NESTING_MAX};

use crate::Features;
use crate::ast::{Expr, ExprKind};
use crate::depth::ensure_stack;
use crate::lexer::{PromqlToken, PromqlTokenKind};
use crate::value::PromqlError;
use firn_model::budget::{Budget, Reservation};
use firn_model::matcher::Matcher;
use limits::{NODE_BYTES, TreeLimits};
use stop::{ParseStop, Parsed, fail, span};
use tokens::PromqlTokenReader;

/// The precedence of a sign, which equals that of `*`: only a power binds tighter.
const SIGN_OPERAND_PRECEDENCE: u8 = 6;

/// Memory of a matcher or of a label in a list, in bytes, in addition to its text.
const LIST_ITEM_BYTES: usize = 256;

/// Maximum length of a query text in bytes, so that positions fit in a
/// [`crate::ast::PositionRange`].
pub const TEXT_BYTES_MAX: usize = 16 << 20;

/// Parses and checks an expression.
///
/// Fails with [`PromqlError::Parse`], whose text equals that of Prometheus 3.14:
/// `1:5: parse error: unexpected end of input`. Memory is not limited.
pub fn parse(text: &str, features: Features) -> Result<Expr, PromqlError> {
    parse_within(text, features, &mut unlimited_reservation())
}

/// Parses and checks an expression like [`parse`], and adds the bytes of the tree and its plan to
/// `memory`. Fails with [`PromqlError::Limited`] if the budget is exceeded.
pub fn parse_within(
    text: &str,
    features: Features,
    memory: &mut Reservation,
) -> Result<Expr, PromqlError> {
    parse_with(text, features, memory, |parser| {
        let mut expr = parser.parse_whole_expression()?;
        check::check(&mut expr, text)?;
        Ok(expr)
    })
}

/// Parses a series selector in the syntax of the parameter `match[]`: `up`, `{job="x"}`. The caller
/// checks whether a matcher must reject the empty value.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, PromqlError> {
    parse_selector_within(text, &mut unlimited_reservation())
}

/// Parses a series selector like [`parse_selector`], and adds the bytes of the tree to `memory`.
pub fn parse_selector_within(
    text: &str,
    memory: &mut Reservation,
) -> Result<Vec<Matcher>, PromqlError> {
    parse_with(text, Features::default(), memory, |parser| {
        let selector = parser.parse_vector_selector()?;
        parser.expect_end()?;
        Ok(selector.0.matchers)
    })
}

/// Parses an expression and returns the matchers of each of its selectors, from left to right.
/// Memory is reserved as in [`parse_within`].
pub fn parse_selectors(
    text: &str,
    features: Features,
    memory: &mut Reservation,
) -> Result<Vec<Vec<Matcher>>, PromqlError> {
    let expr = parse_within(text, features, memory)?;
    let mut selectors = Vec::new();
    expr.visit(&mut |node| match &node.kind {
        ExprKind::Vector(vector) => selectors.push(vector.matchers.clone()),
        ExprKind::Matrix(matrix) => selectors.push(matrix.vector.matchers.clone()),
        _ => {}
    });
    Ok(selectors)
}

fn parse_with<'a, T>(
    text: &'a str,
    features: Features,
    memory: &'a mut Reservation,
    rule: impl FnOnce(&mut PromqlParser<'a>) -> Result<T, ParseStop>,
) -> Result<T, PromqlError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(PromqlError::Parse(format!(
            "expression is too long: {} bytes, limit {TEXT_BYTES_MAX}",
            text.len()
        )));
    }
    let mut parser = PromqlParser::new(text, features, memory);
    rule(&mut parser).map_err(|stop| {
        let error = match stop {
            ParseStop::Failed(error) => error,
            ParseStop::Unexpected(token) => parser.tokens.unexpected_token_error(token, "", ""),
            ParseStop::Limited(message) => return PromqlError::Limited(message),
        };
        PromqlError::Parse(error.render(text))
    })
}

/// Returns an unlimited reservation, for texts that the operator of the server wrote.
fn unlimited_reservation() -> Reservation {
    Budget::new("expression", usize::MAX).create_reservation()
}

/// Parses one text. The children of this module hold the rules of the grammar.
struct PromqlParser<'a> {
    tokens: PromqlTokenReader<'a>,
    limits: TreeLimits<'a>,
    features: Features,
}

impl<'a> PromqlParser<'a> {
    fn new(text: &'a str, features: Features, memory: &'a mut Reservation) -> Self {
        Self {
            tokens: PromqlTokenReader::new(text),
            limits: TreeLimits::new(memory),
            features,
        }
    }

    fn parse_whole_expression(&mut self) -> Parsed<Expr> {
        if self.tokens.peek()?.kind == PromqlTokenKind::Eof {
            return fail(0, "no expression found in input");
        }
        let expr = self.parse_expression()?;
        self.expect_end()?;
        Ok(expr)
    }

    fn expect_end(&mut self) -> Parsed<()> {
        self.tokens.expect(PromqlTokenKind::Eof).map(drop)
    }

    /// Parses items separated by commas up to a token of kind `close`, which it returns. A trailing
    /// comma is allowed. Any other token after an item is an error, which shows `close` as `shown`,
    /// in the part of the grammar called `within`.
    fn parse_list(
        &mut self,
        close: PromqlTokenKind,
        shown: &str,
        within: &str,
        mut item: impl FnMut(&mut Self) -> Parsed<()>,
    ) -> Parsed<PromqlToken> {
        loop {
            if let Some(token) = self.tokens.take(close)? {
                return Ok(token);
            }
            self.limits.reserve(LIST_ITEM_BYTES)?;
            item(self)?;
            if self.tokens.take(PromqlTokenKind::Comma)?.is_none()
                && self.tokens.peek()?.kind != close
            {
                let stop = self.tokens.stop_here();
                return self
                    .tokens
                    .within(stop, within, &format!("\",\" or {shown}"));
            }
        }
    }

    /// Runs a rule that may recurse, with sufficient stack and a limited depth.
    fn parse_deeper<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.limits.depth > HEIGHT_MAX {
            return self.limits.too_high(self.tokens.taken_end);
        }
        self.limits.depth += 1;
        let parsed = ensure_stack(|| rule(self));
        self.limits.depth -= 1;
        parsed
    }

    /// Runs a rule inside one more level of parentheses, calls or signs.
    fn parse_nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.limits.nesting == NESTING_MAX {
            let at = self.tokens.peek()?.start;
            return fail(
                at,
                format!(
                    "expression nests too deeply: {} levels, limit {NESTING_MAX}",
                    NESTING_MAX + 1
                ),
            );
        }
        self.limits.nesting += 1;
        let parsed = self.parse_deeper(rule);
        self.limits.nesting -= 1;
        parsed
    }
}
