//! Determines whether the steps of an expression are independent of the range of the query, so that
//! the results of two ranges can be joined.
//!
//! [`newest_read`] examines the expression alone. The evaluation detects values that depend on the
//! order of the series, which differs between ranges:
//! [`QueryResult::depends_on_range`](crate::value::QueryResult::depends_on_range).

use crate::ast::{
    AggregateExpr, BinaryExpr, Expr, ExprKind, FunctionCall, QueryDuration, SubqueryExpr,
    ValueType, VectorSelector, WindowEdges,
};
use crate::depth::ensure_stack;
use crate::features::Features;
use crate::functions::FunctionId;
use firn_model::labels::METRIC_NAME;
use firn_model::matcher::MatchOp;

/// Returns the time of the newest sample that a step reads, relative to the step, in milliseconds:
/// zero, negative with `offset`, positive with a negative offset. Returns `None` if the value of a
/// step may depend on the start or end of the query, or on samples at other times.
///
/// An expression without selectors reads no samples and returns `i64::MIN`.
pub fn newest_read(expr: &Expr, features: Features) -> Option<i64> {
    let plain = Features {
        experimental_functions: features.experimental_functions,
        duration_expressions: features.duration_expressions,
        ..Features::default()
    };
    let is_instant = matches!(expr.value_type(), ValueType::Scalar | ValueType::Vector);
    if features != plain || !is_instant {
        return None;
    }
    let mut newest = i64::MIN;
    is_local(expr, 0, &mut newest).then_some(newest)
}

/// Returns the maximum age of the samples that a step reads, relative to the step, in milliseconds:
/// the sum of the lookback and all ranges and offsets of the expression.
pub fn reach_max(expr: &Expr, lookback_ms: i64) -> i64 {
    let millis = |duration: &QueryDuration| match duration {
        QueryDuration::Millis(ms) => ms.saturating_abs(),
        QueryDuration::Expr(_) => i64::MAX,
    };
    let mut total = lookback_ms;
    expr.visit(&mut |node| {
        let of_node = match &node.kind {
            ExprKind::Vector(selector) => millis(&selector.offset),
            ExprKind::Matrix(matrix) => {
                millis(&matrix.range).saturating_add(millis(&matrix.vector.offset))
            }
            ExprKind::Subquery(subquery) => {
                millis(&subquery.range).saturating_add(millis(&subquery.offset))
            }
            _ => 0,
        };
        total = total.saturating_add(of_node);
    });
    total
}

/// Returns whether the value of `expr` at a step depends only on samples near the step. Raises
/// `newest` to the newest time that `expr` reads when evaluated `shift` milliseconds after a step.
fn is_local(expr: &Expr, shift: i64, newest: &mut i64) -> bool {
    ensure_stack(|| match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => true,
        ExprKind::Vector(selector) => is_local_selector(selector, shift, newest),
        ExprKind::Matrix(matrix) => {
            // Removing different metric names fails if series become equal anywhere in the range.
            has_one_name(&matrix.vector)
                && matches!(matrix.range, QueryDuration::Millis(_))
                && is_local_selector(&matrix.vector, shift, newest)
        }
        ExprKind::Subquery(subquery) => is_local_subquery(subquery, shift, newest),
        ExprKind::Call(call) => is_local_call(call, shift, newest),
        ExprKind::Aggregate(aggregate) => is_local_aggregate(aggregate, shift, newest),
        ExprKind::Binary(binary) => is_local_operation(binary, shift, newest),
        ExprKind::Unary(_, inner) | ExprKind::Paren(inner) => is_local(inner, shift, newest),
    })
}

fn is_local_selector(selector: &VectorSelector, shift: i64, newest: &mut i64) -> bool {
    let (QueryDuration::Millis(offset), None) = (&selector.offset, selector.at) else {
        return false;
    };
    *newest = (*newest).max(shift.saturating_sub(*offset));
    selector.edges == WindowEdges::default()
}

fn is_local_subquery(subquery: &SubqueryExpr, shift: i64, newest: &mut i64) -> bool {
    let (QueryDuration::Millis(offset), None) = (&subquery.offset, subquery.at) else {
        return false;
    };
    let is_fixed = |duration: &QueryDuration| matches!(duration, QueryDuration::Millis(_));
    let mut selectors = 0;
    subquery.expr.visit(&mut |node| {
        if let ExprKind::Vector(selector) = &node.kind {
            // Removing different names may make series equal, as in a range selector.
            selectors += if has_one_name(selector) { 1 } else { 2 };
        }
        if let ExprKind::Matrix(_) = &node.kind {
            selectors += 1;
        }
    });
    selectors <= 1
        && is_fixed(&subquery.range)
        && subquery.step.iter().all(is_fixed)
        && is_local(&subquery.expr, shift.saturating_sub(*offset), newest)
}

fn is_local_call(call: &FunctionCall, shift: i64, newest: &mut i64) -> bool {
    let depends_on_range = matches!(
        call.function.id,
        FunctionId::Start
            | FunctionId::End
            | FunctionId::Range
            | FunctionId::Step
            | FunctionId::StartTimestamp
            | FunctionId::Info
            | FunctionId::Sort
            | FunctionId::SortDesc
            | FunctionId::SortByLabel
            | FunctionId::SortByLabelDesc
    );
    !depends_on_range && call.args.iter().all(|arg| is_local(arg, shift, newest))
}

fn is_local_aggregate(aggregate: &AggregateExpr, shift: i64, newest: &mut i64) -> bool {
    // Annotations and errors depend on the extremes of the parameter over all steps.
    let is_constant = |param: &Expr| match &param.without_parens().kind {
        ExprKind::Number(_) | ExprKind::String(_) => true,
        ExprKind::Unary(_, inner) => matches!(inner.kind, ExprKind::Number(_)),
        _ => false,
    };
    aggregate.param.iter().all(is_constant) && is_local(&aggregate.expr, shift, newest)
}

fn is_local_operation(binary: &BinaryExpr, shift: i64, newest: &mut i64) -> bool {
    let matching = binary.matching.as_ref();
    let fills = matching.is_some_and(|m| m.fill_left.is_some() || m.fill_right.is_some());
    !fills && is_local(&binary.left, shift, newest) && is_local(&binary.right, shift, newest)
}

/// Returns whether all series of a selector have the same metric name.
fn has_one_name(selector: &VectorSelector) -> bool {
    selector.matchers.iter().any(|matcher| {
        matcher.name() == METRIC_NAME
            && matcher.op() == MatchOp::Equal
            && !matcher.value().is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    #[track_caller]
    fn check(text: &str, expected: Option<i64>) {
        let features = Features {
            experimental_functions: true,
            duration_expressions: true,
            ..Features::default()
        };
        let expr = parse(text, features).unwrap();
        assert_eq!(newest_read(&expr, features), expected, "{text}");
    }

    #[test]
    fn newest_read_follows_offsets() {
        check("up", Some(0));
        check("up offset 5s", Some(-5_000));
        check("sum(rate(x_total[5m])) / sum(up offset -2s)", Some(2_000));
        check(
            "max_over_time(rate(x[1m] offset 3s)[5m:10s] offset 4s)",
            Some(-7_000),
        );
        check("time() + vector(1)", Some(i64::MIN));
        check(
            "histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))",
            Some(0),
        );
        check("quantile(-1, {job=\"a\"})", Some(0));
    }

    #[test]
    fn expressions_that_depend_on_the_range_have_no_newest_read() {
        for text in [
            "up @ 10",
            "up @ start()",
            "rate(x[5m] @ end())",
            "max_over_time(up[5m:1m] @ 7)",
            "up[5m]",
            "\"text\"",
            "start()",
            "up + end()",
            "step()",
            "range()",
            "rate(x[step()])",
            "up offset step()",
            "rate({job=\"a\"}[5m])",
            "rate({__name__=~\"a|b\"}[5m])",
            "rate((a or b)[5m:1m])",
            "sort(up)",
            "info(up)",
            "quantile(scalar(a), up)",
        ] {
            check(text, None);
        }
    }
}
