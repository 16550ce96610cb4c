//! The syntax tree of PromQL. Every node has its place in the text.
//!
//! Strings are bytes, as in Prometheus. Durations that are expressions (`[2m * 3]`) stay trees
//! until the query's start, end and step are known; see [`Duration`].
//!
//! Invariant: what the parser returns is type-checked, so that the evaluator need not
//! look at types again, and its height is bounded, so that recursion over it is.

mod walk;

use crate::functions::Function;
use firn_model::matcher::Matcher;
use firn_model::sample::TimestampMs;
use std::fmt;

/// Where a node stands: byte offsets into the text, the end not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// From the start of this one to the end of `last`.
    pub fn to(self, last: Span) -> Span {
        Span {
            start: self.start,
            end: last.end,
        }
    }
}

/// A node.
#[derive(Debug, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
}

/// The kinds of nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `1`, `0x1f`, `5m` where a number stands
    Number(NumberLiteral),
    /// `"text"`
    String(Vec<u8>),
    /// `up{job="x"} offset 5m @ end()`
    Vector(VectorSelector),
    /// `up[5m]`
    Matrix(MatrixSelector),
    /// `(expr)[30m:1m]`
    Subquery(Box<Subquery>),
    /// `rate(...)`
    Call(Call),
    /// `sum by (x) (...)`
    Aggregate(Box<Aggregate>),
    /// `a + on (x) b`
    Binary(Box<Binary>),
    /// `-a`, `+a`
    Unary(UnaryOp, Box<Expr>),
    /// `(a)`
    Paren(Box<Expr>),
}

/// A number and whether it was written as a duration, which the printer keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberLiteral {
    /// The value; of a duration, seconds.
    pub value: f64,
    /// Whether it was written as a duration.
    pub is_duration: bool,
}

/// Prefix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    /// `+`
    Plus,
    /// `-`
    Minus,
}

/// A duration: a plain one in milliseconds, or a tree over numbers, `step()`, `range()`.
#[derive(Clone, Debug, PartialEq)]
pub enum Duration {
    /// Known milliseconds.
    Millis(i64),
    /// Not known before the query's step and range are.
    Expr(Box<DurationExpr>),
}

impl Default for Duration {
    fn default() -> Self {
        Duration::Millis(0)
    }
}

/// A node of a duration expression; values are seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct DurationExpr {
    /// What it is.
    pub kind: DurationKind,
    /// Where it stands, without parentheses around it or the word before its arguments.
    pub span: Span,
}

/// The kinds of nodes of a duration expression.
#[derive(Clone, Debug, PartialEq)]
pub enum DurationKind {
    /// A number of seconds or a duration literal.
    Number(NumberLiteral),
    /// `step()`
    Step,
    /// `range()`
    Range,
    /// `-a`; a sign before a number is part of the number, and `+a` is `a`
    Negative(Box<DurationExpr>),
    /// `a + b`; only arithmetic operators
    Binary(BinaryOp, Box<DurationExpr>, Box<DurationExpr>),
    /// `min_of(a, b)`
    MinOf(Box<DurationExpr>, Box<DurationExpr>),
    /// `max_of(a, b)`
    MaxOf(Box<DurationExpr>, Box<DurationExpr>),
    /// `(a)`; `a` is neither a number nor itself in parentheses
    Paren(Box<DurationExpr>),
}

/// `@ ...`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A timestamp.
    Time(TimestampMs),
    /// `start()`
    Start,
    /// `end()`
    End,
}

/// How a selector picks samples at the edges of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Edges {
    /// The plain way.
    #[default]
    Plain,
    /// `anchored`
    Anchored,
    /// `smoothed`
    Smoothed,
}

/// An instant vector selector.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSelector {
    /// The name written before the braces, if any; it is among the matchers too.
    pub name: Option<String>,
    /// All conditions, the name included.
    pub matchers: Vec<Matcher>,
    /// `offset`, zero if there is none.
    pub offset: Duration,
    /// `@`.
    pub at: Option<At>,
    /// `anchored`, `smoothed`.
    pub edges: Edges,
}

/// A range vector selector.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixSelector {
    /// The series and the modifiers.
    pub vector: VectorSelector,
    /// Where the vector selector without the range stands.
    pub vector_span: Span,
    /// The window.
    pub range: Duration,
}

/// A subquery.
#[derive(Clone, Debug, PartialEq)]
pub struct Subquery {
    /// What is evaluated at each inner step.
    pub expr: Expr,
    /// The window.
    pub range: Duration,
    /// The inner step; the default one if absent.
    pub step: Option<Duration>,
    /// `offset`.
    pub offset: Duration,
    /// `@`.
    pub at: Option<At>,
}

/// A function call, type-checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The row of the function table.
    pub function: &'static Function,
    /// The arguments.
    pub args: Vec<Expr>,
}

/// Aggregation operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum AggregateOp {
    Sum,
    Avg,
    Count,
    Min,
    Max,
    Group,
    Stddev,
    Stdvar,
    TopK,
    BottomK,
    CountValues,
    Quantile,
    LimitK,
    LimitRatio,
}

/// The labels that a grouping or a matching compares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Grouping {
    /// `by (...)`
    By(Vec<String>),
    /// `without (...)`
    Without(Vec<String>),
}

/// An aggregation. No modifier is `By([])`, as upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// The operator.
    pub op: AggregateOp,
    /// What is aggregated.
    pub expr: Expr,
    /// The parameter of `topk`, `quantile`, `count_values`, ...
    pub param: Option<Expr>,
    /// The groups.
    pub grouping: Grouping,
}

/// Infix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    And,
    Or,
    Unless,
    /// `</`, keeps a histogram's lower part
    TrimUpper,
    /// `>/`, keeps a histogram's upper part
    TrimLower,
}

/// How many elements of one side pair with how many of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
#[allow(missing_docs)]
pub enum Cardinality {
    #[default]
    OneToOne,
    ManyToOne,
    OneToMany,
    ManyToMany,
}

/// How elements of two vectors are paired.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Matching {
    /// Pairs.
    pub cardinality: Cardinality,
    /// `true` for `on`, `false` for `ignoring` and for none.
    pub on: bool,
    /// The labels of `on` or `ignoring`, as written.
    pub labels: Vec<String>,
    /// The labels that `group_left` or `group_right` copies.
    pub include: Vec<String>,
    /// `fill` or `fill_left`.
    pub fill_left: Option<f64>,
    /// `fill` or `fill_right`.
    pub fill_right: Option<f64>,
}

/// An infix operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Binary {
    /// The operator.
    pub op: BinaryOp,
    /// Left side.
    pub left: Expr,
    /// Right side.
    pub right: Expr,
    /// `bool`.
    pub returns_bool: bool,
    /// Set if both sides are vectors.
    pub matching: Option<Matching>,
}

impl UnaryOp {
    /// The operator in the text of a query.
    pub fn as_str(self) -> &'static str {
        match self {
            UnaryOp::Plus => "+",
            UnaryOp::Minus => "-",
        }
    }
}

const SCALAR: Option<ValueType> = Some(ValueType::Scalar);
const STRING: Option<ValueType> = Some(ValueType::String);

/// All aggregation operators in the order of their declaration, with the name in PromQL and the
/// type of the parameter.
const AGGREGATE_OPS: [(AggregateOp, &str, Option<ValueType>); 14] = [
    (AggregateOp::Sum, "sum", None),
    (AggregateOp::Avg, "avg", None),
    (AggregateOp::Count, "count", None),
    (AggregateOp::Min, "min", None),
    (AggregateOp::Max, "max", None),
    (AggregateOp::Group, "group", None),
    (AggregateOp::Stddev, "stddev", None),
    (AggregateOp::Stdvar, "stdvar", None),
    (AggregateOp::TopK, "topk", SCALAR),
    (AggregateOp::BottomK, "bottomk", SCALAR),
    (AggregateOp::CountValues, "count_values", STRING),
    (AggregateOp::Quantile, "quantile", SCALAR),
    (AggregateOp::LimitK, "limitk", SCALAR),
    (AggregateOp::LimitRatio, "limit_ratio", SCALAR),
];

impl AggregateOp {
    /// The operator with the name `name`, in lower case.
    pub fn named(name: &str) -> Option<Self> {
        let row = AGGREGATE_OPS.iter().find(|(_, known, _)| *known == name)?;
        Some(row.0)
    }

    /// The name in PromQL.
    pub fn as_str(self) -> &'static str {
        AGGREGATE_OPS[self as usize].1
    }

    /// The type of the parameter, of operators that take one.
    pub fn param_type(self) -> Option<ValueType> {
        AGGREGATE_OPS[self as usize].2
    }

    /// Whether it needs `promql-experimental-functions`.
    pub fn is_experimental(self) -> bool {
        matches!(self, AggregateOp::LimitK | AggregateOp::LimitRatio)
    }
}

/// What an infix operator makes of its operands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OperatorKind {
    Arithmetic,
    Comparison,
    Set,
    Trim,
}

impl BinaryOp {
    /// How it is written, how tightly it binds, and of which kind it is.
    #[inline]
    const fn row(self) -> (&'static str, u8, OperatorKind) {
        use OperatorKind::{Arithmetic, Comparison, Set, Trim};
        match self {
            BinaryOp::Or => ("or", 1, Set),
            BinaryOp::And => ("and", 2, Set),
            BinaryOp::Unless => ("unless", 2, Set),
            BinaryOp::Equal => ("==", 3, Comparison),
            BinaryOp::NotEqual => ("!=", 3, Comparison),
            BinaryOp::Greater => (">", 3, Comparison),
            BinaryOp::Less => ("<", 3, Comparison),
            BinaryOp::GreaterOrEqual => (">=", 3, Comparison),
            BinaryOp::LessOrEqual => ("<=", 3, Comparison),
            BinaryOp::TrimUpper => ("</", 3, Trim),
            BinaryOp::TrimLower => (">/", 3, Trim),
            BinaryOp::Add => ("+", 4, Arithmetic),
            BinaryOp::Sub => ("-", 4, Arithmetic),
            BinaryOp::Mul => ("*", 5, Arithmetic),
            BinaryOp::Div => ("/", 5, Arithmetic),
            BinaryOp::Mod => ("%", 5, Arithmetic),
            BinaryOp::Atan2 => ("atan2", 5, Arithmetic),
            BinaryOp::Pow => ("^", 6, Arithmetic),
        }
    }

    /// The operator in the text of a query.
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// How tightly it binds; a higher number binds tighter. All but [`BinaryOp::Pow`] associate to
    /// the left.
    pub fn precedence(self) -> u8 {
        self.row().1
    }

    /// Whether it is `==`, `!=`, `<`, `<=`, `>` or `>=`.
    pub fn is_comparison(self) -> bool {
        self.row().2 == OperatorKind::Comparison
    }

    /// Whether its result is another metric than its operands: `+`, `-`, `*`, `/`, `%`, `^` or
    /// `atan2`.
    pub fn is_arithmetic(self) -> bool {
        self.row().2 == OperatorKind::Arithmetic
    }

    /// Whether it is `and`, `or` or `unless`.
    pub fn is_set(self) -> bool {
        self.row().2 == OperatorKind::Set
    }
}

/// The types of expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ValueType {
    Scalar,
    String,
    Vector,
    Matrix,
}

/// The words of the documentation, which error messages use.
impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueType::Scalar => "scalar",
            ValueType::String => "string",
            ValueType::Vector => "instant vector",
            ValueType::Matrix => "range vector",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregate_ops_stand_in_the_order_of_their_declaration() {
        for (i, (op, name, _)) in AGGREGATE_OPS.iter().enumerate() {
            assert_eq!(*op as usize, i, "{name}");
            assert_eq!(AggregateOp::named(op.as_str()), Some(*op));
        }
    }
}
