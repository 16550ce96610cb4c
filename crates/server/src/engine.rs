//! The language as the server sees it, so that a test or a front end of a cluster can stand in.

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

    /// The matchers of a series selector, as in `match[]`. The error is the parser's text.
    fn selector(&self, text: &str) -> Result<Vec<Matcher>, String>;

    /// The matchers of every selector in an expression. The error is the parser's text.
    fn selectors(&self, text: &str, features: Features) -> Result<Vec<Vec<Matcher>>, String> {
        parser::parse_selectors(text, features).map_err(|e| e.to_string())
    }

    /// The syntax tree of `text`. The error is the parser's text.
    fn tree(&self, text: &str, features: Features) -> Result<Expr, String> {
        parser::parse(text, features).map_err(|e| e.to_string())
    }

    /// `text` in the language's uniform layout. The error is the parser's text.
    fn format(&self, text: &str, features: Features) -> Result<String, String>;
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

    fn selector(&self, text: &str) -> Result<Vec<Matcher>, String> {
        parser::parse_selector(text).map_err(|e| e.to_string())
    }

    fn format(&self, text: &str, features: Features) -> Result<String, String> {
        let expr = parser::parse(text, features).map_err(|e| e.to_string())?;
        Ok(pretty(&expr))
    }
}
