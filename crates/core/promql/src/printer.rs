//! Prints syntax trees: on one line like `String()` of Prometheus, or on several lines for
//! `format_query`.
//!
//! Invariant: the printed text parses to the same tree, except for positions and the order of
//! matchers. There is one exception, which Prometheus shares: a window or step below a millisecond
//! prints as `0s`. The text deviates from that of Prometheus where the latter would parse to a
//! different tree: the empty selector of `info(a, {})`, `Inf ^ a`, and numbers in parentheses at
//! the start of a power or an offset.

mod pretty;

pub use pretty::pretty;

use crate::ast::{
    AggregateExpr, AggregateGrouping, AtModifier, BinaryExpr, BinaryOp, DurationExpr,
    DurationExprKind, Expr, ExprKind, FunctionCall, MatchCardinality, MatrixSelector,
    NumberLiteral, QueryDuration, SubqueryExpr, VectorMatching, VectorSelector, WindowEdges,
};
use crate::depth::ensure_stack;
use crate::go_format::{format_f, format_v};
use crate::quote::quote;
use firn_model::labels::METRIC_NAME;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::units::format_duration;
use std::fmt;

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ensure_stack(|| match &self.kind {
            ExprKind::Number(literal) => literal.fmt(f),
            ExprKind::String(bytes) => f.write_str(&quote(bytes)),
            ExprKind::Vector(vector) => vector.fmt(f),
            ExprKind::Matrix(matrix) => matrix.fmt(f),
            ExprKind::Subquery(subquery) => {
                write!(f, "{}{}", subquery.expr, format_subquery_suffix(subquery))
            }
            ExprKind::Call(call) => write_call(call, f),
            ExprKind::Aggregate(aggregate) => {
                write!(f, "{}(", format_aggregate_head(aggregate))?;
                if let Some(param) = &aggregate.param {
                    write!(f, "{param}, ")?;
                }
                write!(f, "{})", aggregate.expr)
            }
            ExprKind::Binary(binary) => {
                match &binary.left.kind {
                    // The text `+Inf` would parse as a sign before the power.
                    ExprKind::Number(n)
                        if binary.op == BinaryOp::Pow && n.value == f64::INFINITY =>
                    {
                        f.write_str("Inf")?;
                    }
                    _ => binary.left.fmt(f)?,
                }
                write!(f, " {} {}", format_binary_head(binary), binary.right)
            }
            ExprKind::Unary(op, inner) => write!(f, "{}{inner}", op.as_str()),
            ExprKind::Paren(inner) => write!(f, "({inner})"),
        })
    }
}

fn write_call(call: &FunctionCall, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{}(", call.function.name)?;
    for (i, arg) in call.args.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        write!(f, "{comma}{arg}")?;
    }
    f.write_str(")")
}

/// Returns the text of an aggregation up to the parenthesis: `sum by (a, b) `.
fn format_aggregate_head(aggregate: &AggregateExpr) -> String {
    let op = aggregate.op.as_str();
    match &aggregate.grouping {
        AggregateGrouping::By(labels) if labels.is_empty() => op.to_owned(),
        AggregateGrouping::By(labels) => format!("{op} by ({}) ", format_label_list(labels)),
        AggregateGrouping::Without(labels) => {
            format!("{op} without ({}) ", format_label_list(labels))
        }
    }
}

/// Returns label names separated by commas, quoted where the grammar requires it.
fn format_label_list(labels: &[String]) -> String {
    let names: Vec<String> = labels
        .iter()
        .map(|label| format_label_name(label))
        .collect();
    names.join(", ")
}

fn format_label_name(name: &str) -> String {
    if is_plain_name(name) {
        name.to_owned()
    } else {
        quote(name.as_bytes())
    }
}

fn is_plain_name(name: &str) -> bool {
    let is_word = |b: u8| b == b'_' || b.is_ascii_alphanumeric();
    name.bytes().all(is_word) && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

/// Returns the operator of a binary expression with all its modifiers:
/// `+ bool on (a) group_left (b)`.
fn format_binary_head(binary: &BinaryExpr) -> String {
    let mut out = binary.op.as_str().to_owned();
    if binary.returns_bool {
        out += " bool";
    }
    if let Some(matching) = &binary.matching {
        push_matching(matching, &mut out);
    }
    out
}

fn push_matching(matching: &VectorMatching, out: &mut String) {
    let group = match matching.cardinality {
        MatchCardinality::ManyToOne => Some("group_left"),
        MatchCardinality::OneToMany => Some("group_right"),
        MatchCardinality::OneToOne | MatchCardinality::ManyToMany => None,
    };
    if !matching.labels.is_empty() || matching.on || group.is_some() {
        let word = if matching.on { "on" } else { "ignoring" };
        *out += &format!(" {word} ({})", format_label_list(&matching.labels));
    }
    if let Some(group) = group {
        *out += &format!(" {group} ({})", format_label_list(&matching.include));
    }
    let fills = match (matching.fill_left, matching.fill_right) {
        (Some(left), Some(right)) if left == right => [("fill", Some(left)), ("", None)],
        (left, right) => [("fill_left", left), ("fill_right", right)],
    };
    for (word, value) in fills {
        if let Some(value) = value {
            *out += &format!(" {word} ({})", format_v(value));
        }
    }
}

impl fmt::Display for VectorSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_series(self, f)?;
        let (at, offset) = (format_at(self.at), format_offset(&self.offset));
        write!(f, "{at}{}{offset}", format_edges(self.edges))
    }
}

impl fmt::Display for MatrixSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vector = &self.vector;
        write_series(vector, f)?;
        let (at, offset) = (format_at(vector.at), format_offset(&vector.offset));
        write!(
            f,
            "[{}]{}{at}{offset}",
            self.range,
            format_edges(vector.edges)
        )
    }
}

/// Writes the name and the matchers of a selector. Matchers are sorted by their text.
fn write_series(vector: &VectorSelector, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = vector.name.as_deref().unwrap_or_default();
    let is_name = |m: &&Matcher| {
        m.name() == METRIC_NAME
            && m.op() == MatchOp::Equal
            && m.value() == name.as_bytes()
            && !name.is_empty()
    };
    let mut matchers: Vec<String> = vector
        .matchers
        .iter()
        .filter(|m| !is_name(m))
        .map(format_matcher)
        .collect();
    matchers.sort();
    f.write_str(name)?;
    if matchers.is_empty() && !name.is_empty() {
        return Ok(());
    }
    write!(f, "{{{}}}", matchers.join(","))
}

/// Returns the text of a matcher: `job="x"`.
pub(crate) fn format_matcher(matcher: &Matcher) -> String {
    let op = match matcher.op() {
        MatchOp::Equal => "=",
        MatchOp::NotEqual => "!=",
        MatchOp::Regex => "=~",
        MatchOp::NotRegex => "!~",
    };
    let (name, value) = (format_label_name(matcher.name()), quote(matcher.value()));
    format!("{name}{op}{value}")
}

fn format_at(at: Option<AtModifier>) -> String {
    match at {
        None => String::new(),
        Some(AtModifier::Time(ms)) => format!(" @ {:.3}", ms as f64 / 1000.0),
        Some(AtModifier::Start) => " @ start()".into(),
        Some(AtModifier::End) => " @ end()".into(),
    }
}

fn format_edges(edges: WindowEdges) -> &'static str {
    match edges {
        WindowEdges::Plain => "",
        WindowEdges::Anchored => " anchored",
        WindowEdges::Smoothed => " smoothed",
    }
}

fn format_offset(offset: &QueryDuration) -> String {
    match offset {
        QueryDuration::Millis(0) => String::new(),
        QueryDuration::Millis(ms) => format!(" offset {}", format_duration_ms(*ms)),
        QueryDuration::Expr(expr) => format!(" offset {}", format_offset_expression(expr)),
    }
}

/// Returns the text of an offset. An operation must begin with a parenthesis or two signs;
/// otherwise the offset would end before its operator. Both are only part of the text, not of the
/// tree.
fn format_offset_expression(expr: &DurationExpr) -> String {
    let text = expr.to_string();
    let mut first = expr;
    while let DurationExprKind::Binary(_, left, _) = &first.kind {
        first = left;
    }
    let is_operation = !std::ptr::eq(first, expr);
    match &first.kind {
        DurationExprKind::Negative(inner) => {
            let is_cut = match &inner.kind {
                DurationExprKind::Binary(..) => true,
                DurationExprKind::Negative(_) => false,
                _ => is_operation,
            };
            match text.strip_prefix('-') {
                Some(rest) if is_cut => format!("-+{rest}"),
                _ => text,
            }
        }
        DurationExprKind::Paren(_) => text,
        _ if !is_operation => text,
        DurationExprKind::Number(literal) => {
            let number = literal.to_string();
            match text.strip_prefix(&number) {
                Some(rest) => format!("({number}){rest}"),
                None => text,
            }
        }
        _ => format!("++{text}"),
    }
}

/// Returns the text after the expression of a subquery: `[30m:1m] @ 1.000 offset 5m`.
fn format_subquery_suffix(subquery: &SubqueryExpr) -> String {
    let step = subquery.step.as_ref();
    let step = step.map_or(String::new(), QueryDuration::to_string);
    let (at, offset) = (format_at(subquery.at), format_offset(&subquery.offset));
    format!("[{}:{step}]{at}{offset}", subquery.range)
}

impl fmt::Display for QueryDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryDuration::Millis(ms) => f.write_str(&format_duration_ms(*ms)),
            QueryDuration::Expr(expr) => expr.fmt(f),
        }
    }
}

impl fmt::Display for DurationExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DurationExprKind::Number(literal) => literal.fmt(f),
            DurationExprKind::Step => f.write_str("step()"),
            DurationExprKind::Range => f.write_str("range()"),
            DurationExprKind::Negative(inner) => write!(f, "-{inner}"),
            DurationExprKind::Binary(op, left, right) => match left.kind {
                // Without parentheses the sign would apply to the power.
                DurationExprKind::Number(n) if *op == BinaryOp::Pow && n.value < 0.0 => {
                    write!(f, "({left}) ^ {right}")
                }
                _ => write!(f, "{left} {} {right}", op.as_str()),
            },
            DurationExprKind::MinOf(left, right) => write!(f, "min_of({left}, {right})"),
            DurationExprKind::MaxOf(left, right) => write!(f, "max_of({left}, {right})"),
            DurationExprKind::Paren(inner) => write!(f, "({inner})"),
        }
    }
}

impl fmt::Display for NumberLiteral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_duration {
            // The nanoseconds of a literal fit in 63 bits, so the conversion does not overflow.
            return f.write_str(&format_duration_ms((self.value * 1000.0).round() as i64));
        }
        f.write_str(&format_f(self.value))
    }
}

/// Formats a duration like Prometheus: `1h30m`, `90d`, `-5m`, `0s`.
fn format_duration_ms(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    let duration = std::time::Duration::from_millis(ms.unsigned_abs());
    format!("{sign}{}", format_duration(duration))
}
