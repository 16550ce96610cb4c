//! Parses expressions: operators by precedence, calls, aggregations, parentheses and literals.

use super::{NODE_BYTES, Parsed, PromqlParser, SIGN_OPERAND_PRECEDENCE, fail, span};
use crate::ast::{
    AggregateExpr, AggregateGrouping, AggregateOp, BinaryExpr, BinaryOp, Expr, ExprKind,
    FunctionCall, MatchCardinality, PositionRange, UnaryOp, VectorMatching,
};
use crate::functions;
use crate::lexer::{PromqlKeyword, PromqlToken, PromqlTokenKind, unquote};
use crate::quote::quote;

/// The modifiers between an operator and its right side: `bool` and vector matching.
#[derive(Default)]
struct BinaryModifiers {
    returns_bool: bool,
    matching: VectorMatching,
}

impl PromqlParser<'_> {
    pub(super) fn parse_expression(&mut self) -> Parsed<Expr> {
        self.parse_operators_from(0)
    }

    /// Parses an expression whose outermost operators have at least the precedence
    /// `precedence_min`.
    fn parse_operators_from(&mut self, precedence_min: u8) -> Parsed<Expr> {
        self.parse_deeper(|parser| {
            let mut left = parser.parse_signed_operand()?;
            loop {
                let token = parser.tokens.peek()?;
                let PromqlTokenKind::Operator(op) = token.kind else {
                    return Ok(left);
                };
                if op.precedence() < precedence_min {
                    return Ok(left);
                }
                parser.tokens.next()?;
                left = parser.parse_binary(left, op)?;
            }
        })
    }

    fn parse_binary(&mut self, left: Expr, op: BinaryOp) -> Parsed<Expr> {
        let left_height = self.limits.height;
        let modifiers = self.parse_binary_modifiers()?;
        let to_the_right = u8::from(op != BinaryOp::Pow);
        let right = self.parse_operators_from(op.precedence() + to_the_right)?;
        let whole = left.span.join(right.span);
        let fills = modifiers
            .matching
            .fill_left
            .or(modifiers.matching.fill_right);
        if fills.is_some() && !self.features.binop_fill_modifiers {
            let message = "binop fill modifiers are experimental and not enabled";
            return fail(whole.start as usize, message);
        }
        self.limits
            .update_height(left_height.max(self.limits.height), whole)?;
        let kind = ExprKind::Binary(Box::new(BinaryExpr {
            op,
            left,
            right,
            returns_bool: modifiers.returns_bool,
            matching: Some(modifiers.matching),
        }));
        Ok(Expr::new(kind, whole))
    }

    fn parse_binary_modifiers(&mut self) -> Parsed<BinaryModifiers> {
        let mut modifiers = BinaryModifiers {
            returns_bool: self.tokens.take_word(PromqlKeyword::Bool)?,
            ..BinaryModifiers::default()
        };
        let matching = &mut modifiers.matching;
        matching.on = self.tokens.take_word(PromqlKeyword::On)?;
        if matching.on || self.tokens.take_word(PromqlKeyword::Ignoring)? {
            matching.labels = self.parse_grouping_labels()?;
            if self.tokens.take_word(PromqlKeyword::GroupLeft)? {
                matching.cardinality = MatchCardinality::ManyToOne;
                matching.include = self.parse_optional_grouping_labels()?;
            } else if self.tokens.take_word(PromqlKeyword::GroupRight)? {
                matching.cardinality = MatchCardinality::OneToMany;
                matching.include = self.parse_optional_grouping_labels()?;
            }
        }
        self.parse_fills(matching)?;
        Ok(modifiers)
    }

    fn parse_fills(&mut self, matching: &mut VectorMatching) -> Parsed<()> {
        if self.tokens.take_word(PromqlKeyword::Fill)? {
            let value = self.parse_fill_value()?;
            matching.fill_left = Some(value);
            matching.fill_right = Some(value);
        } else if self.tokens.take_word(PromqlKeyword::FillLeft)? {
            matching.fill_left = Some(self.parse_fill_value()?);
            if self.tokens.take_word(PromqlKeyword::FillRight)? {
                matching.fill_right = Some(self.parse_fill_value()?);
            }
        } else if self.tokens.take_word(PromqlKeyword::FillRight)? {
            matching.fill_right = Some(self.parse_fill_value()?);
            if self.tokens.take_word(PromqlKeyword::FillLeft)? {
                matching.fill_left = Some(self.parse_fill_value()?);
            }
        }
        Ok(())
    }

    fn parse_fill_value(&mut self) -> Parsed<f64> {
        self.tokens.expect(PromqlTokenKind::LeftParen)?;
        let value = self.tokens.parse_signed_number()?;
        self.tokens.expect(PromqlTokenKind::RightParen)?;
        Ok(value)
    }

    fn parse_signed_operand(&mut self) -> Parsed<Expr> {
        let Some((sign, token)) = self.tokens.take_sign()? else {
            let operand = self.parse_operand()?;
            return self.parse_selector_modifiers(operand);
        };
        let operand =
            self.parse_nested(|parser| parser.parse_operators_from(SIGN_OPERAND_PRECEDENCE))?;
        let whole = span(token.start, operand.span.end as usize);
        if let ExprKind::Number(mut literal) = operand.kind {
            if sign == UnaryOp::Minus {
                literal.value = -literal.value;
            }
            return Ok(Expr::new(ExprKind::Number(literal), whole));
        }
        self.limits.update_height(self.limits.height, whole)?;
        Ok(Expr::new(ExprKind::Unary(sign, Box::new(operand)), whole))
    }

    /// Parses an operand: an expression without surrounding operators and modifiers.
    fn parse_operand(&mut self) -> Parsed<Expr> {
        let token = self.tokens.peek()?;
        self.limits.height = 0;
        self.limits.reserve(NODE_BYTES + token.end - token.start)?;
        match token.kind {
            PromqlTokenKind::Number | PromqlTokenKind::Duration => {
                self.tokens.next()?;
                let kind = ExprKind::Number(self.tokens.parse_number_literal(token)?);
                Ok(Expr::new(kind, span(token.start, token.end)))
            }
            PromqlTokenKind::String => {
                self.tokens.next()?;
                let kind = ExprKind::String(unquote(self.tokens.text(token)));
                Ok(Expr::new(kind, span(token.start, token.end)))
            }
            PromqlTokenKind::LeftParen => self.parse_parentheses(),
            PromqlTokenKind::LeftBrace => self.parse_selector_operand(),
            kind if kind.is_metric_name() => self.parse_named_operand(token),
            _ => self.tokens.stop_here(),
        }
    }

    fn parse_parentheses(&mut self) -> Parsed<Expr> {
        let open = self.tokens.next()?;
        let inner = self.parse_nested(Self::parse_expression)?;
        let close = self.tokens.expect(PromqlTokenKind::RightParen)?;
        let whole = span(open.start, close.end);
        self.limits.update_height(self.limits.height, whole)?;
        Ok(Expr::new(ExprKind::Paren(Box::new(inner)), whole))
    }

    fn parse_selector_operand(&mut self) -> Parsed<Expr> {
        let (selector, span) = self.parse_vector_selector()?;
        Ok(Expr::new(ExprKind::Vector(selector), span))
    }

    /// Parses an operand that begins with a word: a selector, a call or an aggregation.
    fn parse_named_operand(&mut self, name: PromqlToken) -> Parsed<Expr> {
        let (selector, selector_span) = match self.look_ahead_after(name)? {
            NameLookahead::Call => return self.parse_call(name),
            NameLookahead::Aggregate(op) => {
                let parsed = self.parse_aggregate(name, op);
                return self.tokens.within(parsed, "aggregation", "");
            }
            NameLookahead::Selector => self.parse_selector_rest(name)?,
        };
        Ok(Expr::new(ExprKind::Vector(selector), selector_span))
    }

    fn look_ahead_after(&mut self, name: PromqlToken) -> Parsed<NameLookahead> {
        self.tokens.next()?;
        let follower = self.tokens.peek()?.kind;
        let is_paren = follower == PromqlTokenKind::LeftParen;
        Ok(match name.kind {
            PromqlTokenKind::Aggregate(op)
                if is_paren
                    || follower == PromqlTokenKind::Word(PromqlKeyword::By)
                    || follower == PromqlTokenKind::Word(PromqlKeyword::Without) =>
            {
                NameLookahead::Aggregate(op)
            }
            PromqlTokenKind::Identifier
            | PromqlTokenKind::Word(
                PromqlKeyword::Start
                | PromqlKeyword::End
                | PromqlKeyword::Step
                | PromqlKeyword::Range
                | PromqlKeyword::MaxOf
                | PromqlKeyword::MinOf,
            ) if is_paren => NameLookahead::Call,
            _ => NameLookahead::Selector,
        })
    }

    fn parse_call(&mut self, name: PromqlToken) -> Parsed<Expr> {
        let args = self.parse_arguments()?;
        let text = self.tokens.text(name);
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
        let whole = span(name.start, self.tokens.taken_end);
        self.limits.update_height(self.limits.height, whole)?;
        Ok(Expr::new(
            ExprKind::Call(FunctionCall { function, args }),
            whole,
        ))
    }

    /// Parses arguments in parentheses. Afterwards `height` is that of the highest argument.
    fn parse_arguments(&mut self) -> Parsed<Vec<Expr>> {
        self.tokens.expect(PromqlTokenKind::LeftParen)?;
        let mut args = Vec::new();
        let mut height = 0;
        if self.tokens.take(PromqlTokenKind::RightParen)?.is_none() {
            loop {
                args.push(self.parse_nested(Self::parse_expression)?);
                height = height.max(self.limits.height);
                let Some(comma) = self.tokens.take(PromqlTokenKind::Comma)? else {
                    break;
                };
                if !self.tokens.peek()?.kind.begins_expression() {
                    let message = "trailing commas not allowed in function call args";
                    return fail(comma.start, message);
                }
            }
            self.tokens.expect(PromqlTokenKind::RightParen)?;
        }
        self.limits.height = height;
        Ok(args)
    }

    fn parse_aggregate(&mut self, name: PromqlToken, op: AggregateOp) -> Parsed<Expr> {
        let mut grouping = self.parse_grouping()?;
        let args = self.parse_arguments()?;
        let mut end = self.tokens.taken_end;
        if grouping.is_none() {
            grouping = self.parse_grouping()?;
            if grouping.is_some() {
                end = self.tokens.taken_end;
            }
        }
        let whole = span(name.start, end);
        let (expr, param) = self.parse_aggregate_arguments(op, args, whole)?;
        self.limits.update_height(self.limits.height, whole)?;
        let kind = ExprKind::Aggregate(Box::new(AggregateExpr {
            op,
            expr,
            param,
            grouping: grouping.unwrap_or_else(|| AggregateGrouping::By(Vec::new())),
        }));
        Ok(Expr::new(kind, whole))
    }

    fn parse_aggregate_arguments(
        &self,
        op: AggregateOp,
        args: Vec<Expr>,
        whole: PositionRange,
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

    fn parse_grouping(&mut self) -> Parsed<Option<AggregateGrouping>> {
        if self.tokens.take_word(PromqlKeyword::By)? {
            return Ok(Some(AggregateGrouping::By(self.parse_grouping_labels()?)));
        }
        if self.tokens.take_word(PromqlKeyword::Without)? {
            return Ok(Some(AggregateGrouping::Without(
                self.parse_grouping_labels()?,
            )));
        }
        Ok(None)
    }

    /// Parses the labels after `group_left` or `group_right`. The list is optional if an operand or
    /// a fill modifier follows.
    fn parse_optional_grouping_labels(&mut self) -> Parsed<Vec<String>> {
        let follower = self.tokens.peek()?.kind;
        let is_absent = follower.begins_expression() && follower != PromqlTokenKind::LeftParen;
        if is_absent {
            Ok(Vec::new())
        } else {
            self.parse_grouping_labels()
        }
    }

    fn parse_grouping_labels(&mut self) -> Parsed<Vec<String>> {
        let open = self.tokens.expect(PromqlTokenKind::LeftParen);
        self.tokens.within(open, "grouping opts", "\"(\"")?;
        let mut labels = Vec::new();
        self.parse_list(
            PromqlTokenKind::RightParen,
            "\")\"",
            "grouping opts",
            |parser| {
                labels.push(parser.parse_grouping_label()?);
                Ok(())
            },
        )?;
        Ok(labels)
    }

    fn parse_grouping_label(&mut self) -> Parsed<String> {
        let token = self.tokens.peek()?;
        if token.kind.is_grouping_label() {
            self.tokens.next()?;
            return Ok(self.tokens.text(token).to_owned());
        }
        if token.kind != PromqlTokenKind::String {
            let stop = self.tokens.stop_here();
            return self.tokens.within(stop, "grouping opts", "label");
        }
        self.tokens.next()?;
        match String::from_utf8(unquote(self.tokens.text(token))) {
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
enum NameLookahead {
    Selector,
    Call,
    Aggregate(AggregateOp),
}
