//! Evaluates one `eval` command in all ways that must return the same result.
//!
//! An instant query is repeated with every selector fixed to its time by `@`, at different
//! evaluation times, unless one of its functions depends on the evaluation time. Each of these
//! queries is also repeated as the middle of a range query, unless it contains `start()`, `end()`,
//! `range()` or `step()`, whose values would differ.

use super::OPTIONS;
use super::command::{EvalCommand, ExpectedValue};
use super::compare::{check_sorted, compare, vector_at};
use crate::ast::{AtModifier, Expr, ExprKind};
use crate::grid::StepGrid;
use crate::parser::parse;
use crate::value::{PromqlError, QueryPointValue, QueryResult, QueryValue};
use crate::{EvalTime, QueryContext, query, query_expr};
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::env::Compute;
use firn_model::sample::TimestampMs;
use firn_model::store::Select;
use firn_model::tenant::TenantId;

/// Memory limit of one query of a script in bytes. A query with ten thousand samples needs a
/// fraction of it.
const QUERY_BYTES_MAX: usize = 256 << 20;

/// Distance in milliseconds from the instant to both ends of the surrounding range query, and its
/// step.
const AROUND_MS: i64 = 60_000;

/// Evaluates `eval` on the data of `store`. Returns a description of the first difference.
pub(super) fn check(
    eval: &EvalCommand,
    store: &dyn Select,
    compute: &dyn Compute,
) -> Result<(), String> {
    let checker = ScriptChecker {
        eval,
        store,
        compute,
    };
    let found = run_query_with(store, compute, |context| {
        query(context, &eval.text, eval.time, &OPTIONS)
    });
    let at = match eval.time {
        EvalTime::Instant(at) => at,
        EvalTime::Range { start, end, .. } => {
            let grid = StepGrid::from_bounds(start, end, eval.time.step_ms());
            return checker.check_answer(&found, Some(grid));
        }
    };
    checker.check_answer(&found, None)?;
    // A text that does not parse cannot be evaluated in other ways.
    let Ok(expr) = parse(&eval.text, OPTIONS.features) else {
        return Ok(());
    };
    checker.check_in_range_query(&expr, at)?;
    checker.check_pinned(&expr, at)
}

fn run_query_with(
    store: &dyn Select,
    compute: &dyn Compute,
    run: impl FnOnce(&QueryContext<'_>) -> Result<QueryResult, PromqlError>,
) -> Result<QueryResult, PromqlError> {
    run(&QueryContext {
        store,
        tenant: &TenantId::anonymous(),
        compute,
        budget: &Budget::new("script query", QUERY_BYTES_MAX),
        cancel: &CancelToken::default(),
        failed_counts: None,
    })
}

struct ScriptChecker<'a> {
    eval: &'a EvalCommand,
    store: &'a dyn Select,
    compute: &'a dyn Compute,
}

impl ScriptChecker<'_> {
    fn run_query(&self, expr: &Expr, time: EvalTime) -> Result<QueryResult, PromqlError> {
        run_query_with(self.store, self.compute, |context| {
            query_expr(context, expr, time, &OPTIONS)
        })
    }

    /// Checks the outcome of a query against all expectations of the command.
    fn check_answer(
        &self,
        found: &Result<QueryResult, PromqlError>,
        grid: Option<StepGrid>,
    ) -> Result<(), String> {
        let expectations = &self.eval.expectations;
        match (found, &expectations.fail) {
            (Err(error), None) => Err(format!("query failed: {error}")),
            (Ok(_), Some(_)) => Err("expected the query to fail".into()),
            (Err(error), Some(wanted)) if wanted.matches(&error.to_string()) => Ok(()),
            (Err(error), Some(wanted)) => Err(format!(
                "expected failure with {}, got {error:?}",
                wanted.describe()
            )),
            (Ok(result), None) => {
                expectations.warnings.check("warnings", &result.warnings)?;
                expectations.infos.check("infos", &result.infos)?;
                compare(
                    &self.eval.expected,
                    &result.value,
                    grid,
                    expectations.ordered,
                )
            }
        }
    }

    /// Checks that a range query around `at` has the expected value in its middle.
    fn check_in_range_query(&self, expr: &Expr, at: TimestampMs) -> Result<(), String> {
        let has_vector = matches!(
            self.eval.expected,
            ExpectedValue::Scalar(_) | ExpectedValue::Series(_)
        );
        if !has_vector || self.eval.expectations.fail.is_some() || depends_on_range(expr) {
            return Ok(());
        }
        let time = EvalTime::range(at - AROUND_MS, at + AROUND_MS, AROUND_MS);
        let wrong = |why: String| format!("in range mode: {why}");
        let found = self
            .run_query(expr, time)
            .map_err(|e| wrong(format!("query failed: {e}")))?;
        if self.eval.expectations.ordered {
            return Ok(());
        }
        let QueryValue::Matrix(matrix) = found.value else {
            return Err(wrong("expected a matrix".into()));
        };
        check_sorted(&matrix).map_err(wrong)?;
        let middle = vector_at(&matrix, at);
        let value = match (&self.eval.expected, middle.first()) {
            (ExpectedValue::Scalar(_), Some(element)) => match element.value {
                QueryPointValue::Float(value) => QueryValue::Scalar(at, value),
                QueryPointValue::Histogram(_) => QueryValue::Vector(middle),
            },
            _ => QueryValue::Vector(middle),
        };
        compare(&self.eval.expected, &value, None, false).map_err(wrong)
    }

    /// Checks that the query has the same result at other evaluation times if all selectors are
    /// fixed to `at`.
    fn check_pinned(&self, expr: &Expr, at: TimestampMs) -> Result<(), String> {
        if depends_on_time(expr) {
            return Ok(());
        }
        let mut pinned = expr.clone();
        pin_selectors(&mut pinned, at);
        let times = match at {
            0 => vec![-1000, 0, 1000],
            at => vec![at.saturating_mul(-10), 0, at / 5, at, at.saturating_mul(10)],
        };
        for time in times {
            let wrong = |why: String| format!("{pinned} at {time}: {why}");
            let found = self.run_query(&pinned, EvalTime::Instant(time));
            self.check_answer(&found, None).map_err(wrong)?;
            self.check_in_range_query(&pinned, time).map_err(wrong)?;
        }
        Ok(())
    }
}

/// Returns whether the expression has a different value in a range query.
fn depends_on_range(expr: &Expr) -> bool {
    let text = expr.to_string();
    ["start()", "end()", "range()", "step()"]
        .iter()
        .any(|call| text.contains(call))
}

/// Returns whether a function depends on the evaluation time or on the timestamps of samples.
fn depends_on_time(expr: &Expr) -> bool {
    let mut depends = false;
    expr.visit(&mut |node| {
        if let ExprKind::Call(call) = &node.kind {
            depends |= call.function.depends_on_time();
        }
    });
    depends
}

/// Adds `@ at` to every selector and subquery without a fixed time. Selectors in subqueries remain
/// unchanged.
fn pin_selectors(expr: &mut Expr, at: TimestampMs) {
    let place = match &mut expr.kind {
        ExprKind::Vector(vector) => &mut vector.at,
        ExprKind::Matrix(matrix) => &mut matrix.vector.at,
        ExprKind::Subquery(subquery) => &mut subquery.at,
        _ => return expr.for_each_child_mut(&mut |child| pin_selectors(child, at)),
    };
    if !matches!(place, Some(AtModifier::Time(_))) {
        *place = Some(AtModifier::Time(at));
    }
}
