//! The language as the server sees it, so that a test or a front end of a cluster can stand in.

use firn_model::matcher::Matcher;
use firn_promql::value::{QueryError, QueryResult};
use firn_promql::{Context, EvalTime, Options};

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

    /// `text` in the language's uniform layout. The error is the parser's text.
    fn format(&self, text: &str) -> Result<String, String>;
}
