//! The language as the server sees it, so that a test or a front end of a cluster can stand in.

use firn_model::budget::Reservation;
use firn_model::matcher::Matcher;
use firn_promql::ast::Expr;
use firn_promql::printer::pretty;
use firn_promql::value::{QueryError, QueryResult};
use firn_promql::{Context, EvalTime, Features, Options, parser};

/// Evaluates and parses PromQL. Called on compute threads.
pub trait Engine: Send + Sync {
    /// Evaluates `text` over `time`.
    fn query(
        &self,
        context: &Context<'_>,
        text: &str,
        time: EvalTime,
        options: &Options,
    ) -> Result<QueryResult, QueryError>;

    /// Evaluates an expression that was parsed before.
    fn query_expr(
        &self,
        context: &Context<'_>,
        expr: &Expr,
        time: EvalTime,
        options: &Options,
    ) -> Result<QueryResult, QueryError> {
        firn_promql::query_expr(context, expr, time, options)
    }

    /// The matchers of a series selector, as in `match[]`. Here and below what is made is added to
    /// `memory`.
    fn selector(&self, text: &str, memory: &mut Reservation) -> Result<Vec<Matcher>, QueryError>;

    /// The matchers of every selector in an expression.
    fn selectors(
        &self,
        text: &str,
        features: Features,
        memory: &mut Reservation,
    ) -> Result<Vec<Vec<Matcher>>, QueryError> {
        parser::parse_selectors(text, features, memory)
    }

    /// The syntax tree of `text`.
    fn tree(
        &self,
        text: &str,
        features: Features,
        memory: &mut Reservation,
    ) -> Result<Expr, QueryError> {
        parser::parse_within(text, features, memory)
    }

    /// `text` in the language's uniform layout.
    fn format(
        &self,
        text: &str,
        features: Features,
        memory: &mut Reservation,
    ) -> Result<String, QueryError>;
}

/// PromQL as this process evaluates it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Promql;

impl Engine for Promql {
    fn query(
        &self,
        context: &Context<'_>,
        text: &str,
        time: EvalTime,
        options: &Options,
    ) -> Result<QueryResult, QueryError> {
        firn_promql::query(context, text, time, options)
    }

    fn selector(&self, text: &str, memory: &mut Reservation) -> Result<Vec<Matcher>, QueryError> {
        parser::parse_selector_within(text, memory)
    }

    fn format(
        &self,
        text: &str,
        features: Features,
        memory: &mut Reservation,
    ) -> Result<String, QueryError> {
        let expr = parser::parse_within(text, features, memory)?;
        pretty(&expr, memory).map_err(|e| QueryError::Limited(e.message))
    }
}
