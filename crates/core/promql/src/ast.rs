//! The syntax tree of PromQL. Every node records its position in the query text.
//!
//! Strings are bytes, as in Prometheus. Durations written as expressions (`[2m * 3]`) remain trees
//! until the start, end and step of the query are available; see [`QueryDuration`] and
//! [`crate::durations`].
//!
//! Invariants: the parser returns only type-checked trees, so the evaluator does not check types
//! again. The height of a tree is bounded, and so is recursion over it.

mod walk;

use crate::functions::Function;
use firn_model::matcher::Matcher;
use firn_model::sample::TimestampMs;
use std::fmt;

/// The position of a node: byte offsets into the query text, as a half-open range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PositionRange {
    /// Offset of the first byte of the node, counted from zero.
    pub start: u32,
    /// Offset one past the last byte of the node.
    pub end: u32,
}

impl PositionRange {
    /// Returns the span from the start of `self` to the end of `last`.
    pub fn join(self, last: PositionRange) -> PositionRange {
        PositionRange {
            start: self.start,
            end: last.end,
        }
    }
}

/// A node of the syntax tree: an expression and its position.
#[derive(Debug, PartialEq)]
pub struct Expr {
    /// The kind of the expression, which contains its operands.
    pub kind: ExprKind,
    /// The position of the node in the query text, which error messages show.
    pub span: PositionRange,
}

/// The kinds of expressions, with the operands of each. In a parsed tree their types have been
/// checked.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A number: `1`, `0x1f`, or `5m` where a number is allowed.
    Number(NumberLiteral),
    /// A string literal such as `"text"`, unescaped and without quotes.
    String(Vec<u8>),
    /// An instant vector selector: `up{job="x"} offset 5m @ end()`.
    Vector(VectorSelector),
    /// A range vector selector such as `up[5m]`: the samples in a window of each series.
    Matrix(MatrixSelector),
    /// A subquery such as `(expr)[30m:1m]`: an expression evaluated at several inner steps.
    Subquery(Box<SubqueryExpr>),
    /// A function call such as `rate(...)`, with checked arguments.
    Call(FunctionCall),
    /// An aggregation such as `sum by (x) (...)`, with an optional parameter.
    Aggregate(Box<AggregateExpr>),
    /// An infix operation such as `a + on (x) b`, with an optional vector matching.
    Binary(Box<BinaryExpr>),
    /// A prefix operation: `-a` or `+a`. The sign of a number literal is part of the number
    /// instead.
    Unary(UnaryOp, Box<Expr>),
    /// An expression in parentheses: `(a)`. The tree retains them so that the printed form is the
    /// same.
    Paren(Box<Expr>),
}

/// A number literal. It also records whether it was written as a duration, because the printer
/// preserves the notation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberLiteral {
    /// The value of the literal. For a duration: seconds.
    pub value: f64,
    /// True if the literal was written as a duration, such as `5m`.
    pub is_duration: bool,
}

/// The prefix operators of PromQL, which apply to scalars and instant vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    /// The plus sign `+`, which has no effect on values.
    Plus,
    /// The minus sign `-`, which negates every value and removes the metric name.
    Minus,
}

/// A duration of a range, step or offset: constant milliseconds, or a tree over numbers, `step()`
/// and `range()`.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryDuration {
    /// A constant duration in milliseconds, which may be negative for an offset.
    Millis(i64),
    /// A duration that depends on the step or the range of the query. [`crate::durations::resolve`]
    /// replaces it with milliseconds.
    Expr(Box<DurationExpr>),
}

impl Default for QueryDuration {
    fn default() -> Self {
        QueryDuration::Millis(0)
    }
}

/// A node of a duration expression. All values are seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct DurationExpr {
    /// The kind of the duration expression, with its operands.
    pub kind: DurationExprKind,
    /// The position of the node, without surrounding parentheses and without the name of a function
    /// such as `min_of`.
    pub span: PositionRange,
}

/// The kinds of duration expressions. Only the first three have no operands.
#[derive(Clone, Debug, PartialEq)]
pub enum DurationExprKind {
    /// A number of seconds or a duration literal such as `5m`.
    Number(NumberLiteral),
    /// The call `step()`: the step of the query, zero in an instant query.
    Step,
    /// The call `range()`: the distance between the start and the end of the query.
    Range,
    /// A negation `-a`. The sign of a number is part of the number, and `+a` is parsed as `a`.
    Negative(Box<DurationExpr>),
    /// An operation `a + b`. Only arithmetic operators are allowed.
    Binary(BinaryOp, Box<DurationExpr>, Box<DurationExpr>),
    /// The smaller of two durations: `min_of(a, b)`, evaluated when the query starts.
    MinOf(Box<DurationExpr>, Box<DurationExpr>),
    /// The larger of two durations: `max_of(a, b)`, evaluated when the query starts.
    MaxOf(Box<DurationExpr>, Box<DurationExpr>),
    /// A parenthesized expression `(a)`, where `a` is neither a number nor in parentheses itself.
    Paren(Box<DurationExpr>),
}

/// The `@` modifier, which fixes the evaluation time of a selector or subquery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtModifier {
    /// A fixed timestamp in milliseconds, written in seconds: `@ 1609746000`.
    Time(TimestampMs),
    /// The start of the query, `@ start()`, which is the evaluation time of an instant query.
    Start,
    /// The end of the query, `@ end()`, which is the evaluation time of an instant query.
    End,
}

/// The treatment of samples at the edges of a selector's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum WindowEdges {
    /// The default: only samples inside the window are used.
    #[default]
    Plain,
    /// The `anchored` modifier, which adds the last sample before the window.
    Anchored,
    /// The `smoothed` modifier, which interpolates values at both edges of the window.
    Smoothed,
}

/// An instant vector selector: the matchers that select series, and the modifiers that select
/// samples.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSelector {
    /// The metric name written before the braces, if any. `matchers` contains it, too.
    pub name: Option<String>,
    /// All matchers of the selector. The last one is that of `name`, if there is a name.
    pub matchers: Vec<Matcher>,
    /// The `offset` modifier, which shifts the window into the past. Zero if it is absent.
    pub offset: QueryDuration,
    /// The `@` modifier, which replaces the evaluation time, if present.
    pub at: Option<AtModifier>,
    /// The `anchored` or `smoothed` modifier, which changes the samples at the edges of the window.
    pub edges: WindowEdges,
}

/// A range vector selector: an instant vector selector and the length of its window.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixSelector {
    /// The matchers and modifiers of the selector, without the range.
    pub vector: VectorSelector,
    /// The position of the vector selector without the range.
    pub vector_span: PositionRange,
    /// The length of the window, which is positive.
    pub range: QueryDuration,
}

/// A subquery: an expression that is evaluated at the inner steps of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct SubqueryExpr {
    /// The expression that is evaluated at each inner step.
    pub expr: Expr,
    /// The length of the window in which the expression is evaluated; positive.
    pub range: QueryDuration,
    /// The distance between inner steps. If absent, the default step of the query options is used.
    pub step: Option<QueryDuration>,
    /// The `offset` modifier, which shifts the window into the past. Zero if it is absent.
    pub offset: QueryDuration,
    /// The `@` modifier, which replaces the evaluation time, if present.
    pub at: Option<AtModifier>,
}

/// A function call. The number and types of its arguments have been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionCall {
    /// The function, as a row of the function table.
    pub function: &'static Function,
    /// The arguments in the order of the query text.
    pub args: Vec<Expr>,
}

/// The aggregation operators of PromQL. Their order is the order of `AGGREGATE_OPS`.
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

/// The labels that form the groups of an aggregation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AggregateGrouping {
    /// `by (...)`: groups consist of series with equal values of these labels.
    By(Vec<String>),
    /// `without (...)`: groups consist of series whose labels are equal except for these.
    Without(Vec<String>),
}

/// An aggregation. Without a modifier its grouping is `By([])`, as in Prometheus.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateExpr {
    /// The aggregation operator, such as `sum` or `topk`.
    pub op: AggregateOp,
    /// The aggregated expression, whose value is an instant vector.
    pub expr: Expr,
    /// The parameter of `topk`, `quantile`, `count_values` and similar operators.
    pub param: Option<Expr>,
    /// The labels that form the groups; the names may contain duplicates.
    pub grouping: AggregateGrouping,
}

/// The infix operators of PromQL. Precedence and class of each are in `BinaryOp::row`.
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
    /// The operator `</`, which keeps the part of a histogram below a value.
    TrimUpper,
    /// The operator `>/`, which keeps the part of a histogram above a value.
    TrimLower,
}

/// The number of series on each side of a vector match that may form a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
#[allow(missing_docs)]
pub enum MatchCardinality {
    #[default]
    OneToOne,
    ManyToOne,
    OneToMany,
    ManyToMany,
}

/// The vector matching of a binary operation: the rules by which series of both sides are paired.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct VectorMatching {
    /// The cardinality of the match. `group_left` is many-to-one, `group_right` one-to-many.
    pub cardinality: MatchCardinality,
    /// True for `on`, false for `ignoring` and for matching without a modifier.
    pub on: bool,
    /// The labels of `on` or `ignoring` in the order of the query text.
    pub labels: Vec<String>,
    /// The labels that `group_left` or `group_right` copies from the "one" side.
    pub include: Vec<String>,
    /// The value that replaces a missing left side: the argument of `fill` or `fill_left`.
    pub fill_left: Option<f64>,
    /// The value that replaces a missing right side: the argument of `fill` or `fill_right`.
    pub fill_right: Option<f64>,
}

/// An infix operation with two operands and an optional vector matching.
#[derive(Clone, Debug, PartialEq)]
pub struct BinaryExpr {
    /// The infix operator, such as `+` or `and`.
    pub op: BinaryOp,
    /// The operand on the left side: a scalar or an instant vector.
    pub left: Expr,
    /// The operand on the right side: a scalar or an instant vector.
    pub right: Expr,
    /// True if the `bool` modifier is present: a comparison then returns 0 or 1 and drops no
    /// series.
    pub returns_bool: bool,
    /// The vector matching. After the type check it is present exactly if both sides are vectors.
    pub matching: Option<VectorMatching>,
}

impl UnaryOp {
    /// Returns the operator as it is written in a query.
    pub fn as_str(self) -> &'static str {
        match self {
            UnaryOp::Plus => "+",
            UnaryOp::Minus => "-",
        }
    }
}

const SCALAR: Option<ValueType> = Some(ValueType::Scalar);
const STRING: Option<ValueType> = Some(ValueType::String);

/// All aggregation operators in the order of their declaration, each with its name in PromQL and
/// the type of its parameter, if it has one.
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
    /// Returns the operator called `name`, which must be in lower case.
    pub fn from_name(name: &str) -> Option<Self> {
        let row = AGGREGATE_OPS.iter().find(|(_, known, _)| *known == name)?;
        Some(row.0)
    }

    /// Returns the name of the operator in PromQL, in lower case.
    pub fn as_str(self) -> &'static str {
        AGGREGATE_OPS[self as usize].1
    }

    /// Returns the type of the parameter, or `None` if the operator has no parameter.
    pub fn param_type(self) -> Option<ValueType> {
        AGGREGATE_OPS[self as usize].2
    }

    /// Returns whether the operator is experimental and requires the feature
    /// `promql-experimental-functions`.
    pub fn is_experimental(self) -> bool {
        matches!(self, AggregateOp::LimitK | AggregateOp::LimitRatio)
    }
}

/// The classes of infix operators, which differ in their operand types and results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BinaryOpKind {
    Arithmetic,
    Comparison,
    Set,
    Trim,
}

impl BinaryOp {
    /// Returns the operator's text, its precedence, and its class.
    #[inline]
    const fn row(self) -> (&'static str, u8, BinaryOpKind) {
        use BinaryOpKind::{Arithmetic, Comparison, Set, Trim};
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

    /// Returns the operator as it is written in a query.
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// Returns the precedence of the operator; a higher number binds tighter. All operators except
    /// [`BinaryOp::Pow`] associate to the left.
    pub fn precedence(self) -> u8 {
        self.row().1
    }

    /// Returns whether the operator is `==`, `!=`, `<`, `<=`, `>` or `>=`.
    pub fn is_comparison(self) -> bool {
        self.row().2 == BinaryOpKind::Comparison
    }

    /// Returns whether the operator is `+`, `-`, `*`, `/`, `%`, `^` or `atan2`. Its result is then
    /// a different metric from its operands.
    pub fn is_arithmetic(self) -> bool {
        self.row().2 == BinaryOpKind::Arithmetic
    }

    /// Returns whether the operator is `and`, `or` or `unless`.
    pub fn is_set(self) -> bool {
        self.row().2 == BinaryOpKind::Set
    }
}

/// The types of PromQL expressions, in the terms of Prometheus. A vector is an instant vector, a
/// matrix a range vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ValueType {
    Scalar,
    String,
    Vector,
    Matrix,
}

/// Prints the name of the type as the documentation and error messages of Prometheus write it.
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
            assert_eq!(AggregateOp::from_name(op.as_str()), Some(*op));
        }
    }
}
