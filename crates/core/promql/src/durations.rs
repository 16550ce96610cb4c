//! Resolution of durations: replaces every duration expression with milliseconds when the step and
//! the range of the query are available.
//!
//! Invariant: after [`resolve`] the tree contains no [`QueryDuration::Expr`].

use crate::ast::{
    BinaryOp, DurationExpr, DurationExprKind, Expr, ExprKind, QueryDuration, SubqueryExpr,
    VectorSelector,
};
use crate::grid::seconds;
use crate::math::float;
use crate::value::PromqlError;
use firn_model::log_exp;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The largest number of seconds whose nanoseconds fit in a signed 64-bit integer.
pub(crate) const DURATION_SECONDS_MAX: f64 = (1u64 << 63) as f64 / 1e9;

/// The values of `step()` and `range()` in a query. Both are zero in an instant query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationContext {
    /// Distance between the steps of the query, in nanoseconds.
    pub step_ns: i64,
    /// Distance between the start and the end of the query, in milliseconds.
    pub range_ms: i64,
}

/// Resolves every duration in the tree in place.
///
/// Returns [`PromqlError::Parse`] with the text of Prometheus if a duration is NaN, infinite or out
/// of range, or if a window or step is not positive. It is a parse error because Prometheus
/// resolves durations before it creates the query.
pub fn resolve(expr: &mut Expr, context: DurationContext) -> Result<(), PromqlError> {
    match &mut expr.kind {
        ExprKind::Vector(vector) => resolve_offset(vector, context)?,
        ExprKind::Matrix(matrix) => {
            resolve_duration(&mut matrix.range, context, false)?;
            resolve_offset(&mut matrix.vector, context)?;
        }
        ExprKind::Subquery(subquery) => resolve_subquery(subquery, context)?,
        _ => {}
    }
    let mut outcome = Ok(());
    expr.for_each_child_mut(&mut |child| {
        if outcome.is_ok() {
            outcome = resolve(child, context);
        }
    });
    outcome
}

fn resolve_offset(
    vector: &mut VectorSelector,
    context: DurationContext,
) -> Result<(), PromqlError> {
    resolve_duration(&mut vector.offset, context, true)
}

fn resolve_subquery(
    subquery: &mut SubqueryExpr,
    context: DurationContext,
) -> Result<(), PromqlError> {
    resolve_duration(&mut subquery.offset, context, true)?;
    if let Some(step) = &mut subquery.step {
        resolve_duration(step, context, false)?;
    }
    resolve_duration(&mut subquery.range, context, false)
}

fn resolve_duration(
    duration: &mut QueryDuration,
    context: DurationContext,
    may_be_negative: bool,
) -> Result<(), PromqlError> {
    let QueryDuration::Expr(expr) = duration else {
        return Ok(());
    };
    let seconds = evaluate(expr, context)?;
    if !seconds.is_finite() {
        return duration_error(expr, "duration is NaN or infinite");
    }
    if seconds <= 0.0 && !may_be_negative {
        return duration_error(expr, "duration must be greater than 0");
    }
    if !(-DURATION_SECONDS_MAX..=DURATION_SECONDS_MAX).contains(&seconds) {
        return duration_error(expr, "duration is out of range");
    }
    *duration = QueryDuration::Millis((seconds * 1000.0) as i64);
    Ok(())
}

/// Evaluates a duration expression. Returns seconds, which may be NaN or infinite.
fn evaluate(expr: &DurationExpr, context: DurationContext) -> Result<f64, PromqlError> {
    Ok(match &expr.kind {
        DurationExprKind::Number(literal) => literal.value,
        DurationExprKind::Step => seconds_of_nanos(context.step_ns),
        DurationExprKind::Range => seconds(context.range_ms),
        DurationExprKind::Negative(inner) => -evaluate(inner, context)?,
        DurationExprKind::Paren(inner) => evaluate(inner, context)?,
        DurationExprKind::MinOf(left, right) => {
            float::min(evaluate(left, context)?, evaluate(right, context)?)
        }
        DurationExprKind::MaxOf(left, right) => {
            float::max(evaluate(left, context)?, evaluate(right, context)?)
        }
        DurationExprKind::Binary(op, left, right) => {
            let (left, right) = (evaluate(left, context)?, evaluate(right, context)?);
            match op {
                BinaryOp::Div if right == 0.0 => return duration_error(expr, "division by zero"),
                BinaryOp::Mod if right == 0.0 => return duration_error(expr, "modulo by zero"),
                BinaryOp::Add => left + right,
                BinaryOp::Sub => left - right,
                BinaryOp::Mul => left * right,
                BinaryOp::Div => left / right,
                BinaryOp::Mod => left % right,
                BinaryOp::Pow => log_exp::pow(left, right),
                // The parser creates arithmetic operators only.
                _ => return duration_error(expr, "duration expression has an unknown operator"),
            }
        }
    })
}

/// Converts a duration to seconds. Whole seconds and the remainder are converted separately, like
/// `QueryDuration.Seconds` of Go, so that the result has the same bits.
pub(crate) fn seconds_of_nanos(duration_ns: i64) -> f64 {
    (duration_ns / NANOS_PER_SECOND) as f64 + (duration_ns % NANOS_PER_SECOND) as f64 / 1e9
}

/// Returns a parse error at `expr`. Prometheus prints byte offsets here instead of line and column.
fn duration_error<T>(expr: &DurationExpr, why: &str) -> Result<T, PromqlError> {
    let span = expr.span;
    Err(PromqlError::Parse(format!(
        "{}:{}: {why}",
        span.start, span.end
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Features;
    use crate::parser::parse;

    fn check(text: &str, expected: Result<&str, &str>) {
        let context = DurationContext {
            step_ns: 15 * NANOS_PER_SECOND,
            range_ms: 3_600_000,
        };
        let mut expr = parse(text, Features::ALL).unwrap();
        let outcome = resolve(&mut expr, context).map_err(|e| match e {
            PromqlError::Parse(message) => message,
            other => panic!("{text}: {other:?}"),
        });
        let found = outcome.map(|()| expr.to_string());
        assert_eq!(
            found,
            expected.map(String::from).map_err(String::from),
            "{text}"
        );
    }

    #[test]
    fn durations_resolve_settles_every_place() {
        check("foo offset (step() * 2)", Ok("foo offset 30s"));
        check("foo[5m + 30s] offset -step()", Ok("foo[5m30s] offset -15s"));
        check(
            "sum(max_over_time(foo[min_of(range(), 10m):step() ^ 2 / 15] offset (1m - 2m)))",
            Ok("sum(max_over_time(foo[10m:15s] offset -1m))"),
        );
        check(
            "foo[max_of(5m % 2m, (step()))] offset -(2 - 1)",
            Ok("foo[1m] offset -1s"),
        );
    }

    #[test]
    fn durations_resolve_takes_the_step_as_it_was_asked_for() {
        // The client sent `step=273.138`, which no float represents exactly.
        let context = DurationContext {
            step_ns: 273_137_999_999,
            range_ms: 0,
        };
        for (text, expected) in [
            ("foo[step()]", "foo[4m33s137ms]"),
            ("foo[step() * 2]", "foo[9m6s275ms]"),
        ] {
            let mut expr = parse(text, Features::ALL).unwrap();
            resolve(&mut expr, context).unwrap();
            assert_eq!(expr.to_string(), expected);
        }
        assert_eq!(seconds_of_nanos(context.step_ns), 273.137999999);
    }

    #[test]
    fn durations_resolve_refuses_with_place_in_bytes() {
        check(
            "foo[step() - 15s]",
            Err("4:16: duration must be greater than 0"),
        );
        check(
            "foo offset (1 / (step() - 15))",
            Err("12:28: division by zero"),
        );
        check(
            "foo offset (1 % (step() - 15))",
            Err("12:28: modulo by zero"),
        );
        check(
            "foo offset (10 ^ 400)",
            Err("12:20: duration is NaN or infinite"),
        );
        check(
            "foo offset (10 ^ 300)",
            Err("12:20: duration is out of range"),
        );
        check(
            "foo[1h:step() - 1m]",
            Err("7:18: duration must be greater than 0"),
        );
        check(
            "rate(m[5m-step()-5m])",
            Err("7:19: duration must be greater than 0"),
        );
    }
}
