//! Interface of the query engine, which tests and front ends of a cluster can replace.

use firn_model::budget::Reservation;
use firn_model::matcher::Matcher;
use firn_promql::ast::Expr;
use firn_promql::printer::pretty;
use firn_promql::report::{PlanReport, ReportSources};
use firn_promql::value::{PromqlError, QueryResult};
use firn_promql::{EvalTime, Features, Options, QueryContext, parser};

/// Parses and evaluates PromQL. Called on query threads; the methods may block and check for
/// cancellation themselves.
pub trait QueryEngine: Send + Sync {
    /// Evaluates the query `text` at the instant or over the range `time`.
    fn query(
        &self,
        context: &QueryContext<'_>,
        text: &str,
        time: EvalTime,
        options: &Options,
    ) -> Result<QueryResult, PromqlError>;

    /// Evaluates an expression that is already parsed, as rules do at each evaluation.
    fn query_expr(
        &self,
        context: &QueryContext<'_>,
        expr: &Expr,
        time: EvalTime,
        options: &Options,
    ) -> Result<QueryResult, PromqlError> {
        firn_promql::query_expr(context, expr, time, options)
    }

    /// Evaluates the query `text` and returns its plan with the resources of each operation.
    fn analyze(
        &self,
        context: &QueryContext<'_>,
        sources: ReportSources<'_>,
        text: &str,
        time: EvalTime,
        options: &Options,
    ) -> Result<(QueryResult, PlanReport), PromqlError> {
        firn_promql::analyze(context, sources, text, time, options)
    }

    /// Returns the plan of the query `text` and the reservation for its memory, without evaluating
    /// it.
    fn explain(
        &self,
        context: &QueryContext<'_>,
        sources: ReportSources<'_>,
        text: &str,
        time: EvalTime,
        options: &Options,
    ) -> Result<(PlanReport, Reservation), PromqlError> {
        firn_promql::explain(context, sources, text, time, options)
    }

    /// Parses a series selector, as in `match[]`, and returns its matchers. Here and in the
    /// following methods, the memory of the result is added to `memory`.
    fn selector(&self, text: &str, memory: &mut Reservation) -> Result<Vec<Matcher>, PromqlError>;

    /// Parses an expression and returns the matchers of each of its selectors.
    fn selectors(
        &self,
        text: &str,
        features: Features,
        memory: &mut Reservation,
    ) -> Result<Vec<Vec<Matcher>>, PromqlError> {
        parser::parse_selectors(text, features, memory)
    }

    /// Parses an expression with the given feature switches and returns its syntax tree.
    fn tree(
        &self,
        text: &str,
        features: Features,
        memory: &mut Reservation,
    ) -> Result<Expr, PromqlError> {
        parser::parse_within(text, features, memory)
    }

    /// Parses an expression and returns it in PromQL's canonical format.
    fn format(
        &self,
        text: &str,
        features: Features,
        memory: &mut Reservation,
    ) -> Result<String, PromqlError>;
}

/// The PromQL engine of this process, which calls `firn_promql` directly.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromqlEngine;

impl QueryEngine for PromqlEngine {
    fn query(
        &self,
        context: &QueryContext<'_>,
        text: &str,
        time: EvalTime,
        options: &Options,
    ) -> Result<QueryResult, PromqlError> {
        firn_promql::query(context, text, time, options)
    }

    fn selector(&self, text: &str, memory: &mut Reservation) -> Result<Vec<Matcher>, PromqlError> {
        parser::parse_selector_within(text, memory)
    }

    fn format(
        &self,
        text: &str,
        features: Features,
        memory: &mut Reservation,
    ) -> Result<String, PromqlError> {
        let expr = parser::parse_within(text, features, memory)?;
        pretty(&expr, memory).map_err(|e| PromqlError::Limited(e.message))
    }
}
