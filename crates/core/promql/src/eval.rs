//! Evaluation: computes the value of a plan from the samples of a store, at the steps of a grid.
//!
//! ```text
//! text -> syntax tree -> plan -> Stream of rows -> ... -> Frame -> Value
//!                                  |  leaf: samples -> windows -> row
//!                                  |  operations on the row
//!                                  `> aggregation, matching, ...: frames
//! ```
//!
//! A row contains the values of one series at all steps. Series are split into parts, which the
//! compute threads evaluate, and the results are merged in a fixed order. The result therefore does
//! not depend on the number of threads.
//!
//! Each module imports only those before it in this list: [`account`] and [`annotations`],
//! [`rows`], [`tally`], [`kernels`], [`operators`] with [`run`], [`evaluator`], [`result`],
//! [`counts`].

pub(crate) mod account;
pub(crate) mod annotations;
mod counts;
mod evaluator;
pub(crate) mod kernels;
pub(crate) mod operators;
mod result;
pub(crate) mod rows;
pub(crate) mod run;
pub(crate) mod tally;

use crate::ast::{Expr, ValueType};
use crate::durations::{self, DurationContext};
use crate::eval::account::QueryAccount;
use crate::eval::annotations::QueryAnnotations;
use crate::eval::evaluator::Evaluator;
use crate::eval::run::EvalContext;
use crate::eval::tally::SampleTally;
use crate::parser::parse_within;
use crate::plan::{PlanNode, QueryTimes, plan, plan_unshared};
use crate::request::{EvalTime, Options, QueryContext};
use crate::value::{PromqlError, QueryResult};
use firn_model::sync::lock;

/// Parses and evaluates the query `text`. Annotations contain positions in the text.
pub fn query(
    ctx: &QueryContext<'_>,
    text: &str,
    time: EvalTime,
    options: &Options,
) -> Result<QueryResult, PromqlError> {
    let mut memory = ctx.budget.create_reservation();
    let expr = parse_within(text, options.features, &mut memory)?;
    evaluate(ctx, expr, Some(text), time, options)
}

/// Evaluates a parsed expression. Annotations contain no positions, because there is no text.
pub fn query_expr(
    ctx: &QueryContext<'_>,
    expr: &Expr,
    time: EvalTime,
    options: &Options,
) -> Result<QueryResult, PromqlError> {
    evaluate(ctx, expr.clone(), None, time, options)
}

fn evaluate(
    ctx: &QueryContext<'_>,
    mut expr: Expr,
    text: Option<&str>,
    time: EvalTime,
    options: &Options,
) -> Result<QueryResult, PromqlError> {
    let times = QueryTimes::from_eval_time(time);
    let is_range = matches!(time, EvalTime::Range { .. });
    if is_range && !matches!(expr.value_type(), ValueType::Scalar | ValueType::Vector) {
        return Err(PromqlError::Parse(format!(
            "invalid expression type \"{}\" for range query, must be Scalar or instant Vector",
            expr.value_type()
        )));
    }
    let context = DurationContext {
        step_ns: times.step_ns,
        range_ms: times.end - times.start,
    };
    durations::resolve(&mut expr, context)?;
    if !options.counts_samples {
        return run(ctx, &plan(&expr, &times), None, text, time, options);
    }
    let (node, tally) = (plan_unshared(&expr, &times), SampleTally::default());
    let mut outcome = run(ctx, &node, Some(&tally), text, time, options);
    let step_ms = options.default_subquery_step_ms;
    let counted = || counts::from_evaluation(&expr, &node, times.grid(), &tally, step_ms);
    match (&mut outcome, ctx.failed_counts) {
        (Ok(result), _) => result.counts = Some(counted()),
        // Parts that were not evaluated because of the error are not counted.
        (Err(_), Some(told)) => *lock(told) = counted(),
        (Err(_), None) => {}
    }
    outcome
}

/// Evaluates a plan. If samples are counted, the evaluator records those of each node in `tally`.
fn run(
    ctx: &QueryContext<'_>,
    node: &PlanNode,
    tally: Option<&SampleTally>,
    text: Option<&str>,
    time: EvalTime,
    options: &Options,
) -> Result<QueryResult, PromqlError> {
    let times = QueryTimes::from_eval_time(time);
    let is_range = matches!(time, EvalTime::Range { .. });
    let account = QueryAccount::new(ctx.budget, ctx.cancel, options);
    account.check()?;
    let mut evaluator = Evaluator::new(EvalContext {
        ctx,
        account: &account,
        options,
        tally,
        notes: QueryAnnotations::default(),
    });
    let (value, memory) = result::evaluate_plan(&mut evaluator, node, &times, is_range)?;
    let (remarks, infos) = evaluator.run.notes.render(text);
    // The warnings of the store are first, because a response contains only a limited number.
    let mut warnings = account.losses().texts();
    warnings.extend(remarks);
    Ok(QueryResult {
        value,
        warnings,
        infos,
        stats: account.stats(),
        counts: None,
        memory,
    })
}
