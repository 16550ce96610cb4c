//! Queries that are refused before they wait in the queue: those that the config blocks, and those
//! over too long a time.

use super::call::ApiCall;
use crate::http::blocking::run_blocking;
use crate::http::failure::ApiFailure;
use firn_model::sample::TimeRange;

/// Language of a text that may be blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryLanguage {
    /// PromQL. The text is also compared in the form of PromQL's printer, as in Mimir.
    Promql,
    /// Matchers in braces.
    Matchers,
}

/// Fails if one of the time ranges is longer than `firn.query_range_limit`.
pub(super) fn check_ranges(
    call: &ApiCall,
    ranges: impl IntoIterator<Item = TimeRange>,
) -> Result<(), ApiFailure> {
    let limits = (call.app.parts.query.limits)(&call.tenant);
    let mut ranges = ranges.into_iter();
    ranges.try_for_each(|range| limits.check_range(range).map_err(ApiFailure::request))
}

/// Fails if one of the texts is in `firn.blocked_queries`. Compares on a blocking thread, because
/// texts and patterns may be long.
pub(super) async fn check_texts(
    call: &ApiCall,
    texts: &[String],
    language: QueryLanguage,
) -> Result<(), ApiFailure> {
    let limits = (call.app.parts.query.limits)(&call.tenant);
    if limits.blocked.is_empty() {
        return Ok(());
    }
    let (app, texts) = (call.app.clone(), texts.to_vec());
    let checked = run_blocking(move || {
        for text in &texts {
            limits.check_text(text)?;
            if language == QueryLanguage::Promql {
                let mut memory = app.budgets.query().create_reservation();
                let features = app.parts.query.features;
                // The evaluation reports texts that are not PromQL.
                if let Ok(tree) = app.parts.engine.tree(text, features, &mut memory) {
                    limits.check_text(&tree.to_string())?;
                }
            }
        }
        Ok(())
    });
    checked.await?.map_err(|e| {
        call.app.metrics.queries_blocked.inc();
        ApiFailure::request(e)
    })
}
