//! Parses expressions: operators by precedence, calls, aggregations, parentheses and literals.

use super::{NODE_BYTES, Parsed, Parser, SIGN_OPERAND_PRECEDENCE, fail, span};
use crate::ast::{
    Aggregate, AggregateOp, Binary, BinaryOp, Call, Cardinality, Expr, ExprKind, Grouping,
    Matching, Span, UnaryOp,
};
use crate::functions;
use crate::lexer::{Token, TokenKind, Word, unquote};
use crate::quote::quote;

/// The modifiers between an operator and its right side: `bool` and vector matching.
#[derive(Default)]
struct Modifiers {
    returns_bool: bool,
    matching: Matching,
}

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.operators_from(0)
    }

    /// Parses an expression whose outermost operators have at least the precedence
    /// `precedence_min`.
    fn operators_from(&mut self, precedence_min: u8) -> Parsed<Expr> {
        self.deeper(|parser| {
            let mut left = parser.signed()?;
            loop {
                let token = parser.peek()?;
                let TokenKind::Operator(op) = token.kind else {
                    return Ok(left);
                };
                if op.precedence() < precedence_min {
                    return Ok(left);
                }
                parser.next()?;
                left = parser.binary(left, op)?;
            }
        })
    }

    fn binary(&mut self, left: Expr, op: BinaryOp) -> Parsed<Expr> {
        let left_height = self.height;
        let modifiers = self.modifiers()?;
        let to_the_right = u8::from(op != BinaryOp::Pow);
        let right = self.operators_from(op.precedence() + to_the_right)?;
        let whole = left.span.to(right.span);
        let fills = modifiers
            .matching
            .fill_left
            .or(modifiers.matching.fill_right);
        if fills.is_some() && !self.features.binop_fill_modifiers {
            let message = "binop fill modifiers are experimental and not enabled";
            return fail(whole.start as usize, message);
        }
        self.built_on(left_height.max(self.height), whole)?;
        let kind = ExprKind::Binary(Box::new(Binary {
            op,
            left,
            right,
            returns_bool: modifiers.returns_bool,
            matching: Some(modifiers.matching),
        }));
        Ok(Expr::new(kind, whole))
    }

    fn modifiers(&mut self) -> Parsed<Modifiers> {
        let mut modifiers = Modifiers {
            returns_bool: self.take_word(Word::Bool)?,
            ..Modifiers::default()
        };
        let matching = &mut modifiers.matching;
        matching.on = self.take_word(Word::On)?;
        if matching.on || self.take_word(Word::Ignoring)? {
            matching.labels = self.grouping_labels()?;
            if self.take_word(Word::GroupLeft)? {
                matching.cardinality = Cardinality::ManyToOne;
                matching.include = self.maybe_grouping_labels()?;
            } else if self.take_word(Word::GroupRight)? {
                matching.cardinality = Cardinality::OneToMany;
                matching.include = self.maybe_grouping_labels()?;
            }
        }
        self.fills(matching)?;
        Ok(modifiers)
    }

    fn fills(&mut self, matching: &mut Matching) -> Parsed<()> {
        if self.take_word(Word::Fill)? {
            let value = self.fill_value()?;
            matching.fill_left = Some(value);
            matching.fill_right = Some(value);
        } else if self.take_word(Word::FillLeft)? {
            matching.fill_left = Some(self.fill_value()?);
            if self.take_word(Word::FillRight)? {
                matching.fill_right = Some(self.fill_value()?);
            }
        } else if self.take_word(Word::FillRight)? {
            matching.fill_right = Some(self.fill_value()?);
            if self.take_word(Word::FillLeft)? {
                matching.fill_left = Some(self.fill_value()?);
            }
        }
        Ok(())
    }

    fn fill_value(&mut self) -> Parsed<f64> {
        self.expect(TokenKind::LeftParen)?;
        let value = self.signed_number()?;
        self.expect(TokenKind::RightParen)?;
        Ok(value)
    }

    pub(super) fn take_word(&mut self, word: Word) -> Parsed<bool> {
        Ok(self.take(TokenKind::Word(word))?.is_some())
    }

    pub(super) fn take_sign(&mut self) -> Parsed<Option<(UnaryOp, Token)>> {
        let token = self.peek()?;
        let sign = match token.kind {
            TokenKind::Operator(BinaryOp::Add) => UnaryOp::Plus,
            TokenKind::Operator(BinaryOp::Sub) => UnaryOp::Minus,
            _ => return Ok(None),
        };
        self.next()?;
        Ok(Some((sign, token)))
    }

    fn signed(&mut self) -> Parsed<Expr> {
        let Some((sign, token)) = self.take_sign()? else {
            let operand = self.operand()?;
            return self.with_selector_modifiers(operand);
        };
        let operand = self.nested(|parser| parser.operators_from(SIGN_OPERAND_PRECEDENCE))?;
        let whole = span(token.start, operand.span.end as usize);
        if let ExprKind::Number(mut literal) = operand.kind {
            if sign == UnaryOp::Minus {
                literal.value = -literal.value;
            }
            return Ok(Expr::new(ExprKind::Number(literal), whole));
        }
        self.built_on(self.height, whole)?;
        Ok(Expr::new(ExprKind::Unary(sign, Box::new(operand)), whole))
    }

    /// Parses an operand: an expression without surrounding operators and modifiers.
    fn operand(&mut self) -> Parsed<Expr> {
        let token = self.peek()?;
        self.height = 0;
        self.reserve(NODE_BYTES + token.end - token.start)?;
        match token.kind {
            TokenKind::Number | TokenKind::Duration => {
                self.next()?;
                let kind = ExprKind::Number(self.number_literal(token)?);
                Ok(Expr::new(kind, span(token.start, token.end)))
            }
            TokenKind::String => {
                self.next()?;
                let kind = ExprKind::String(unquote(self.text(token)));
                Ok(Expr::new(kind, span(token.start, token.end)))
            }
            TokenKind::LeftParen => self.parentheses(),
            TokenKind::LeftBrace => self.selector_operand(),
            kind if kind.is_metric_name() => self.named_operand(token),
            _ => self.stop_here(),
        }
    }

    fn parentheses(&mut self) -> Parsed<Expr> {
        let open = self.next()?;
        let inner = self.nested(Self::expression)?;
        let close = self.expect(TokenKind::RightParen)?;
        let whole = span(open.start, close.end);
        self.built_on(self.height, whole)?;
        Ok(Expr::new(ExprKind::Paren(Box::new(inner)), whole))
    }

    fn selector_operand(&mut self) -> Parsed<Expr> {
        let (selector, span) = self.vector_selector()?;
        Ok(Expr::new(ExprKind::Vector(selector), span))
    }

    /// Parses an operand that begins with a word: a selector, a call or an aggregation.
    fn named_operand(&mut self, name: Token) -> Parsed<Expr> {
        let (selector, selector_span) = match self.lookahead_after(name)? {
            AfterName::Call => return self.call(name),
            AfterName::Aggregate(op) => {
                let parsed = self.aggregate(name, op);
                return self.within(parsed, "aggregation", "");
            }
            AfterName::Selector => self.selector_named(name)?,
        };
        Ok(Expr::new(ExprKind::Vector(selector), selector_span))
    }

    fn lookahead_after(&mut self, name: Token) -> Parsed<AfterName> {
        self.next()?;
        let follower = self.peek()?.kind;
        let is_paren = follower == TokenKind::LeftParen;
        Ok(match name.kind {
            TokenKind::Aggregate(op)
                if is_paren
                    || follower == TokenKind::Word(Word::By)
                    || follower == TokenKind::Word(Word::Without) =>
            {
                AfterName::Aggregate(op)
            }
            TokenKind::Identifier
            | TokenKind::Word(
                Word::Start | Word::End | Word::Step | Word::Range | Word::MaxOf | Word::MinOf,
            ) if is_paren => AfterName::Call,
            _ => AfterName::Selector,
        })
    }

    fn call(&mut self, name: Token) -> Parsed<Expr> {
        let args = self.arguments()?;
        let text = self.text(name);
        let quoted = || quote(text.as_bytes());
        let Some(function) = functions::lookup(text) else {
            return fail(
                name.start,
                format!("unknown function with name {}", quoted()),
            );
        };
        if function.experimental && !self.features.experimental_functions {
            return fail(name.start, format!("function {} is not enabled", quoted()));
        }
        let whole = span(name.start, self.taken_end);
        self.built_on(self.height, whole)?;
        Ok(Expr::new(ExprKind::Call(Call { function, args }), whole))
    }

    /// Parses arguments in parentheses. Afterwards `height` is that of the highest argument.
    fn arguments(&mut self) -> Parsed<Vec<Expr>> {
        self.expect(TokenKind::LeftParen)?;
        let mut args = Vec::new();
        let mut height = 0;
        if self.take(TokenKind::RightParen)?.is_none() {
            loop {
                args.push(self.nested(Self::expression)?);
                height = height.max(self.height);
                let Some(comma) = self.take(TokenKind::Comma)? else {
                    break;
                };
                if !self.peek()?.kind.begins_expression() {
                    let message = "trailing commas not allowed in function call args";
                    return fail(comma.start, message);
                }
            }
            self.expect(TokenKind::RightParen)?;
        }
        self.height = height;
        Ok(args)
    }

    fn aggregate(&mut self, name: Token, op: AggregateOp) -> Parsed<Expr> {
        let mut grouping = self.grouping()?;
        let args = self.arguments()?;
        let mut end = self.taken_end;
        if grouping.is_none() {
            grouping = self.grouping()?;
            if grouping.is_some() {
                end = self.taken_end;
            }
        }
        let whole = span(name.start, end);
        let (expr, param) = self.aggregate_arguments(op, args, whole)?;
        self.built_on(self.height, whole)?;
        let kind = ExprKind::Aggregate(Box::new(Aggregate {
            op,
            expr,
            param,
            grouping: grouping.unwrap_or_else(|| Grouping::By(Vec::new())),
        }));
        Ok(Expr::new(kind, whole))
    }

    fn aggregate_arguments(
        &self,
        op: AggregateOp,
        args: Vec<Expr>,
        whole: Span,
    ) -> Parsed<(Expr, Option<Expr>)> {
        let start = whole.start as usize;
        if args.is_empty() {
            return fail(start, "no arguments for aggregate expression provided");
        }
        if op.is_experimental() && !self.features.experimental_functions {
            let name = op.as_str();
            return fail(
                start,
                format!(
                    "{name}() is experimental and must be enabled with \
                     --enable-feature=promql-experimental-functions"
                ),
            );
        }
        let count = args.len();
        let mut args = args.into_iter();
        let param = if op.param_type().is_some() {
            args.next()
        } else {
            None
        };
        match (args.next(), args.next()) {
            (Some(expr), None) => Ok((expr, param)),
            _ => fail(
                start,
                format!(
                    "wrong number of arguments for aggregate expression provided, \
                     expected {}, got {count}",
                    1 + usize::from(op.param_type().is_some())
                ),
            ),
        }
    }

    fn grouping(&mut self) -> Parsed<Option<Grouping>> {
        if self.take_word(Word::By)? {
            return Ok(Some(Grouping::By(self.grouping_labels()?)));
        }
        if self.take_word(Word::Without)? {
            return Ok(Some(Grouping::Without(self.grouping_labels()?)));
        }
        Ok(None)
    }

    /// Parses the labels after `group_left` or `group_right`. The list is optional if an operand or
    /// a fill modifier follows.
    fn maybe_grouping_labels(&mut self) -> Parsed<Vec<String>> {
        let follower = self.peek()?.kind;
        let is_absent = follower.begins_expression() && follower != TokenKind::LeftParen;
        if is_absent {
            Ok(Vec::new())
        } else {
            self.grouping_labels()
        }
    }

    fn grouping_labels(&mut self) -> Parsed<Vec<String>> {
        let open = self.expect(TokenKind::LeftParen);
        self.within(open, "grouping opts", "\"(\"")?;
        let mut labels = Vec::new();
        let close = (TokenKind::RightParen, "\")\"");
        self.list(close, "grouping opts", |parser| {
            labels.push(parser.grouping_label()?);
            Ok(())
        })?;
        Ok(labels)
    }

    fn grouping_label(&mut self) -> Parsed<String> {
        let token = self.peek()?;
        if token.kind.is_grouping_label() {
            self.next()?;
            return Ok(self.text(token).to_owned());
        }
        if token.kind != TokenKind::String {
            let stop = self.stop_here();
            return self.within(stop, "grouping opts", "label");
        }
        self.next()?;
        match String::from_utf8(unquote(self.text(token))) {
            Ok(name) if !name.is_empty() => Ok(name),
            name => {
                let bytes = name.map_or_else(|e| e.into_bytes(), String::into_bytes);
                let name = quote(&bytes);
                fail(
                    token.start,
                    format!("invalid label name for grouping: {name}"),
                )
            }
        }
    }
}

/// The meaning of a word at the beginning of an operand, determined by the next token.
enum AfterName {
    Selector,
    Call,
    Aggregate(AggregateOp),
}
