//! Parses selectors and the modifiers after them: `[5m]`, `[30m:1m]`, `offset`, `@`, `anchored` and
//! `smoothed`.
//!
//! The grammar accepts these modifiers after any expression. Where they are not allowed, the error
//! has a specific text.

use super::{Parsed, Parser, fail, span};
use crate::ast::{
    At, BinaryOp, Duration, Edges, Expr, ExprKind, MatrixSelector, Span, Subquery, VectorSelector,
};
use crate::go_format::format_fixed;
use crate::lexer::{Token, TokenKind, Word, unquote};
use crate::syntax_error::SyntaxError;
use firn_model::labels::METRIC_NAME;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::regex::reading_bytes;

/// The expected tokens after `offset`, as error messages of Prometheus list them.
const OFFSET_EXPECTED: &str = "number, duration, step(), or range()";

/// The modifiers that a selector already has. A repeated modifier is an error.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    offset: bool,
    /// True if the offset is a constant and not zero.
    plain_offset: bool,
    at: bool,
    time: bool,
}

/// The fields of a selector or subquery that modifiers change.
struct Modified<'a> {
    offset: &'a mut Duration,
    at: &'a mut Option<At>,
    /// The field for `anchored` and `smoothed`. Subqueries have none.
    edges: Option<&'a mut Edges>,
}

impl Parser<'_> {
    /// Parses a selector with or without a metric name.
    pub(super) fn vector_selector(&mut self) -> Parsed<(VectorSelector, Span)> {
        let token = self.peek()?;
        if token.kind == TokenKind::LeftBrace {
            let (matchers, braces) = self.braces()?;
            return Ok((new_selector(None, matchers), braces));
        }
        if !token.kind.is_metric_name() {
            return self.stop_here();
        }
        self.next()?;
        self.selector_named(token)
    }

    /// Parses the rest of a selector after its name.
    pub(super) fn selector_named(&mut self, name: Token) -> Parsed<(VectorSelector, Span)> {
        let mut matchers = Vec::new();
        let mut whole = span(name.start, name.end);
        if self.peek()?.kind == TokenKind::LeftBrace {
            let (found, braces) = self.braces()?;
            matchers = found;
            whole.end = braces.end;
        }
        let text = self.text(name);
        matchers.push(new_matcher(
            name,
            METRIC_NAME,
            MatchOp::Equal,
            text.as_bytes(),
        )?);
        Ok((new_selector(Some(text.to_owned()), matchers), whole))
    }

    fn braces(&mut self) -> Parsed<(Vec<Matcher>, Span)> {
        let open = self.expect(TokenKind::LeftBrace)?;
        let mut matchers = Vec::new();
        let close = (TokenKind::RightBrace, "\"}\"");
        let close = self.list(close, "label matching", |parser| {
            matchers.push(parser.label_matcher()?);
            Ok(())
        })?;
        Ok((matchers, span(open.start, close.end)))
    }

    fn label_matcher(&mut self) -> Parsed<Matcher> {
        let token = self.peek()?;
        let name = match token.kind {
            TokenKind::Identifier => self.text(token).as_bytes().to_vec(),
            TokenKind::String => unquote(self.text(token)),
            _ => {
                let stop = self.stop_here();
                return self.within(stop, "label matching", "identifier or \"}\"");
            }
        };
        self.next()?;
        let op = match self.peek()?.kind {
            TokenKind::Assign => MatchOp::Equal,
            TokenKind::Operator(BinaryOp::NotEqual) => MatchOp::NotEqual,
            TokenKind::EqualRegex => MatchOp::Regex,
            TokenKind::NotEqualRegex => MatchOp::NotRegex,
            _ if token.kind == TokenKind::String => {
                return new_matcher(token, METRIC_NAME, MatchOp::Equal, &name);
            }
            _ => {
                let stop = self.stop_here();
                return self.within(stop, "label matching", "label matching operator");
            }
        };
        self.next()?;
        let value = self.expect(TokenKind::String);
        let value = self.within(value, "label matching", "string")?;
        // No stored label has such a name, and Prometheus would not find a series, either.
        let Ok(name) = String::from_utf8(name) else {
            let name = self.text(token);
            return fail(token.start, format!("invalid label name: {name}"));
        };
        let value = unquote(self.text(value));
        self.reserve(match op {
            MatchOp::Equal | MatchOp::NotEqual => 4 * value.len(),
            MatchOp::Regex | MatchOp::NotRegex => value.len() + reading_bytes(&value),
        })?;
        new_matcher(token, &name, op, &value)
    }

    /// Parses the modifiers after an operand and applies them to it, in any permitted order.
    pub(super) fn with_selector_modifiers(&mut self, operand: Expr) -> Parsed<Expr> {
        let mut expr = operand;
        let mut seen = Seen::default();
        loop {
            let height = self.height;
            match self.peek()?.kind {
                TokenKind::LeftBracket => expr = self.brackets(expr, &mut seen)?,
                TokenKind::At => self.at_modifier(&mut expr, &mut seen)?,
                TokenKind::Word(Word::Offset) => self.offset_modifier(&mut expr, &mut seen)?,
                TokenKind::Word(Word::Anchored) => self.edges(&mut expr, Edges::Anchored)?,
                TokenKind::Word(Word::Smoothed) => self.edges(&mut expr, Edges::Smoothed)?,
                _ => return Ok(expr),
            }
            // The durations of the modifier changed the height.
            self.height = self.height.max(height);
        }
    }

    fn brackets(&mut self, expr: Expr, seen: &mut Seen) -> Parsed<Expr> {
        let height = self.height;
        let open = self.next()?;
        let range = self.positive_duration();
        let range = self.within(range, "subquery or range selector", OFFSET_EXPECTED)?;
        if self.take(TokenKind::RightBracket)?.is_some() {
            return self.range_selector(expr, range, open, *seen);
        }
        let colon = self.expect(TokenKind::Colon);
        self.within(colon, "subquery or range", "\":\" or \"]\"")?;
        let step = match self.take(TokenKind::RightBracket)? {
            Some(_) => None,
            None => Some(self.subquery_step()?),
        };
        *seen = Seen::default();
        let whole = span(expr.span.start as usize, self.taken_end);
        self.built_on(height, whole)?;
        let subquery = Subquery {
            expr,
            range,
            step,
            offset: Duration::default(),
            at: None,
        };
        Ok(Expr::new(ExprKind::Subquery(Box::new(subquery)), whole))
    }

    fn subquery_step(&mut self) -> Parsed<Duration> {
        let step = self.positive_duration();
        let step = self.within(
            step,
            "subquery selector",
            "number, duration, step(), range(), or \"]\"",
        )?;
        let close = self.expect(TokenKind::RightBracket);
        self.within(close, "subquery selector", "\"]\"")?;
        Ok(step)
    }

    fn range_selector(
        &mut self,
        expr: Expr,
        range: Duration,
        open: Token,
        seen: Seen,
    ) -> Parsed<Expr> {
        let ExprKind::Vector(vector) = expr.kind else {
            return fail(open.start, "ranges only allowed for vector selectors");
        };
        if seen.plain_offset {
            return fail(open.start, "no offset modifiers allowed before range");
        }
        if seen.time {
            return fail(open.start, "no @ modifiers allowed before range");
        }
        let whole = span(expr.span.start as usize, self.taken_end);
        let matrix = MatrixSelector {
            vector,
            vector_span: expr.span,
            range,
        };
        Ok(Expr::new(ExprKind::Matrix(matrix), whole))
    }

    fn offset_modifier(&mut self, expr: &mut Expr, seen: &mut Seen) -> Parsed<()> {
        self.next()?;
        let offset = self.offset_duration();
        let (offset, is_zero) = self.within(offset, "offset", OFFSET_EXPECTED)?;
        let start = expr.span.start as usize;
        let Some(modified) = modified(expr) else {
            return fail(
                start,
                "offset modifier must be preceded by an instant vector selector or range vector \
                 selector or a subquery",
            );
        };
        if seen.offset {
            return fail(start, "offset may not be set multiple times");
        }
        seen.offset = !is_zero;
        seen.plain_offset = seen.offset && matches!(offset, Duration::Millis(_));
        *modified.offset = offset;
        expr.span.end = self.taken_end as u32;
        Ok(())
    }

    fn edges(&mut self, expr: &mut Expr, wanted: Edges) -> Parsed<()> {
        self.next()?;
        let start = expr.span.start as usize;
        let word = if wanted == Edges::Anchored {
            "anchored"
        } else {
            "smoothed"
        };
        if !self.features.extended_range_selectors {
            return fail(
                start,
                format!("{word} modifier is experimental and not enabled"),
            );
        }
        let Some(modified) = modified(expr) else {
            return fail(start, format!("{word} modifier not implemented"));
        };
        let Some(edges) = modified.edges else {
            return fail(
                start,
                format!("{word} modifier is not supported for subqueries"),
            );
        };
        if *edges != Edges::Plain && *edges != wanted {
            let message = "anchored and smoothed modifiers cannot be used together";
            return fail(start, message);
        }
        // The span is not extended. Prometheus does not extend it either, and later error messages
        // show it.
        *edges = wanted;
        Ok(())
    }

    fn at_modifier(&mut self, expr: &mut Expr, seen: &mut Seen) -> Parsed<()> {
        self.next()?;
        let at = self.at_value(expr);
        let at = self.within(at, "@", "timestamp")?;
        let start = expr.span.start as usize;
        let Some(modified) = modified(expr) else {
            return fail(
                start,
                "@ modifier must be preceded by an instant vector selector or range vector \
                 selector or a subquery",
            );
        };
        if seen.at {
            return fail(start, "@ <timestamp> may not be set multiple times");
        }
        seen.at = true;
        seen.time = matches!(at, At::Time(_));
        *modified.at = Some(at);
        expr.span.end = self.taken_end as u32;
        Ok(())
    }

    fn at_value(&mut self, expr: &Expr) -> Parsed<At> {
        let bound = match self.peek()?.kind {
            TokenKind::Word(Word::Start) => At::Start,
            TokenKind::Word(Word::End) => At::End,
            _ => return self.timestamp(expr.span.start as usize),
        };
        self.next()?;
        self.expect(TokenKind::LeftParen)?;
        self.expect(TokenKind::RightParen)?;
        Ok(bound)
    }

    fn timestamp(&mut self, start: usize) -> Parsed<At> {
        let seconds = self.signed_number()?;
        let limit = i64::MAX as f64;
        // The condition is also true for NaN.
        if !(seconds > -limit && seconds < limit) {
            let seconds = format_fixed(seconds);
            return fail(
                start,
                format!("timestamp out of bounds for @ modifier: {seconds}"),
            );
        }
        Ok(At::Time((seconds * 1000.0).round() as i64))
    }
}

fn new_selector(name: Option<String>, matchers: Vec<Matcher>) -> VectorSelector {
    VectorSelector {
        name,
        matchers,
        offset: Duration::default(),
        at: None,
        edges: Edges::Plain,
    }
}

fn new_matcher(token: Token, name: &str, op: MatchOp, value: &[u8]) -> Parsed<Matcher> {
    let matcher = Matcher::new(name, op, value);
    Ok(matcher.map_err(|e| SyntaxError::new(token.start, e.message))?)
}

/// Returns the fields that modifiers change, or `None` if the expression cannot have modifiers.
fn modified(expr: &mut Expr) -> Option<Modified<'_>> {
    match &mut expr.kind {
        ExprKind::Vector(vector) => Some(of_vector(vector)),
        ExprKind::Matrix(matrix) => Some(of_vector(&mut matrix.vector)),
        ExprKind::Subquery(subquery) => Some(Modified {
            offset: &mut subquery.offset,
            at: &mut subquery.at,
            edges: None,
        }),
        _ => None,
    }
}

fn of_vector(vector: &mut VectorSelector) -> Modified<'_> {
    Modified {
        offset: &mut vector.offset,
        at: &mut vector.at,
        edges: Some(&mut vector.edges),
    }
}
