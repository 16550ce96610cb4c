//! Parses duration expressions: between brackets and after `offset`.
//!
//! After `offset` the duration ends after a number, a call or a negated expression in parentheses,
//! so `foo offset -2 ^ 2` is a power of `foo offset -2`. Any other duration extends as far as
//! possible.

use super::{NESTING_MAX, Parsed, Parser, SIGN_OPERAND_PRECEDENCE, fail, span};
use crate::ast::{BinaryOp, Duration, DurationExpr, DurationKind, NumberLiteral, Span, UnaryOp};
use crate::durations::DURATION_SECONDS_MAX;
use crate::lexer::{Token, TokenKind, Word};

impl Parser<'_> {
    /// Parses a duration between brackets. A constant must be positive.
    pub(super) fn positive_duration(&mut self) -> Parsed<Duration> {
        let expr = self.duration_operators_from(0)?;
        if let DurationKind::Number(literal) = &expr.kind
            && literal.value <= 0.0
        {
            return fail(expr.span.start as usize, "duration must be greater than 0");
        }
        Ok(into_duration(expr))
    }

    /// Parses a duration after `offset`. Also returns whether it is the constant zero.
    pub(super) fn offset_duration(&mut self) -> Parsed<(Duration, bool)> {
        let expr = self.offset_expression()?;
        let is_zero = matches!(&expr.kind, DurationKind::Number(n) if nanoseconds(*n) == 0.0);
        Ok((into_duration(expr), is_zero))
    }

    fn offset_expression(&mut self) -> Parsed<DurationExpr> {
        if let Some((sign, token)) = self.take_sign()? {
            return self.signed_offset(sign, token);
        }
        let goes_on = self.peek()?.kind == TokenKind::LeftParen;
        let operand = self.checked_operand()?;
        if goes_on {
            return self.duration_operators_after(operand, 0);
        }
        Ok(operand)
    }

    fn signed_offset(&mut self, sign: UnaryOp, token: Token) -> Parsed<DurationExpr> {
        match self.peek()?.kind {
            TokenKind::LeftParen => {
                self.next()?;
                let inner = self.duration_operators_from(0)?;
                self.expect(TokenKind::RightParen)?;
                self.apply_sign(sign, token, parenthesized(inner))
            }
            TokenKind::Operator(_) => {
                let operand = self.duration_operators_from(SIGN_OPERAND_PRECEDENCE)?;
                let signed = self.apply_sign(sign, token, operand)?;
                self.duration_operators_after(signed, 0)
            }
            _ => {
                let mut operand = self.duration_operand()?;
                operand.span.start = token.start as u32;
                self.check_operand(&operand)?;
                self.apply_sign(sign, token, operand)
            }
        }
    }

    fn duration_operators_from(&mut self, precedence_min: u8) -> Parsed<DurationExpr> {
        self.nested(|parser| {
            let left = match parser.take_sign()? {
                None => parser.checked_operand()?,
                Some((sign, token)) => {
                    let operand = parser.duration_operators_from(SIGN_OPERAND_PRECEDENCE)?;
                    parser.apply_sign(sign, token, operand)?
                }
            };
            parser.duration_operators_after(left, precedence_min)
        })
    }

    fn duration_operators_after(
        &mut self,
        left: DurationExpr,
        precedence_min: u8,
    ) -> Parsed<DurationExpr> {
        let mut left = left;
        loop {
            let token = self.peek()?;
            let TokenKind::Operator(op) = token.kind else {
                return Ok(left);
            };
            let precedence = op.precedence();
            let is_allowed = op.is_arithmetic() && op != BinaryOp::Atan2;
            if !is_allowed || precedence < precedence_min {
                return Ok(left);
            }
            self.next()?;
            let left_height = self.height;
            let right = self.duration_operators_from(precedence + u8::from(op != BinaryOp::Pow))?;
            left = self.duration_binary(op, token, left, right)?;
            self.duration_built_on(left_height.max(self.height), left.span)?;
        }
    }

    fn duration_binary(
        &mut self,
        op: BinaryOp,
        token: Token,
        left: DurationExpr,
        right: DurationExpr,
    ) -> Parsed<DurationExpr> {
        self.require_duration_expressions(left.span)?;
        if let DurationKind::Number(literal) = &right.kind
            && literal.value == 0.0
        {
            match op {
                BinaryOp::Div => return fail(token.start, "division by zero"),
                BinaryOp::Mod => return fail(token.start, "modulo by zero"),
                _ => {}
            }
        }
        let span = left.span.to(right.span);
        let kind = DurationKind::Binary(op, Box::new(left), Box::new(right));
        Ok(DurationExpr { kind, span })
    }

    fn checked_operand(&mut self) -> Parsed<DurationExpr> {
        let operand = self.duration_operand()?;
        self.check_operand(&operand)?;
        Ok(operand)
    }

    fn check_operand(&self, operand: &DurationExpr) -> Parsed<()> {
        match operand.kind {
            DurationKind::Step
            | DurationKind::Range
            | DurationKind::MaxOf(..)
            | DurationKind::MinOf(..) => self.require_duration_expressions(operand.span),
            _ => Ok(()),
        }
    }

    fn duration_operand(&mut self) -> Parsed<DurationExpr> {
        let token = self.peek()?;
        self.height = 0;
        match token.kind {
            TokenKind::Number | TokenKind::Duration => {
                self.next()?;
                let literal = self.number_literal(token)?;
                duration_number(literal, span(token.start, token.end), token.start)
            }
            TokenKind::Word(Word::Step) => self.duration_constant(DurationKind::Step),
            TokenKind::Word(Word::Range) => self.duration_constant(DurationKind::Range),
            TokenKind::Word(Word::MaxOf) => self.duration_choice(DurationKind::MaxOf),
            TokenKind::Word(Word::MinOf) => self.duration_choice(DurationKind::MinOf),
            TokenKind::LeftParen => {
                self.next()?;
                let inner = self.duration_operators_from(0)?;
                self.expect(TokenKind::RightParen)?;
                self.require_duration_expressions(inner.span)?;
                Ok(parenthesized(inner))
            }
            _ => self.stop_here(),
        }
    }

    fn duration_constant(&mut self, kind: DurationKind) -> Parsed<DurationExpr> {
        let word = self.next()?;
        self.expect(TokenKind::LeftParen)?;
        let close = self.expect(TokenKind::RightParen)?;
        let span = span(word.start, close.end);
        Ok(DurationExpr { kind, span })
    }

    fn duration_choice(
        &mut self,
        kind: fn(Box<DurationExpr>, Box<DurationExpr>) -> DurationKind,
    ) -> Parsed<DurationExpr> {
        self.next()?;
        self.expect(TokenKind::LeftParen)?;
        let left = self.duration_operators_from(0)?;
        let left_height = self.height;
        self.expect(TokenKind::Comma)?;
        let right = self.duration_operators_from(0)?;
        self.expect(TokenKind::RightParen)?;
        let span = left.span.to(right.span);
        self.duration_built_on(left_height.max(self.height), span)?;
        let kind = kind(Box::new(left), Box::new(right));
        Ok(DurationExpr { kind, span })
    }

    fn apply_sign(
        &mut self,
        sign: UnaryOp,
        token: Token,
        operand: DurationExpr,
    ) -> Parsed<DurationExpr> {
        let whole = span(token.start, operand.span.end as usize);
        if let DurationKind::Number(mut literal) = operand.kind {
            if sign == UnaryOp::Minus {
                literal.value = -literal.value;
            }
            return duration_number(literal, whole, token.start);
        }
        if sign == UnaryOp::Plus {
            return Ok(operand);
        }
        self.duration_built_on(self.height, whole)?;
        Ok(DurationExpr {
            kind: DurationKind::Negative(Box::new(operand)),
            span: whole,
        })
    }

    /// Checks the height of a duration and updates the parser like [`Parser::built_on`]. The limit
    /// is lower than that of expressions.
    fn duration_built_on(&mut self, height: u32, span: Span) -> Parsed<()> {
        if height >= NESTING_MAX {
            return fail(
                span.start as usize,
                format!(
                    "duration expression has too many operators: {} or more, limit {NESTING_MAX}",
                    NESTING_MAX + 1
                ),
            );
        }
        self.built_on(height, span)
    }

    fn require_duration_expressions(&self, span: Span) -> Parsed<()> {
        if self.features.duration_expressions {
            return Ok(());
        }
        let message = "experimental duration expression is not enabled";
        fail(span.start as usize, message)
    }
}

fn duration_number(literal: NumberLiteral, span: Span, blame: usize) -> Parsed<DurationExpr> {
    if literal.value > DURATION_SECONDS_MAX || literal.value < -DURATION_SECONDS_MAX {
        return fail(blame, "duration out of range");
    }
    let kind = DurationKind::Number(literal);
    Ok(DurationExpr { kind, span })
}

/// Adds parentheses to a duration. Parentheses around a number or around other parentheses are
/// dropped, as in the printed form of Prometheus. The span excludes the parentheses.
fn parenthesized(inner: DurationExpr) -> DurationExpr {
    if matches!(inner.kind, DurationKind::Number(_) | DurationKind::Paren(_)) {
        return inner;
    }
    let span = inner.span;
    let kind = DurationKind::Paren(Box::new(inner));
    DurationExpr { kind, span }
}

fn into_duration(expr: DurationExpr) -> Duration {
    match expr.kind {
        DurationKind::Number(literal) => {
            // Rounded to nanoseconds and truncated to milliseconds, as in Prometheus.
            Duration::Millis((nanoseconds(literal) as i64) / 1_000_000)
        }
        _ => Duration::Expr(Box::new(expr)),
    }
}

fn nanoseconds(literal: NumberLiteral) -> f64 {
    (literal.value * 1e9).round()
}
