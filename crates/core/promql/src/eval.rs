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
//! [`counts`], [`explain`] with its hints. [`meter`] is used by all of them.

pub(crate) mod account;
pub(crate) mod annotations;
mod counts;
mod evaluator;
mod explain;
pub(crate) mod kernels;
pub(crate) mod meter;
pub(crate) mod operators;
mod result;
pub(crate) mod rows;
pub(crate) mod run;
pub(crate) mod tally;

use crate::ast::{Expr, ValueType};
use crate::durations::{self, DurationContext};
use crate::eval::account::{QueryAccount, grow};
use crate::eval::annotations::QueryAnnotations;
use crate::eval::evaluator::Evaluator;
use crate::eval::explain::{EvaluatedPlan, ReportBuilder};
use crate::eval::meter::{EvalMeter, MeteredCompute};
use crate::eval::run::EvalContext;
use crate::eval::tally::SampleTally;
use crate::grid::StepGrid;
use crate::parser::parse_within;
use crate::plan::{PlanNode, QueryTimes, plan, plan_unshared};
use crate::report::{PlanReport, ReportSources};
use crate::request::{EvalTime, Options, QueryContext};
use crate::value::{PromqlError, QueryResult};
use firn_model::budget::Reservation;
use firn_model::sync::lock;
use std::sync::Arc;

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

/// Returns the plan of the query `text` and the reservation for its memory, without evaluating it.
/// Look-ups in the index determine the cost of each matcher; no samples are read.
pub fn explain(
    ctx: &QueryContext<'_>,
    sources: ReportSources<'_>,
    text: &str,
    time: EvalTime,
    options: &Options,
) -> Result<(PlanReport, Reservation), PromqlError> {
    let query = PlannedQuery::from_text(ctx, text, time, options)?;
    let builder = ReportBuilder::new(ctx, sources, options, None);
    builder.build(&query.expr, &query.node, query.grid)
}

/// Evaluates the query `text` like [`query`] with [`Options::counts_samples`], and returns its plan
/// with the resources that each operation used. The reservation of the result includes the memory
/// of the plan.
pub fn analyze(
    ctx: &QueryContext<'_>,
    sources: ReportSources<'_>,
    text: &str,
    time: EvalTime,
    options: &Options,
) -> Result<(QueryResult, PlanReport), PromqlError> {
    let query = PlannedQuery::from_text(ctx, text, time, options)?;
    let tally = SampleTally::default();
    let meter = Arc::new(EvalMeter::new(&query.node, sources.clock, ctx.budget));
    let compute = MeteredCompute::new(ctx.compute, &meter);
    let metered = QueryContext {
        compute: &compute,
        ..*ctx
    };
    let recorders = EvalRecorders {
        tally: Some(&tally),
        meter: Some(&meter),
    };
    let outcome = run(&metered, &query.node, recorders, Some(text), time, options);
    meter.finish();
    let step_ms = options.default_subquery_step_ms;
    let (counts, samples) = counts::of_nodes(&query.expr, &query.node, query.grid, &tally, step_ms);
    let mut result = match outcome {
        Ok(result) => result,
        Err(e) => {
            if let Some(failed) = ctx.failed_counts {
                *lock(failed) = counts;
            }
            return Err(e);
        }
    };
    result.counts = Some(counts);
    let evaluated = EvaluatedPlan {
        meter: &meter,
        tally: &tally,
        samples,
    };
    let builder = ReportBuilder::new(ctx, sources, options, Some(evaluated));
    let (report, memory) = builder.build(&query.expr, &query.node, query.grid)?;
    grow(&mut result.memory, memory.bytes())?;
    Ok((result, report))
}

/// A parsed query with its plan, in which equal parts are separate.
struct PlannedQuery {
    expr: Expr,
    node: PlanNode,
    grid: StepGrid,
    /// The reservation for the memory of `expr`.
    _memory: Reservation,
}

impl PlannedQuery {
    /// Parses and plans the query `text`.
    fn from_text(
        ctx: &QueryContext<'_>,
        text: &str,
        time: EvalTime,
        options: &Options,
    ) -> Result<Self, PromqlError> {
        let mut memory = ctx.budget.create_reservation();
        let expr = parse_within(text, options.features, &mut memory)?;
        let (expr, times) = resolve(expr, time)?;
        Ok(Self {
            node: plan_unshared(&expr, &times),
            expr,
            grid: times.grid(),
            _memory: memory,
        })
    }
}

fn evaluate(
    ctx: &QueryContext<'_>,
    expr: Expr,
    text: Option<&str>,
    time: EvalTime,
    options: &Options,
) -> Result<QueryResult, PromqlError> {
    let (expr, times) = resolve(expr, time)?;
    if !options.counts_samples {
        let recorders = EvalRecorders::default();
        return run(ctx, &plan(&expr, &times), recorders, text, time, options);
    }
    let (node, tally) = (plan_unshared(&expr, &times), SampleTally::default());
    let recorders = EvalRecorders {
        tally: Some(&tally),
        meter: None,
    };
    let mut outcome = run(ctx, &node, recorders, text, time, options);
    let step_ms = options.default_subquery_step_ms;
    let counted = || counts::from_evaluation(&expr, &node, times.grid(), &tally, step_ms);
    match (&mut outcome, ctx.failed_counts) {
        (Ok(result), _) => result.counts = Some(counted()),
        // Parts that were not evaluated because of the error are not counted.
        (Err(_), Some(failed)) => *lock(failed) = counted(),
        (Err(_), None) => {}
    }
    outcome
}

/// Checks the type of an expression and resolves its durations at the times of the query.
fn resolve(mut expr: Expr, time: EvalTime) -> Result<(Expr, QueryTimes), PromqlError> {
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
    Ok((expr, times))
}

/// The recorders of an evaluation: `tally` for the samples of each node, `meter` for its other
/// resources.
#[derive(Clone, Copy, Default)]
struct EvalRecorders<'a> {
    tally: Option<&'a SampleTally>,
    meter: Option<&'a Arc<EvalMeter>>,
}

/// Evaluates a plan. `recorders` receive the samples and resources of its nodes.
fn run(
    ctx: &QueryContext<'_>,
    node: &PlanNode,
    recorders: EvalRecorders<'_>,
    text: Option<&str>,
    time: EvalTime,
    options: &Options,
) -> Result<QueryResult, PromqlError> {
    let times = QueryTimes::from_eval_time(time);
    let is_range = matches!(time, EvalTime::Range { .. });
    let account = QueryAccount::new(ctx.budget, ctx.cancel, options);
    let account = account.with_meter(recorders.meter.cloned());
    account.check()?;
    let mut evaluator = Evaluator::new(EvalContext {
        ctx,
        account: &account,
        options,
        tally: recorders.tally,
        notes: QueryAnnotations::default(),
    });
    let (value, memory) = result::evaluate_plan(&mut evaluator, node, &times, is_range)?;
    let (remarks, infos) = evaluator.run.notes.render(text);
    // The warnings of the store are first, because a response contains only a limited number.
    let mut warnings = account.losses().texts();
    let depends_on_range = !options.detects_range_dependence
        || !warnings.is_empty()
        || evaluator.run.notes.depends_on_range();
    warnings.extend(remarks);
    Ok(QueryResult {
        value,
        warnings,
        infos,
        stats: account.stats(),
        counts: None,
        depends_on_range,
        memory,
    })
}
