//! Parses selectors and the modifiers after them: `[5m]`, `[30m:1m]`, `offset`, `@`, `anchored` and
//! `smoothed`.
//!
//! The grammar accepts these modifiers after any expression. Where they are not allowed, the error
//! has a specific text.

use super::{Parsed, PromqlParser, fail, span};
use crate::ast::{
    AtModifier, BinaryOp, Expr, ExprKind, MatrixSelector, PositionRange, QueryDuration,
    SubqueryExpr, VectorSelector, WindowEdges,
};
use crate::go_format::format_fixed;
use crate::lexer::{PromqlKeyword, PromqlToken, PromqlTokenKind, unquote};
use crate::syntax_error::QuerySyntaxError;
use firn_model::labels::METRIC_NAME;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::regex::parse_memory_bytes;

/// The expected tokens after `offset`, as error messages of Prometheus list them.
const OFFSET_EXPECTED: &str = "number, duration, step(), or range()";

/// The modifiers that a selector already has. A repeated modifier is an error.
#[derive(Clone, Copy, Debug, Default)]
struct SeenModifiers {
    offset: bool,
    /// True if the offset is a constant and not zero.
    plain_offset: bool,
    at: bool,
    time: bool,
}

/// The fields of a selector or subquery that modifiers change.
struct SelectorModifiers<'a> {
    offset: &'a mut QueryDuration,
    at: &'a mut Option<AtModifier>,
    /// The field for `anchored` and `smoothed`. Subqueries have none.
    edges: Option<&'a mut WindowEdges>,
}

impl PromqlParser<'_> {
    /// Parses a selector with or without a metric name.
    pub(super) fn parse_vector_selector(&mut self) -> Parsed<(VectorSelector, PositionRange)> {
        let token = self.tokens.peek()?;
        if token.kind == PromqlTokenKind::LeftBrace {
            let (matchers, braces) = self.parse_braces()?;
            return Ok((new_selector(None, matchers), braces));
        }
        if !token.kind.is_metric_name() {
            return self.tokens.stop_here();
        }
        self.tokens.next()?;
        self.parse_selector_rest(token)
    }

    /// Parses the rest of a selector after its name.
    pub(super) fn parse_selector_rest(
        &mut self,
        name: PromqlToken,
    ) -> Parsed<(VectorSelector, PositionRange)> {
        let mut matchers = Vec::new();
        let mut whole = span(name.start, name.end);
        if self.tokens.peek()?.kind == PromqlTokenKind::LeftBrace {
            let (found, braces) = self.parse_braces()?;
            matchers = found;
            whole.end = braces.end;
        }
        let text = self.tokens.text(name);
        matchers.push(new_matcher(
            name,
            METRIC_NAME,
            MatchOp::Equal,
            text.as_bytes(),
        )?);
        Ok((new_selector(Some(text.to_owned()), matchers), whole))
    }

    fn parse_braces(&mut self) -> Parsed<(Vec<Matcher>, PositionRange)> {
        let open = self.tokens.expect(PromqlTokenKind::LeftBrace)?;
        let mut matchers = Vec::new();
        let kind = PromqlTokenKind::RightBrace;
        let close = self.parse_list(kind, "\"}\"", "label matching", |parser| {
            matchers.push(parser.parse_label_matcher()?);
            Ok(())
        })?;
        Ok((matchers, span(open.start, close.end)))
    }

    fn parse_label_matcher(&mut self) -> Parsed<Matcher> {
        let token = self.tokens.peek()?;
        let name = match token.kind {
            PromqlTokenKind::Identifier => self.tokens.text(token).as_bytes().to_vec(),
            PromqlTokenKind::String => unquote(self.tokens.text(token)),
            _ => {
                let stop = self.tokens.stop_here();
                return self
                    .tokens
                    .within(stop, "label matching", "identifier or \"}\"");
            }
        };
        self.tokens.next()?;
        let op = match self.tokens.peek()?.kind {
            PromqlTokenKind::Assign => MatchOp::Equal,
            PromqlTokenKind::Operator(BinaryOp::NotEqual) => MatchOp::NotEqual,
            PromqlTokenKind::EqualRegex => MatchOp::Regex,
            PromqlTokenKind::NotEqualRegex => MatchOp::NotRegex,
            _ if token.kind == PromqlTokenKind::String => {
                return new_matcher(token, METRIC_NAME, MatchOp::Equal, &name);
            }
            _ => {
                let stop = self.tokens.stop_here();
                return self
                    .tokens
                    .within(stop, "label matching", "label matching operator");
            }
        };
        self.tokens.next()?;
        let value = self.tokens.expect(PromqlTokenKind::String);
        let value = self.tokens.within(value, "label matching", "string")?;
        // No stored label has such a name, and Prometheus would not find a series, either.
        let Ok(name) = String::from_utf8(name) else {
            let name = self.tokens.text(token);
            return fail(token.start, format!("invalid label name: {name}"));
        };
        let value = unquote(self.tokens.text(value));
        self.limits.reserve(match op {
            MatchOp::Equal | MatchOp::NotEqual => 4 * value.len(),
            MatchOp::Regex | MatchOp::NotRegex => value.len() + parse_memory_bytes(&value),
        })?;
        new_matcher(token, &name, op, &value)
    }

    /// Parses the modifiers after an operand and applies them to it, in any permitted order.
    pub(super) fn parse_selector_modifiers(&mut self, operand: Expr) -> Parsed<Expr> {
        let mut expr = operand;
        let mut seen = SeenModifiers::default();
        loop {
            let height = self.limits.height;
            match self.tokens.peek()?.kind {
                PromqlTokenKind::LeftBracket => expr = self.parse_brackets(expr, &mut seen)?,
                PromqlTokenKind::At => self.parse_at_modifier(&mut expr, &mut seen)?,
                PromqlTokenKind::Word(PromqlKeyword::Offset) => {
                    self.parse_offset_modifier(&mut expr, &mut seen)?
                }
                PromqlTokenKind::Word(PromqlKeyword::Anchored) => {
                    self.parse_edges(&mut expr, WindowEdges::Anchored)?
                }
                PromqlTokenKind::Word(PromqlKeyword::Smoothed) => {
                    self.parse_edges(&mut expr, WindowEdges::Smoothed)?
                }
                _ => return Ok(expr),
            }
            // The durations of the modifier changed the height.
            self.limits.height = self.limits.height.max(height);
        }
    }

    fn parse_brackets(&mut self, expr: Expr, seen: &mut SeenModifiers) -> Parsed<Expr> {
        let height = self.limits.height;
        let open = self.tokens.next()?;
        let range = self.parse_positive_duration();
        let range = self
            .tokens
            .within(range, "subquery or range selector", OFFSET_EXPECTED)?;
        if self.tokens.take(PromqlTokenKind::RightBracket)?.is_some() {
            return self.parse_range_selector(expr, range, open, *seen);
        }
        let colon = self.tokens.expect(PromqlTokenKind::Colon);
        self.tokens
            .within(colon, "subquery or range", "\":\" or \"]\"")?;
        let step = match self.tokens.take(PromqlTokenKind::RightBracket)? {
            Some(_) => None,
            None => Some(self.parse_subquery_step()?),
        };
        *seen = SeenModifiers::default();
        let whole = span(expr.span.start as usize, self.tokens.taken_end);
        self.limits.update_height(height, whole)?;
        let subquery = SubqueryExpr {
            expr,
            range,
            step,
            offset: QueryDuration::default(),
            at: None,
        };
        Ok(Expr::new(ExprKind::Subquery(Box::new(subquery)), whole))
    }

    fn parse_subquery_step(&mut self) -> Parsed<QueryDuration> {
        let step = self.parse_positive_duration();
        let step = self.tokens.within(
            step,
            "subquery selector",
            "number, duration, step(), range(), or \"]\"",
        )?;
        let close = self.tokens.expect(PromqlTokenKind::RightBracket);
        self.tokens.within(close, "subquery selector", "\"]\"")?;
        Ok(step)
    }

    fn parse_range_selector(
        &mut self,
        expr: Expr,
        range: QueryDuration,
        open: PromqlToken,
        seen: SeenModifiers,
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
        let whole = span(expr.span.start as usize, self.tokens.taken_end);
        let matrix = MatrixSelector {
            vector,
            vector_span: expr.span,
            range,
        };
        Ok(Expr::new(ExprKind::Matrix(matrix), whole))
    }

    fn parse_offset_modifier(&mut self, expr: &mut Expr, seen: &mut SeenModifiers) -> Parsed<()> {
        self.tokens.next()?;
        let offset = self.parse_offset_duration();
        let (offset, is_zero) = self.tokens.within(offset, "offset", OFFSET_EXPECTED)?;
        let start = expr.span.start as usize;
        let Some(modified) = borrow_modifiers(expr) else {
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
        seen.plain_offset = seen.offset && matches!(offset, QueryDuration::Millis(_));
        *modified.offset = offset;
        expr.span.end = self.tokens.taken_end as u32;
        Ok(())
    }

    fn parse_edges(&mut self, expr: &mut Expr, wanted: WindowEdges) -> Parsed<()> {
        self.tokens.next()?;
        let start = expr.span.start as usize;
        let word = if wanted == WindowEdges::Anchored {
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
        let Some(modified) = borrow_modifiers(expr) else {
            return fail(start, format!("{word} modifier not implemented"));
        };
        let Some(edges) = modified.edges else {
            return fail(
                start,
                format!("{word} modifier is not supported for subqueries"),
            );
        };
        if *edges != WindowEdges::Plain && *edges != wanted {
            let message = "anchored and smoothed modifiers cannot be used together";
            return fail(start, message);
        }
        // The span is not extended. Prometheus does not extend it either, and later error messages
        // show it.
        *edges = wanted;
        Ok(())
    }

    fn parse_at_modifier(&mut self, expr: &mut Expr, seen: &mut SeenModifiers) -> Parsed<()> {
        self.tokens.next()?;
        let at = self.parse_at_value(expr);
        let at = self.tokens.within(at, "@", "timestamp")?;
        let start = expr.span.start as usize;
        let Some(modified) = borrow_modifiers(expr) else {
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
        seen.time = matches!(at, AtModifier::Time(_));
        *modified.at = Some(at);
        expr.span.end = self.tokens.taken_end as u32;
        Ok(())
    }

    fn parse_at_value(&mut self, expr: &Expr) -> Parsed<AtModifier> {
        let bound = match self.tokens.peek()?.kind {
            PromqlTokenKind::Word(PromqlKeyword::Start) => AtModifier::Start,
            PromqlTokenKind::Word(PromqlKeyword::End) => AtModifier::End,
            _ => return self.parse_timestamp(expr.span.start as usize),
        };
        self.tokens.next()?;
        self.tokens.expect(PromqlTokenKind::LeftParen)?;
        self.tokens.expect(PromqlTokenKind::RightParen)?;
        Ok(bound)
    }

    fn parse_timestamp(&mut self, start: usize) -> Parsed<AtModifier> {
        let seconds = self.tokens.parse_signed_number()?;
        let limit = i64::MAX as f64;
        // The condition is also true for NaN.
        if !(seconds > -limit && seconds < limit) {
            let seconds = format_fixed(seconds);
            return fail(
                start,
                format!("timestamp out of bounds for @ modifier: {seconds}"),
            );
        }
        Ok(AtModifier::Time((seconds * 1000.0).round() as i64))
    }
}

fn new_selector(name: Option<String>, matchers: Vec<Matcher>) -> VectorSelector {
    VectorSelector {
        name,
        matchers,
        offset: QueryDuration::default(),
        at: None,
        edges: WindowEdges::Plain,
    }
}

fn new_matcher(token: PromqlToken, name: &str, op: MatchOp, value: &[u8]) -> Parsed<Matcher> {
    let matcher = Matcher::new(name, op, value);
    Ok(matcher.map_err(|e| QuerySyntaxError::new(token.start, e.message))?)
}

/// Returns the fields that modifiers change, or `None` if the expression cannot have modifiers.
fn borrow_modifiers(expr: &mut Expr) -> Option<SelectorModifiers<'_>> {
    match &mut expr.kind {
        ExprKind::Vector(vector) => Some(borrow_vector_modifiers(vector)),
        ExprKind::Matrix(matrix) => Some(borrow_vector_modifiers(&mut matrix.vector)),
        ExprKind::Subquery(subquery) => Some(SelectorModifiers {
            offset: &mut subquery.offset,
            at: &mut subquery.at,
            edges: None,
        }),
        _ => None,
    }
}

fn borrow_vector_modifiers(vector: &mut VectorSelector) -> SelectorModifiers<'_> {
    SelectorModifiers {
        offset: &mut vector.offset,
        at: &mut vector.at,
        edges: Some(&mut vector.edges),
    }
}
