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
use crate::ast::{Expr, ExprKind, NumberLiteral, Span, UnaryOp};
use crate::depth::deeper;
use crate::lexer::{Lexer, Token, TokenKind};
use crate::number::parse_number;
use crate::quote::quote;
use crate::syntax_error::SyntaxError;
use crate::value::QueryError;
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

/// Maximum length of a query text in bytes, so that positions fit in a [`Span`].
pub const TEXT_BYTES_MAX: usize = 16 << 20;

/// Parses and checks an expression.
///
/// Fails with [`QueryError::Parse`], whose text equals that of Prometheus 3.14:
/// `1:5: parse error: unexpected end of input`. Memory is not limited.
pub fn parse(text: &str, features: Features) -> Result<Expr, QueryError> {
    parse_within(text, features, &mut unlimited())
}

/// Parses and checks an expression like [`parse`], and adds the bytes of the tree and its plan to
/// `memory`. Fails with [`QueryError::Limited`] if the budget is exceeded.
pub fn parse_within(
    text: &str,
    features: Features,
    memory: &mut Reservation,
) -> Result<Expr, QueryError> {
    parse_with(text, features, memory, |parser| {
        let mut expr = parser.whole_expression()?;
        check::check(&mut expr, text)?;
        Ok(expr)
    })
}

/// Parses a series selector in the syntax of the parameter `match[]`: `up`, `{job="x"}`. The caller
/// checks whether a matcher must reject the empty value.
pub fn parse_selector(text: &str) -> Result<Vec<Matcher>, QueryError> {
    parse_selector_within(text, &mut unlimited())
}

/// Parses a series selector like [`parse_selector`], and adds the bytes of the tree to `memory`.
pub fn parse_selector_within(
    text: &str,
    memory: &mut Reservation,
) -> Result<Vec<Matcher>, QueryError> {
    parse_with(text, Features::default(), memory, |parser| {
        let selector = parser.vector_selector()?;
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
) -> Result<Vec<Vec<Matcher>>, QueryError> {
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
    rule: impl FnOnce(&mut Parser<'a>) -> Result<T, Stop>,
) -> Result<T, QueryError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(QueryError::Parse(format!(
            "expression is too long: {} bytes, limit {TEXT_BYTES_MAX}",
            text.len()
        )));
    }
    let mut parser = Parser::new(text, features, memory);
    rule(&mut parser).map_err(|stop| {
        let error = match stop {
            Stop::Failed(error) => error,
            Stop::Unexpected(token) => parser.unexpected(token, "", ""),
            Stop::Limited(message) => return QueryError::Limited(message),
        };
        QueryError::Parse(error.render(text))
    })
}

/// Returns an unlimited reservation, for texts that the operator of the server wrote.
fn unlimited() -> Reservation {
    Budget::new("expression", usize::MAX).hold()
}

/// The reason why a grammar rule stopped. Rules pass it on with `?`.
#[derive(Debug)]
enum Stop {
    /// An error with a message and a position, which is final.
    Failed(SyntaxError),
    /// An unexpected token. An enclosing rule may add the expected token to the message.
    Unexpected(Token),
    /// The memory limit was reached. The message contains the limit.
    Limited(String),
}

impl From<SyntaxError> for Stop {
    fn from(error: SyntaxError) -> Self {
        Stop::Failed(error)
    }
}

type Parsed<T> = Result<T, Stop>;

struct Parser<'a> {
    lexer: Lexer<'a>,
    features: Features,
    /// The reservation for the memory of the tree, owned by the caller.
    memory: &'a mut Reservation,
    /// The token that was peeked at and not consumed yet.
    ahead: Option<Token>,
    /// Byte offset of the end of the last consumed token.
    taken_end: usize,
    /// Number of open parentheses, calls and signs, limited by [`NESTING_MAX`].
    nesting: u32,
    /// Number of nested calls of recursive rules, limited by [`HEIGHT_MAX`].
    depth: u32,
    /// Height of the tree that was built last. Rules combine it with the height of other operands.
    height: u32,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, features: Features, memory: &'a mut Reservation) -> Self {
        Self {
            lexer: Lexer::new(text),
            features,
            memory,
            ahead: None,
            taken_end: 0,
            nesting: 0,
            depth: 0,
            height: 0,
        }
    }

    fn whole_expression(&mut self) -> Parsed<Expr> {
        if self.peek()?.kind == TokenKind::Eof {
            return fail(0, "no expression found in input");
        }
        let expr = self.expression()?;
        self.expect_end()?;
        Ok(expr)
    }

    fn expect_end(&mut self) -> Parsed<()> {
        self.expect(TokenKind::Eof).map(drop)
    }

    /// Returns the next token without consuming it. Fails if the lexer does.
    fn peek(&mut self) -> Parsed<Token> {
        if let Some(token) = self.ahead {
            return Ok(token);
        }
        let token = self.lexer.next()?;
        self.ahead = Some(token);
        Ok(token)
    }

    /// Consumes the next token and returns it. Fails if the lexer does.
    fn next(&mut self) -> Parsed<Token> {
        let token = self.peek()?;
        self.ahead = None;
        self.taken_end = token.end;
        Ok(token)
    }

    /// Consumes the next token if it has the given kind.
    fn take(&mut self, kind: TokenKind) -> Parsed<Option<Token>> {
        let token = self.peek()?;
        if token.kind != kind {
            return Ok(None);
        }
        self.next().map(Some)
    }

    /// Consumes the next token, which must have the given kind.
    fn expect(&mut self, kind: TokenKind) -> Parsed<Token> {
        match self.take(kind)? {
            Some(token) => Ok(token),
            None => self.stop_here(),
        }
    }

    /// Stops at the next token. An enclosing rule may add the expected token to the error.
    fn stop_here<T>(&mut self) -> Parsed<T> {
        Err(Stop::Unexpected(self.peek()?))
    }

    /// Returns an error if the rule stopped at an unexpected token. The message contains the part
    /// of the grammar (`within`) and the `expected` token.
    fn within<T>(&self, parsed: Parsed<T>, within: &str, expected: &str) -> Parsed<T> {
        parsed.map_err(|stop| match stop {
            Stop::Unexpected(token) => self.unexpected(token, within, expected).into(),
            failed => failed,
        })
    }

    fn unexpected(&self, token: Token, within: &str, expected: &str) -> SyntaxError {
        let mut message = format!("unexpected {}", token.kind.describe(self.lexer.text(token)));
        if !within.is_empty() {
            message.push_str(&format!(" in {within}"));
        }
        if !expected.is_empty() {
            message.push_str(&format!(", expected {expected}"));
        }
        SyntaxError::new(token.start, message)
    }

    fn text(&self, token: Token) -> &'a str {
        self.lexer.text(token)
    }

    /// Returns the value of a number or duration token.
    fn number_literal(&self, token: Token) -> Parsed<NumberLiteral> {
        let text = self.text(token);
        let is_duration = token.kind == TokenKind::Duration;
        let value = match is_duration {
            true => parse_duration(text)
                .map(|duration| duration.as_millis() as f64 / 1000.0)
                .map_err(|e| e.to_string()),
            false => parse_number(text).map_err(|why| {
                let text = quote(text.as_bytes());
                format!("error parsing number: strconv.ParseFloat: parsing {text}: {why}")
            }),
        };
        match value {
            Ok(value) => Ok(NumberLiteral { value, is_duration }),
            Err(why) => fail(token.start, why),
        }
    }

    /// Parses a number or duration with an optional sign, and returns its value.
    fn signed_number(&mut self) -> Parsed<f64> {
        let sign = self.take_sign()?;
        let token = self.peek()?;
        if !matches!(token.kind, TokenKind::Number | TokenKind::Duration) {
            return self.stop_here();
        }
        self.next()?;
        let value = self.number_literal(token)?.value;
        Ok(match sign {
            Some((UnaryOp::Minus, _)) => -value,
            _ => value,
        })
    }

    /// Parses items separated by commas up to a token of kind `close`, which it returns. A trailing
    /// comma is allowed. Any other token after an item is an error in the part of the grammar
    /// called `within`.
    fn list(
        &mut self,
        (close, shown): (TokenKind, &str),
        within: &str,
        mut item: impl FnMut(&mut Self) -> Parsed<()>,
    ) -> Parsed<Token> {
        loop {
            if let Some(token) = self.take(close)? {
                return Ok(token);
            }
            self.reserve(LIST_ITEM_BYTES)?;
            item(self)?;
            if self.take(TokenKind::Comma)?.is_none() && self.peek()?.kind != close {
                let stop = self.stop_here();
                return self.within(stop, within, &format!("\",\" or {shown}"));
            }
        }
    }

    /// Reserves memory for something that is about to be allocated.
    fn reserve(&mut self, bytes: usize) -> Parsed<()> {
        let room = self.memory.grow(bytes);
        room.map_err(|e| Stop::Limited(e.message))
    }

    /// Runs a rule that may recurse, with sufficient stack and a limited depth.
    fn deeper<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth > HEIGHT_MAX {
            return self.too_high(self.taken_end);
        }
        self.depth += 1;
        let parsed = deeper(|| rule(self));
        self.depth -= 1;
        parsed
    }

    /// Runs a rule inside one more level of parentheses, calls or signs.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
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
        let parsed = self.deeper(rule);
        self.nesting -= 1;
        parsed
    }

    /// Updates the height after a node was built on trees of which the highest has `height`, and
    /// reserves memory for the node.
    fn built_on(&mut self, height: u32, span: Span) -> Parsed<()> {
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
    Err(SyntaxError::new(at, message).into())
}

fn span(start: usize, end: usize) -> Span {
    Span {
        start: start as u32,
        end: end as u32,
    }
}
