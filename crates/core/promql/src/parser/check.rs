//! The type checker: rejects expressions that the grammar accepts and the language does not allow.
//!
//! Nodes are checked in the same order as in Prometheus, because only the first error is reported.
//! The checker also sets the properties that depend on types: set operators match many-to-many, and
//! operations with a scalar have no vector matching.

use crate::ast::{
    AggregateExpr, BinaryExpr, Expr, ExprKind, FunctionCall, MatchCardinality, PositionRange,
    ValueType, VectorMatching, VectorSelector,
};
use crate::depth::ensure_stack;
use crate::functions::{Function, FunctionId};
use crate::lexer::is_space;
use crate::quote::quote;
use crate::syntax_error::QuerySyntaxError;
use firn_model::labels::METRIC_NAME;

type Checked<T> = Result<T, QuerySyntaxError>;

/// Checks `expr` and returns the type of its value. `text` must be the text that it was parsed
/// from.
pub(super) fn check(expr: &mut Expr, text: &str) -> Checked<ValueType> {
    ensure_stack(|| check_node(expr, text))
}

fn check_node(expr: &mut Expr, text: &str) -> Checked<ValueType> {
    let span = expr.span;
    match &mut expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => {}
        ExprKind::Vector(vector) => check_selector(vector, span, false)?,
        ExprKind::Matrix(matrix) => check_selector(&matrix.vector, span, false)?,
        ExprKind::Subquery(subquery) => {
            let found = check(&mut subquery.expr, text)?;
            check_subquery_operand(found, span)?;
        }
        ExprKind::Call(call) => check_call(call, span, text)?,
        ExprKind::Aggregate(aggregate) => check_aggregate(aggregate, text)?,
        ExprKind::Binary(binary) => return check_binary(binary, span, text),
        ExprKind::Unary(_, inner) => {
            let found = check(inner, text)?;
            check_sign_operand(found, span)?;
            return Ok(found);
        }
        ExprKind::Paren(inner) => return check(inner, text),
    }
    Ok(expr.value_type())
}

fn check_error<T>(span: PositionRange, message: impl Into<String>) -> Checked<T> {
    Err(QuerySyntaxError::new(span.start as usize, message))
}

fn check_selector(
    vector: &VectorSelector,
    span: PositionRange,
    may_match_all: bool,
) -> Checked<()> {
    let Some(name) = &vector.name else {
        if may_match_all || vector.matchers.iter().any(|m| !m.matches(b"")) {
            return Ok(());
        }
        let message = "vector selector must contain at least one non-empty matcher";
        return check_error(span, message);
    };
    // The last matcher is that of the name before the braces.
    let mut in_braces = vector.matchers.iter().rev().skip(1).rev();
    match in_braces.find(|m| m.name() == METRIC_NAME) {
        None => Ok(()),
        Some(other) => {
            let (name, other) = (quote(name.as_bytes()), quote(other.value()));
            check_error(
                span,
                format!("metric name must not be set twice: {name} or {other}"),
            )
        }
    }
}

fn check_subquery_operand(found: ValueType, span: PositionRange) -> Checked<()> {
    let found = match found {
        ValueType::Vector => return Ok(()),
        ValueType::Scalar => "scalar",
        ValueType::String => "string",
        ValueType::Matrix => "matrix",
    };
    check_error(
        span,
        format!("subquery is only allowed on instant vector, got {found} instead"),
    )
}

fn check_sign_operand(found: ValueType, span: PositionRange) -> Checked<()> {
    if matches!(found, ValueType::Scalar | ValueType::Vector) {
        return Ok(());
    }
    check_error(
        span,
        format!(
            "unary expression only allowed on expressions of type scalar or instant vector, \
             got \"{found}\""
        ),
    )
}

fn check_type(expr: &mut Expr, wanted: ValueType, context: &str, text: &str) -> Checked<()> {
    let found = check(expr, text)?;
    expect_type(expr, found, wanted, context)
}

fn expect_type(expr: &Expr, found: ValueType, wanted: ValueType, context: &str) -> Checked<()> {
    if found == wanted {
        return Ok(());
    }
    check_error(
        expr.span,
        format!("expected type {wanted} in {context}, got {found}"),
    )
}

fn check_aggregate(aggregate: &mut AggregateExpr, text: &str) -> Checked<()> {
    check_type(
        &mut aggregate.expr,
        ValueType::Vector,
        "aggregation expression",
        text,
    )?;
    match (&mut aggregate.param, aggregate.op.param_type()) {
        (Some(param), Some(wanted)) => check_type(param, wanted, "aggregation parameter", text),
        _ => Ok(()),
    }
}

fn check_call(call: &mut FunctionCall, span: PositionRange, text: &str) -> Checked<()> {
    let function = call.function;
    check_argument_count(function, call.args.len(), span)?;
    let is_info = function.id == FunctionId::Info;
    if is_info && let Some(labels) = call.args.get(1) {
        check_info_labels(labels, span)?;
    }
    let context = format!("call to function \"{}\"", function.name);
    for (i, arg) in call.args.iter_mut().enumerate() {
        let Some(wanted) = function.args.get(i).or(function.args.last()) else {
            break;
        };
        let found = match &arg.kind {
            ExprKind::Vector(vector) if is_info && i == 1 => {
                check_selector(vector, arg.span, true)?;
                ValueType::Vector
            }
            _ => check(arg, text)?,
        };
        expect_type(arg, found, *wanted, &context)?;
    }
    Ok(())
}

fn check_argument_count(function: &Function, count: usize, span: PositionRange) -> Checked<()> {
    let (listed, name) = (function.args.len(), function.name);
    let optional = function.variadic;
    let count_min = listed - usize::from(optional != 0);
    let count_max = usize::try_from(optional).map_or(usize::MAX, |optional| count_min + optional);
    if (count_min..=count_max).contains(&count) {
        return Ok(());
    }
    let wanted = if optional == 0 {
        listed.to_string()
    } else if count < count_min {
        format!("at least {count_min}")
    } else {
        format!("at most {count_max}")
    };
    check_error(
        span,
        format!("expected {wanted} argument(s) in call to \"{name}\", got {count}"),
    )
}

/// Checks the second argument of `info`, which must consist of label matchers without a metric
/// name.
fn check_info_labels(labels: &Expr, call_span: PositionRange) -> Checked<()> {
    let found = labels.value_type();
    if found != ValueType::Vector {
        return check_error(
            call_span,
            format!("expected type instant vector in call to function \"info\", got {found}"),
        );
    }
    match &labels.kind {
        ExprKind::Vector(vector) if vector.name.is_none() => Ok(()),
        ExprKind::Vector(_) => check_error(
            labels.span,
            "expected label selectors only, got vector selector instead",
        ),
        _ => check_error(labels.span, "expected label selectors only"),
    }
}

fn check_binary(binary: &mut BinaryExpr, span: PositionRange, text: &str) -> Checked<ValueType> {
    let left = check(&mut binary.left, text)?;
    let right = check(&mut binary.right, text)?;
    let op = binary.op;
    let at_operator = || operator_position(binary.left.span, text);
    if binary.returns_bool && !op.is_comparison() {
        let message = "bool modifier can only be used on comparison operators";
        return Err(QuerySyntaxError::new(at_operator(), message));
    }
    let scalars = left == ValueType::Scalar && right == ValueType::Scalar;
    if op.is_comparison() && !binary.returns_bool && scalars {
        let message = "comparisons between scalars must use BOOL modifier";
        return Err(QuerySyntaxError::new(at_operator(), message));
    }
    if let Some(matching) = &binary.matching {
        check_label_lists(matching)
            .map_err(|message| QuerySyntaxError::new(at_operator(), message))?;
    }
    for (side, found) in [(&binary.left, left), (&binary.right, right)] {
        if !matches!(found, ValueType::Scalar | ValueType::Vector) {
            let message = "binary expression must contain only scalar and instant vector types";
            return check_error(side.span, message);
        }
    }
    if left == ValueType::Vector && right == ValueType::Vector {
        check_set_operator(binary, span)?;
        return Ok(ValueType::Vector);
    }
    check_scalar_sides(binary, span)?;
    Ok(if scalars {
        ValueType::Scalar
    } else {
        ValueType::Vector
    })
}

/// Returns the byte offset of the operator after the left side.
fn operator_position(left: PositionRange, text: &str) -> usize {
    let rest = text.get(left.end as usize..).unwrap_or_default();
    text.len() - rest.trim_start_matches(is_space).len()
}

fn check_label_lists(matching: &VectorMatching) -> Result<(), String> {
    if !matching.on {
        return Ok(());
    }
    let twice = matching
        .labels
        .iter()
        .find(|label| matching.include.contains(label));
    match twice {
        None => Ok(()),
        Some(label) => Err(format!(
            "label {} must not occur in ON and GROUP clause at once",
            quote(label.as_bytes())
        )),
    }
}

/// Checks an operation with a scalar on at least one side and removes its vector matching.
fn check_scalar_sides(binary: &mut BinaryExpr, span: PositionRange) -> Checked<()> {
    let matching = binary.matching.take().unwrap_or_default();
    if !matching.labels.is_empty() {
        let message = "vector matching only allowed between instant vectors";
        return check_error(span, message);
    }
    if matching.fill_left.or(matching.fill_right).is_some() {
        let message = "filling in missing series only allowed between instant vectors";
        return check_error(span, message);
    }
    if binary.op.is_set() {
        let op = binary.op.as_str();
        return check_error(
            span,
            format!("set operator \"{op}\" not allowed in binary scalar expression"),
        );
    }
    Ok(())
}

fn check_set_operator(binary: &mut BinaryExpr, span: PositionRange) -> Checked<()> {
    let Some(matching) = binary.matching.as_mut().filter(|_| binary.op.is_set()) else {
        return Ok(());
    };
    if matching.cardinality != MatchCardinality::OneToOne {
        let op = binary.op.as_str();
        return check_error(span, format!("no grouping allowed for \"{op}\" operation"));
    }
    if matching.fill_left.or(matching.fill_right).is_some() {
        return check_error(
            span,
            "filling in missing series not allowed for set operators",
        );
    }
    matching.cardinality = MatchCardinality::ManyToMany;
    Ok(())
}
