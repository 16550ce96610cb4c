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
mod selector;

#[cfg(test)]
mod tests;

pub use crate::syntax_error::position;

use crate::Features;
use crate::ast::{Expr, ExprKind, NumberLiteral, PositionRange, UnaryOp};
use crate::depth::ensure_stack;
use crate::lexer::{PromqlLexer, PromqlToken, PromqlTokenKind};
use crate::number::parse_number;
use crate::quote::quote;
use crate::syntax_error::QuerySyntaxError;
use crate::value::PromqlError;
use firn_model::budget::{Budget, Reservation};
use firn_model::matcher::Matcher;
use firn_model::units::parse_duration;

/// Maximum height of a tree. A chain of operators (`a or b or c`) is as high as it is long, and
/// generated queries contain chains of thousands. The limit allows ten thousand operators in
/// addition to the nesting of [`NESTING_MAX`]; traversing such a tree uses some megabytes of stack.
pub const HEIGHT_MAX: u32 = 10_000 + NESTING_MAX;

/// Maximum number of nested parentheses, calls and signs. It is low because evaluation has large
/// stack frames.
pub const NESTING_MAX: u32 = 1000;

/// Memory of a node in bytes: in the tree, in the plan, and while common parts of the plan are
/// searched.
const NODE_BYTES: usize = 768;

/// Stack in bytes that an operator, a call or parentheses use during the traversal of a tree.
const WALK_BYTES: usize = 256;

/// The precedence of a sign, which equals that of `*`: only a power binds tighter.
const SIGN_OPERAND_PRECEDENCE: u8 = 6;

/// Memory of a matcher or of a label in a list, in bytes, in addition to its text.
const LIST_ITEM_BYTES: usize = 256;

/// Maximum length of a query text in bytes, so that positions fit in a [`PositionRange`].
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
            ParseStop::Unexpected(token) => parser.unexpected_token_error(token, "", ""),
            ParseStop::Limited(message) => return PromqlError::Limited(message),
        };
        PromqlError::Parse(error.render(text))
    })
}

/// Returns an unlimited reservation, for texts that the operator of the server wrote.
fn unlimited_reservation() -> Reservation {
    Budget::new("expression", usize::MAX).create_reservation()
}

/// The reason why a grammar rule stopped. Rules pass it on with `?`.
#[derive(Debug)]
enum ParseStop {
    /// An error with a message and a position, which is final.
    Failed(QuerySyntaxError),
    /// An unexpected token. An enclosing rule may add the expected token to the message.
    Unexpected(PromqlToken),
    /// The memory limit was reached. The message contains the limit.
    Limited(String),
}

impl From<QuerySyntaxError> for ParseStop {
    fn from(error: QuerySyntaxError) -> Self {
        ParseStop::Failed(error)
    }
}

type Parsed<T> = Result<T, ParseStop>;

struct PromqlParser<'a> {
    lexer: PromqlLexer<'a>,
    features: Features,
    /// The reservation for the memory of the tree, owned by the caller.
    memory: &'a mut Reservation,
    /// The token that was peeked at and not consumed yet.
    ahead: Option<PromqlToken>,
    /// Byte offset of the end of the last consumed token.
    taken_end: usize,
    /// Number of open parentheses, calls and signs, limited by [`NESTING_MAX`].
    nesting: u32,
    /// Number of nested calls of recursive rules, limited by [`HEIGHT_MAX`].
    depth: u32,
    /// Height of the tree that was built last. Rules combine it with the height of other operands.
    height: u32,
}

impl<'a> PromqlParser<'a> {
    fn new(text: &'a str, features: Features, memory: &'a mut Reservation) -> Self {
        Self {
            lexer: PromqlLexer::new(text),
            features,
            memory,
            ahead: None,
            taken_end: 0,
            nesting: 0,
            depth: 0,
            height: 0,
        }
    }

    fn parse_whole_expression(&mut self) -> Parsed<Expr> {
        if self.peek()?.kind == PromqlTokenKind::Eof {
            return fail(0, "no expression found in input");
        }
        let expr = self.parse_expression()?;
        self.expect_end()?;
        Ok(expr)
    }

    fn expect_end(&mut self) -> Parsed<()> {
        self.expect(PromqlTokenKind::Eof).map(drop)
    }

    /// Returns the next token without consuming it. Fails if the lexer does.
    fn peek(&mut self) -> Parsed<PromqlToken> {
        if let Some(token) = self.ahead {
            return Ok(token);
        }
        let token = self.lexer.next()?;
        self.ahead = Some(token);
        Ok(token)
    }

    /// Consumes the next token and returns it. Fails if the lexer does.
    fn next(&mut self) -> Parsed<PromqlToken> {
        let token = self.peek()?;
        self.ahead = None;
        self.taken_end = token.end;
        Ok(token)
    }

    /// Consumes the next token if it has the given kind.
    fn take(&mut self, kind: PromqlTokenKind) -> Parsed<Option<PromqlToken>> {
        let token = self.peek()?;
        if token.kind != kind {
            return Ok(None);
        }
        self.next().map(Some)
    }

    /// Consumes the next token, which must have the given kind.
    fn expect(&mut self, kind: PromqlTokenKind) -> Parsed<PromqlToken> {
        match self.take(kind)? {
            Some(token) => Ok(token),
            None => self.stop_here(),
        }
    }

    /// Stops at the next token. An enclosing rule may add the expected token to the error.
    fn stop_here<T>(&mut self) -> Parsed<T> {
        Err(ParseStop::Unexpected(self.peek()?))
    }

    /// Returns an error if the rule stopped at an unexpected token. The message contains the part
    /// of the grammar (`within`) and the `expected` token.
    fn within<T>(&self, parsed: Parsed<T>, within: &str, expected: &str) -> Parsed<T> {
        parsed.map_err(|stop| match stop {
            ParseStop::Unexpected(token) => {
                self.unexpected_token_error(token, within, expected).into()
            }
            failed => failed,
        })
    }

    fn unexpected_token_error(
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

    fn text(&self, token: PromqlToken) -> &'a str {
        self.lexer.text(token)
    }

    /// Returns the value of a number or duration token.
    fn parse_number_literal(&self, token: PromqlToken) -> Parsed<NumberLiteral> {
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
    fn parse_signed_number(&mut self) -> Parsed<f64> {
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
            if let Some(token) = self.take(close)? {
                return Ok(token);
            }
            self.reserve(LIST_ITEM_BYTES)?;
            item(self)?;
            if self.take(PromqlTokenKind::Comma)?.is_none() && self.peek()?.kind != close {
                let stop = self.stop_here();
                return self.within(stop, within, &format!("\",\" or {shown}"));
            }
        }
    }

    /// Reserves memory for something that is about to be allocated.
    fn reserve(&mut self, bytes: usize) -> Parsed<()> {
        let room = self.memory.grow(bytes);
        room.map_err(|e| ParseStop::Limited(e.message))
    }

    /// Runs a rule that may recurse, with sufficient stack and a limited depth.
    fn parse_deeper<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth > HEIGHT_MAX {
            return self.too_high(self.taken_end);
        }
        self.depth += 1;
        let parsed = ensure_stack(|| rule(self));
        self.depth -= 1;
        parsed
    }

    /// Runs a rule inside one more level of parentheses, calls or signs.
    fn parse_nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting == NESTING_MAX {
            let at = self.peek()?.start;
            return fail(
                at,
                format!(
                    "expression nests too deeply: {} levels, limit {NESTING_MAX}",
                    NESTING_MAX + 1
                ),
            );
        }
        self.nesting += 1;
        let parsed = self.parse_deeper(rule);
        self.nesting -= 1;
        parsed
    }

    /// Updates the height after a node was built on trees of which the highest has `height`, and
    /// reserves memory for the node.
    fn update_height(&mut self, height: u32, span: PositionRange) -> Parsed<()> {
        self.height = height + 1;
        if self.height > HEIGHT_MAX {
            return self.too_high(span.start as usize);
        }
        self.reserve(NODE_BYTES + WALK_BYTES)
    }

    fn too_high<T>(&self, at: usize) -> Parsed<T> {
        fail(
            at,
            format!(
                "expression has too many operators in a row: {} or more, limit {HEIGHT_MAX}",
                HEIGHT_MAX + 1
            ),
        )
    }
}

fn fail<T>(at: usize, message: impl Into<String>) -> Parsed<T> {
    Err(QuerySyntaxError::new(at, message).into())
}

fn span(start: usize, end: usize) -> PositionRange {
    PositionRange {
        start: start as u32,
        end: end as u32,
    }
}
