//! A tree as text: the one-line form of Prometheus's `String()`, and the form over several lines of
//! `format_query`.
//!
//! Invariant: what is printed parses again to the same tree, positions and the order of matchers
//! apart, but for one case that is upstream's too: a window or step below a millisecond prints as
//! `0s`. Where upstream's form would parse to another tree ours differs from it: the empty selector
//! of `info(a, {})`, `Inf ^ a`, and numbers in parentheses that a power or an offset begins with.

mod pretty;

pub use pretty::pretty;

use crate::ast::{
    Aggregate, At, Binary, BinaryOp, Call, Cardinality, Duration, DurationExpr, DurationKind,
    Edges, Expr, ExprKind, Grouping, Matching, MatrixSelector, NumberLiteral, Subquery,
    VectorSelector,
};
use crate::depth::deeper;
use crate::go_format::{format_f, format_v};
use crate::quote::quote;
use firn_model::labels::METRIC_NAME;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::units::format_duration;
use std::fmt;

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        deeper(|| match &self.kind {
            ExprKind::Number(literal) => literal.fmt(f),
            ExprKind::String(bytes) => f.write_str(&quote(bytes)),
            ExprKind::Vector(vector) => vector.fmt(f),
            ExprKind::Matrix(matrix) => matrix.fmt(f),
            ExprKind::Subquery(subquery) => {
                write!(f, "{}{}", subquery.expr, SubquerySuffix(subquery))
            }
            ExprKind::Call(call) => write_call(call, f),
            ExprKind::Aggregate(aggregate) => {
                write!(f, "{}(", AggregateHead(aggregate))?;
                if let Some(param) = &aggregate.param {
                    write!(f, "{param}, ")?;
                }
                write!(f, "{})", aggregate.expr)
            }
            ExprKind::Binary(binary) => {
                let (left, right) = (LeftSide(binary), &binary.right);
                write!(f, "{left} {} {right}", BinaryHead(binary))
            }
            ExprKind::Unary(op, inner) => write!(f, "{}{inner}", op.as_str()),
            ExprKind::Paren(inner) => write!(f, "({inner})"),
        })
    }
}

fn write_call(call: &Call, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{}(", call.function.name)?;
    for (i, arg) in call.args.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        write!(f, "{comma}{arg}")?;
    }
    f.write_str(")")
}

/// `sum by (a, b) `, up to the parenthesis.
struct AggregateHead<'a>(&'a Aggregate);

impl fmt::Display for AggregateHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.op.as_str())?;
        match &self.0.grouping {
            Grouping::By(labels) if labels.is_empty() => Ok(()),
            Grouping::By(labels) => write!(f, " by ({}) ", LabelList(labels)),
            Grouping::Without(labels) => write!(f, " without ({}) ", LabelList(labels)),
        }
    }
}

/// Names of labels, in quotes where the grammar needs them.
struct LabelList<'a>(&'a [String]);

impl fmt::Display for LabelList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, label) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{}", LabelName(label))?;
        }
        Ok(())
    }
}

struct LabelName<'a>(&'a str);

impl fmt::Display for LabelName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain_name(self.0) {
            f.write_str(self.0)
        } else {
            f.write_str(&quote(self.0.as_bytes()))
        }
    }
}

fn is_plain_name(name: &str) -> bool {
    let is_word = |b: u8| b == b'_' || b.is_ascii_alphanumeric();
    name.bytes().all(is_word) && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

/// The left side of a binary expression. Infinity goes without the sign that it has elsewhere if it
/// is raised to a power, or the sign would be that of the power.
struct LeftSide<'a>(&'a Binary);

impl fmt::Display for LeftSide<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.left.kind {
            ExprKind::Number(n) if self.0.op == BinaryOp::Pow && n.value == f64::INFINITY => {
                f.write_str("Inf")
            }
            _ => self.0.left.fmt(f),
        }
    }
}

/// The operator of a binary expression with all its modifiers: `+ bool on (a) group_left (b)`.
struct BinaryHead<'a>(&'a Binary);

impl fmt::Display for BinaryHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.op.as_str())?;
        if self.0.returns_bool {
            f.write_str(" bool")?;
        }
        match &self.0.matching {
            Some(matching) => write_matching(matching, f),
            None => Ok(()),
        }
    }
}

fn write_matching(matching: &Matching, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let group = match matching.cardinality {
        Cardinality::ManyToOne => Some("group_left"),
        Cardinality::OneToMany => Some("group_right"),
        Cardinality::OneToOne | Cardinality::ManyToMany => None,
    };
    if !matching.labels.is_empty() || matching.on || group.is_some() {
        let word = if matching.on { "on" } else { "ignoring" };
        write!(f, " {word} ({})", LabelList(&matching.labels))?;
    }
    if let Some(group) = group {
        write!(f, " {group} ({})", LabelList(&matching.include))?;
    }
    match (matching.fill_left, matching.fill_right) {
        (Some(left), Some(right)) if left == right => write!(f, " fill ({})", format_v(left)),
        (left, right) => {
            if let Some(left) = left {
                write!(f, " fill_left ({})", format_v(left))?;
            }
            if let Some(right) = right {
                write!(f, " fill_right ({})", format_v(right))?;
            }
            Ok(())
        }
    }
}

impl fmt::Display for VectorSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_series(self, f)?;
        write_at(self.at, f)?;
        write_edges(self.edges, f)?;
        write_offset(&self.offset, f)
    }
}

impl fmt::Display for MatrixSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_series(&self.vector, f)?;
        write!(f, "[{}]", self.range)?;
        write_edges(self.vector.edges, f)?;
        write_at(self.vector.at, f)?;
        write_offset(&self.vector.offset, f)
    }
}

/// Name and matchers; the matchers are sorted by their text.
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
        .map(matcher_text)
        .collect();
    matchers.sort();
    f.write_str(name)?;
    if matchers.is_empty() && !name.is_empty() {
        return Ok(());
    }
    write!(f, "{{{}}}", matchers.join(","))
}

fn matcher_text(matcher: &Matcher) -> String {
    let op = match matcher.op() {
        MatchOp::Equal => "=",
        MatchOp::NotEqual => "!=",
        MatchOp::Regex => "=~",
        MatchOp::NotRegex => "!~",
    };
    format!(
        "{}{op}{}",
        LabelName(matcher.name()),
        quote(matcher.value())
    )
}

fn write_at(at: Option<At>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match at {
        None => Ok(()),
        Some(At::Time(ms)) => write!(f, " @ {:.3}", ms as f64 / 1000.0),
        Some(At::Start) => f.write_str(" @ start()"),
        Some(At::End) => f.write_str(" @ end()"),
    }
}

fn write_edges(edges: Edges, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match edges {
        Edges::Plain => Ok(()),
        Edges::Anchored => f.write_str(" anchored"),
        Edges::Smoothed => f.write_str(" smoothed"),
    }
}

fn write_offset(offset: &Duration, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match offset {
        Duration::Millis(0) => Ok(()),
        Duration::Millis(ms) => write!(f, " offset {}", format_duration_ms(*ms)),
        Duration::Expr(expr) => write!(f, " offset {}", offset_text(expr)),
    }
}

/// An offset that is an operation must begin with a parenthesis or two signs, or it would end
/// before its operator. Neither is part of the tree.
fn offset_text(expr: &DurationExpr) -> String {
    let text = expr.to_string();
    let mut first = expr;
    while let DurationKind::Binary(_, left, _) = &first.kind {
        first = left;
    }
    let is_operation = !std::ptr::eq(first, expr);
    match &first.kind {
        DurationKind::Negative(inner) => {
            let is_cut = match &inner.kind {
                DurationKind::Binary(..) => true,
                DurationKind::Negative(_) => false,
                _ => is_operation,
            };
            match text.strip_prefix('-') {
                Some(rest) if is_cut => format!("-+{rest}"),
                _ => text,
            }
        }
        DurationKind::Paren(_) => text,
        _ if !is_operation => text,
        DurationKind::Number(literal) => {
            let number = literal.to_string();
            match text.strip_prefix(&number) {
                Some(rest) => format!("({number}){rest}"),
                None => text,
            }
        }
        _ => format!("++{text}"),
    }
}

/// `[30m:1m] @ 1.000 offset 5m`
struct SubquerySuffix<'a>(&'a Subquery);

impl fmt::Display for SubquerySuffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}:", self.0.range)?;
        if let Some(step) = &self.0.step {
            write!(f, "{step}")?;
        }
        f.write_str("]")?;
        write_at(self.0.at, f)?;
        write_offset(&self.0.offset, f)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Duration::Millis(ms) => f.write_str(&format_duration_ms(*ms)),
            Duration::Expr(expr) => expr.fmt(f),
        }
    }
}

impl fmt::Display for DurationExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            DurationKind::Number(literal) => literal.fmt(f),
            DurationKind::Step => f.write_str("step()"),
            DurationKind::Range => f.write_str("range()"),
            DurationKind::Negative(inner) => write!(f, "-{inner}"),
            DurationKind::Binary(op, left, right) => match left.kind {
                // Without parentheses the sign would be that of the power.
                DurationKind::Number(n) if *op == BinaryOp::Pow && n.value < 0.0 => {
                    write!(f, "({left}) ^ {right}")
                }
                _ => write!(f, "{left} {} {right}", op.as_str()),
            },
            DurationKind::MinOf(left, right) => write!(f, "min_of({left}, {right})"),
            DurationKind::MaxOf(left, right) => write!(f, "max_of({left}, {right})"),
            DurationKind::Paren(inner) => write!(f, "({inner})"),
        }
    }
}

impl fmt::Display for NumberLiteral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_duration {
            // Never more than 63 bits of nanoseconds.
            return f.write_str(&format_duration_ms((self.value * 1000.0).round() as i64));
        }
        f.write_str(&format_f(self.value))
    }
}

/// A duration as Prometheus writes it: `1h30m`, `90d`, `-5m`, `0s`.
fn format_duration_ms(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    let duration = std::time::Duration::from_millis(ms.unsigned_abs());
    format!("{sign}{}", format_duration(duration))
}
