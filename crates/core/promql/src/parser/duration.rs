//! Parses duration expressions: between brackets and after `offset`.
//!
//! After `offset` the duration ends after a number, a call or a negated expression in parentheses,
//! so `foo offset -2 ^ 2` is a power of `foo offset -2`. Any other duration extends as far as
//! possible.

use super::{NESTING_MAX, Parsed, PromqlParser, SIGN_OPERAND_PRECEDENCE, fail, span};
use crate::ast::{
    BinaryOp, DurationExpr, DurationExprKind, NumberLiteral, PositionRange, QueryDuration, UnaryOp,
};
use crate::durations::DURATION_SECONDS_MAX;
use crate::lexer::{PromqlKeyword, PromqlToken, PromqlTokenKind};

impl PromqlParser<'_> {
    /// Parses a duration between brackets. A constant must be positive.
    pub(super) fn parse_positive_duration(&mut self) -> Parsed<QueryDuration> {
        let expr = self.parse_duration_operators_from(0)?;
        if let DurationExprKind::Number(literal) = &expr.kind
            && literal.value <= 0.0
        {
            return fail(expr.span.start as usize, "duration must be greater than 0");
        }
        Ok(into_duration(expr))
    }

    /// Parses a duration after `offset`. Also returns whether it is the constant zero.
    pub(super) fn parse_offset_duration(&mut self) -> Parsed<(QueryDuration, bool)> {
        let expr = self.parse_offset_expression()?;
        let is_zero = matches!(&expr.kind, DurationExprKind::Number(n) if nanoseconds(*n) == 0.0);
        Ok((into_duration(expr), is_zero))
    }

    fn parse_offset_expression(&mut self) -> Parsed<DurationExpr> {
        if let Some((sign, token)) = self.tokens.take_sign()? {
            return self.parse_signed_offset(sign, token);
        }
        let goes_on = self.tokens.peek()?.kind == PromqlTokenKind::LeftParen;
        let operand = self.checked_operand()?;
        if goes_on {
            return self.parse_duration_operators_after(operand, 0);
        }
        Ok(operand)
    }

    fn parse_signed_offset(&mut self, sign: UnaryOp, token: PromqlToken) -> Parsed<DurationExpr> {
        match self.tokens.peek()?.kind {
            PromqlTokenKind::LeftParen => {
                self.tokens.next()?;
                let inner = self.parse_duration_operators_from(0)?;
                self.tokens.expect(PromqlTokenKind::RightParen)?;
                self.apply_sign(sign, token, add_parentheses(inner))
            }
            PromqlTokenKind::Operator(_) => {
                let operand = self.parse_duration_operators_from(SIGN_OPERAND_PRECEDENCE)?;
                let signed = self.apply_sign(sign, token, operand)?;
                self.parse_duration_operators_after(signed, 0)
            }
            _ => {
                let mut operand = self.parse_duration_operand()?;
                operand.span.start = token.start as u32;
                self.check_operand(&operand)?;
                self.apply_sign(sign, token, operand)
            }
        }
    }

    fn parse_duration_operators_from(&mut self, precedence_min: u8) -> Parsed<DurationExpr> {
        self.parse_nested(|parser| {
            let left = match parser.tokens.take_sign()? {
                None => parser.checked_operand()?,
                Some((sign, token)) => {
                    let operand = parser.parse_duration_operators_from(SIGN_OPERAND_PRECEDENCE)?;
                    parser.apply_sign(sign, token, operand)?
                }
            };
            parser.parse_duration_operators_after(left, precedence_min)
        })
    }

    fn parse_duration_operators_after(
        &mut self,
        left: DurationExpr,
        precedence_min: u8,
    ) -> Parsed<DurationExpr> {
        let mut left = left;
        loop {
            let token = self.tokens.peek()?;
            let PromqlTokenKind::Operator(op) = token.kind else {
                return Ok(left);
            };
            let precedence = op.precedence();
            let is_allowed = op.is_arithmetic() && op != BinaryOp::Atan2;
            if !is_allowed || precedence < precedence_min {
                return Ok(left);
            }
            self.tokens.next()?;
            let left_height = self.limits.height;
            let right =
                self.parse_duration_operators_from(precedence + u8::from(op != BinaryOp::Pow))?;
            left = self.duration_binary(op, token, left, right)?;
            self.update_duration_height(left_height.max(self.limits.height), left.span)?;
        }
    }

    fn duration_binary(
        &mut self,
        op: BinaryOp,
        token: PromqlToken,
        left: DurationExpr,
        right: DurationExpr,
    ) -> Parsed<DurationExpr> {
        self.require_duration_expressions(left.span)?;
        if let DurationExprKind::Number(literal) = &right.kind
            && literal.value == 0.0
        {
            match op {
                BinaryOp::Div => return fail(token.start, "division by zero"),
                BinaryOp::Mod => return fail(token.start, "modulo by zero"),
                _ => {}
            }
        }
        let span = left.span.join(right.span);
        let kind = DurationExprKind::Binary(op, Box::new(left), Box::new(right));
        Ok(DurationExpr { kind, span })
    }

    fn checked_operand(&mut self) -> Parsed<DurationExpr> {
        let operand = self.parse_duration_operand()?;
        self.check_operand(&operand)?;
        Ok(operand)
    }

    fn check_operand(&self, operand: &DurationExpr) -> Parsed<()> {
        match operand.kind {
            DurationExprKind::Step
            | DurationExprKind::Range
            | DurationExprKind::MaxOf(..)
            | DurationExprKind::MinOf(..) => self.require_duration_expressions(operand.span),
            _ => Ok(()),
        }
    }

    fn parse_duration_operand(&mut self) -> Parsed<DurationExpr> {
        let token = self.tokens.peek()?;
        self.limits.height = 0;
        match token.kind {
            PromqlTokenKind::Number | PromqlTokenKind::Duration => {
                self.tokens.next()?;
                let literal = self.tokens.parse_number_literal(token)?;
                duration_number(literal, span(token.start, token.end), token.start)
            }
            PromqlTokenKind::Word(PromqlKeyword::Step) => {
                self.parse_duration_constant(DurationExprKind::Step)
            }
            PromqlTokenKind::Word(PromqlKeyword::Range) => {
                self.parse_duration_constant(DurationExprKind::Range)
            }
            PromqlTokenKind::Word(PromqlKeyword::MaxOf) => {
                self.parse_duration_choice(DurationExprKind::MaxOf)
            }
            PromqlTokenKind::Word(PromqlKeyword::MinOf) => {
                self.parse_duration_choice(DurationExprKind::MinOf)
            }
            PromqlTokenKind::LeftParen => {
                self.tokens.next()?;
                let inner = self.parse_duration_operators_from(0)?;
                self.tokens.expect(PromqlTokenKind::RightParen)?;
                self.require_duration_expressions(inner.span)?;
                Ok(add_parentheses(inner))
            }
            _ => self.tokens.stop_here(),
        }
    }

    fn parse_duration_constant(&mut self, kind: DurationExprKind) -> Parsed<DurationExpr> {
        let word = self.tokens.next()?;
        self.tokens.expect(PromqlTokenKind::LeftParen)?;
        let close = self.tokens.expect(PromqlTokenKind::RightParen)?;
        let span = span(word.start, close.end);
        Ok(DurationExpr { kind, span })
    }

    fn parse_duration_choice(
        &mut self,
        kind: fn(Box<DurationExpr>, Box<DurationExpr>) -> DurationExprKind,
    ) -> Parsed<DurationExpr> {
        self.tokens.next()?;
        self.tokens.expect(PromqlTokenKind::LeftParen)?;
        let left = self.parse_duration_operators_from(0)?;
        let left_height = self.limits.height;
        self.tokens.expect(PromqlTokenKind::Comma)?;
        let right = self.parse_duration_operators_from(0)?;
        self.tokens.expect(PromqlTokenKind::RightParen)?;
        let span = left.span.join(right.span);
        self.update_duration_height(left_height.max(self.limits.height), span)?;
        let kind = kind(Box::new(left), Box::new(right));
        Ok(DurationExpr { kind, span })
    }

    fn apply_sign(
        &mut self,
        sign: UnaryOp,
        token: PromqlToken,
        operand: DurationExpr,
    ) -> Parsed<DurationExpr> {
        let whole = span(token.start, operand.span.end as usize);
        if let DurationExprKind::Number(mut literal) = operand.kind {
            if sign == UnaryOp::Minus {
                literal.value = -literal.value;
            }
            return duration_number(literal, whole, token.start);
        }
        if sign == UnaryOp::Plus {
            return Ok(operand);
        }
        self.update_duration_height(self.limits.height, whole)?;
        Ok(DurationExpr {
            kind: DurationExprKind::Negative(Box::new(operand)),
            span: whole,
        })
    }

    /// Checks the height of a duration and updates the parser like
    /// [`super::limits::TreeLimits::update_height`].
    /// The limit is lower than that of expressions.
    fn update_duration_height(&mut self, height: u32, span: PositionRange) -> Parsed<()> {
        if height >= NESTING_MAX {
            return fail(
                span.start as usize,
                format!(
                    "duration expression has too many operators: {} or more, limit {NESTING_MAX}",
                    NESTING_MAX + 1
                ),
            );
        }
        self.limits.update_height(height, span)
    }

    fn require_duration_expressions(&self, span: PositionRange) -> Parsed<()> {
        if self.features.duration_expressions {
            return Ok(());
        }
        let message = "experimental duration expression is not enabled";
        fail(span.start as usize, message)
    }
}

fn duration_number(
    literal: NumberLiteral,
    span: PositionRange,
    blame: usize,
) -> Parsed<DurationExpr> {
    if literal.value > DURATION_SECONDS_MAX || literal.value < -DURATION_SECONDS_MAX {
        return fail(blame, "duration out of range");
    }
    let kind = DurationExprKind::Number(literal);
    Ok(DurationExpr { kind, span })
}

/// Adds parentheses to a duration. Parentheses around a number or around other parentheses are
/// dropped, as in the printed form of Prometheus. The span excludes the parentheses.
fn add_parentheses(inner: DurationExpr) -> DurationExpr {
    if matches!(
        inner.kind,
        DurationExprKind::Number(_) | DurationExprKind::Paren(_)
    ) {
        return inner;
    }
    let span = inner.span;
    let kind = DurationExprKind::Paren(Box::new(inner));
    DurationExpr { kind, span }
}

fn into_duration(expr: DurationExpr) -> QueryDuration {
    match expr.kind {
        DurationExprKind::Number(literal) => {
            // Rounded to nanoseconds and truncated to milliseconds, as in Prometheus.
            QueryDuration::Millis((nanoseconds(literal) as i64) / 1_000_000)
        }
        _ => QueryDuration::Expr(Box::new(expr)),
    }
}

fn nanoseconds(literal: NumberLiteral) -> f64 {
    (literal.value * 1e9).round()
}
