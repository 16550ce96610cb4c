//! Collection of queries from practice: from dashboards, rule files, query logs, files of active
//! queries and lists, or generated.
//!
//! ```text
//! files -> sources -> texts with variables replaced -> syntax trees -> distinct queries
//! ```
//!
//! Two texts are the same query if their syntax trees have the same text form and the same range.
//! The first text is the one that is sent, and the weight counts all of them. Expressions that
//! cannot be queried are kept with the reason.

mod active;
mod dashboard;
mod files;
pub mod generate;
pub mod list;
pub mod lookup;
pub mod reach;
mod variables;

pub use files::{QueryFileContent, read};
pub use variables::{VariableLookup, VariableTimes};

use firn_model::units::format_duration;
use firn_promql::Features;
use firn_promql::ast::Expr;
use firn_promql::parser;
use std::collections::HashMap;
use std::time::Duration;

/// A text that is to be parsed as a query, as found in a file or generated.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryText {
    /// The PromQL expression, which may still be invalid.
    pub text: String,
    /// Its place in the source, such as `rules.yml: group "x"`.
    pub origin: String,
    /// Weight and range, if the source specifies them; otherwise the defaults.
    pub manner: QueryWeightRange,
}

/// Weight and range of a query, as given by a list or a query log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryWeightRange {
    /// Relative frequency of the query, which is 1 by default.
    pub weight: f64,
    /// Range up to the end of the data and step, in milliseconds.
    pub range_ms: Option<(i64, i64)>,
}

impl Default for QueryWeightRange {
    fn default() -> Self {
        Self {
            weight: 1.0,
            range_ms: None,
        }
    }
}

/// A parsed query of the collection, which represents all its occurrences.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedQuery {
    /// Text of its first occurrence, which is sent unchanged.
    pub text: String,
    /// Its syntax tree, from which selectors and time ranges are derived.
    pub expr: Expr,
    /// Sum of the weights of all occurrences of the query.
    pub weight: f64,
    /// Range up to the end of the data and step in milliseconds, if the source specifies them.
    pub range_ms: Option<(i64, i64)>,
    /// Place of its first occurrence, for reports.
    pub origin: String,
}

impl CollectedQuery {
    /// Returns the name of the query in reports; for a range query it includes the given range and
    /// step.
    pub fn display_name(&self, is_range: bool) -> String {
        match self.range_ms.filter(|_| is_range) {
            None => self.text.clone(),
            Some((range_ms, step_ms)) => {
                let [range, step] = [range_ms, step_ms]
                    .map(|ms| format_duration(Duration::from_millis(ms.unsigned_abs())));
                format!("range={range} step={step} {}", self.text)
            }
        }
    }
}

/// A text that cannot be queried, with the reason. Reports count it as skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedQuery {
    /// The original text, with any variables it contains.
    pub text: String,
    /// Reason why it cannot be queried, for reports.
    pub reason: String,
    /// Place of its first occurrence, for reports.
    pub origin: String,
}

/// All distinct queries in descending order of weight, and the texts that cannot be queried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryCollection {
    /// The queries to send, in descending order of weight.
    pub questions: Vec<CollectedQuery>,
    /// The texts that cannot be queried, each once.
    pub unasked: Vec<SkippedQuery>,
}

impl QueryCollection {
    /// Collects the queries of `sources` and the generated ones in `made`. Variables of dashboards
    /// are replaced by the values that `lookup` finds.
    pub fn gather(
        sources: &[QueryFileContent],
        made: Vec<QueryText>,
        lookup: &dyn VariableLookup,
        times: &VariableTimes,
    ) -> Self {
        let mut gathering = QueryCollector::default();
        for source in sources {
            match source {
                QueryFileContent::Texts(texts) => {
                    texts.iter().cloned().for_each(|t| gathering.add_text(t))
                }
                QueryFileContent::Dashboard(dashboard) => {
                    let mut variables =
                        variables::DashboardVariables::new(dashboard, lookup, times);
                    for target in &dashboard.targets {
                        let origin = dashboard.origin.clone();
                        match target
                            .refusal
                            .clone()
                            .map_or_else(|| variables.replace_in(&target.text), Err)
                        {
                            Ok(text) => gathering.add_text(QueryText {
                                text,
                                origin,
                                manner: QueryWeightRange::default(),
                            }),
                            Err(reason) => gathering.skip_text(&target.text, reason, origin),
                        }
                    }
                }
            }
        }
        made.into_iter().for_each(|text| gathering.add_text(text));
        gathering.finish()
    }
}

/// Parses `text` with all experimental features enabled: whether a system supports them is for the
/// system to decide.
pub fn parse(text: &str) -> Result<Expr, String> {
    parser::parse(text, Features::ALL).map_err(|e| e.to_string())
}

#[derive(Default)]
struct QueryCollector {
    found: QueryCollection,
    /// Index of each query by its normalised text and its range.
    places: HashMap<(String, Option<(i64, i64)>), usize>,
}

impl QueryCollector {
    fn add_text(&mut self, text: QueryText) {
        let QueryText {
            text,
            origin,
            manner: QueryWeightRange { weight, range_ms },
        } = text;
        let text = text.trim().to_owned();
        let expr = match parse(&text) {
            Ok(expr) => expr,
            Err(e) => return self.skip_text(&text, format!("not PromQL: {e}"), origin),
        };
        let key = (expr.without_parens().to_string(), range_ms);
        let questions = &mut self.found.questions;
        let place = *self.places.entry(key).or_insert(questions.len());
        match questions.get_mut(place) {
            Some(question) => question.weight += weight,
            None => questions.push(CollectedQuery {
                text,
                expr,
                weight,
                range_ms,
                origin,
            }),
        }
    }

    fn skip_text(&mut self, text: &str, reason: String, origin: String) {
        let text = text.trim().to_owned();
        if !self
            .found
            .unasked
            .iter()
            .rev()
            .take(50)
            .any(|u| u.text == text)
        {
            let unasked = SkippedQuery {
                text,
                reason,
                origin,
            };
            self.found.unasked.push(unasked);
        }
    }

    fn finish(mut self) -> QueryCollection {
        let questions = &mut self.found.questions;
        questions.sort_by(|one, other| other.weight.total_cmp(&one.weight));
        self.found
    }
}

#[cfg(test)]
mod tests;
