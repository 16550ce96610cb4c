//! Questions that people really ask: read from dashboards, rule files, query logs, files of active
//! queries and lists, or made up.
//!
//! ```text
//! files -> sources -> texts, variables replaced -> trees -> questions, each once
//! ```
//!
//! Two texts are one question if their trees print alike and lists give them the same range; the
//! first one is what is asked, and the weight counts them all. What cannot be asked is kept with
//! the reason.

mod active;
mod dashboard;
mod files;
pub mod generate;
pub mod list;
pub mod lookup;
pub mod reach;
mod variables;

pub use files::{Source, read};
pub use variables::{Lookup, Times};

use firn_model::units::format_duration;
use firn_promql::Features;
use firn_promql::ast::Expr;
use firn_promql::parser;
use std::collections::HashMap;
use std::time::Duration;

/// A text that may be a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// PromQL.
    pub text: String,
    /// Where it stands, as in `rules.yml: group "x"`.
    pub origin: String,
    /// How it is asked.
    pub manner: Manner,
}

/// How a question is asked, where a list says so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Manner {
    /// How often, beside the others.
    pub weight: f64,
    /// The range up to the end and its step, in milliseconds.
    pub range_ms: Option<(i64, i64)>,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            weight: 1.0,
            range_ms: None,
        }
    }
}

/// An expression to ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// As it was first written.
    pub text: String,
    /// Its tree.
    pub expr: Expr,
    /// How often it was found, by the weights that lists give.
    pub weight: f64,
    /// The range up to the end that a list gives, and its step, in milliseconds.
    pub range_ms: Option<(i64, i64)>,
    /// Where it was found first.
    pub origin: String,
}

impl Question {
    /// What reports call it, as a question about a range or about one time.
    pub fn shown(&self, is_range: bool) -> String {
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

/// A text that is not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unasked {
    /// As it was written.
    pub text: String,
    /// Why.
    pub reason: String,
    /// Where it was found.
    pub origin: String,
}

/// All questions, each once, the heaviest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Collection {
    /// What is asked.
    pub questions: Vec<Question>,
    /// What is not.
    pub unasked: Vec<Unasked>,
}

impl Collection {
    /// The questions of `sources` and `made`; variables of dashboards take the values that `lookup`
    /// finds.
    pub fn gather(sources: &[Source], made: Vec<Text>, lookup: &dyn Lookup, times: &Times) -> Self {
        let mut gathering = Gathering::default();
        for source in sources {
            match source {
                Source::Texts(texts) => texts.iter().cloned().for_each(|t| gathering.take(t)),
                Source::Dashboard(dashboard) => {
                    let mut variables = variables::Variables::new(dashboard, lookup, times);
                    for target in &dashboard.targets {
                        let origin = dashboard.origin.clone();
                        match target
                            .refusal
                            .clone()
                            .map_or_else(|| variables.replace_in(&target.text), Err)
                        {
                            Ok(text) => gathering.take(Text {
                                text,
                                origin,
                                manner: Manner::default(),
                            }),
                            Err(reason) => gathering.leave(&target.text, reason, origin),
                        }
                    }
                }
            }
        }
        made.into_iter().for_each(|text| gathering.take(text));
        gathering.finish()
    }
}

/// A tree of the language with everything that is experimental: whether a system knows it is for
/// the system to say.
pub fn parse(text: &str) -> Result<Expr, String> {
    parser::parse(text, Features::ALL).map_err(|e| e.to_string())
}

#[derive(Default)]
struct Gathering {
    found: Collection,
    /// Where the question with a normal form and a range stands.
    places: HashMap<(String, Option<(i64, i64)>), usize>,
}

impl Gathering {
    fn take(&mut self, text: Text) {
        let Text {
            text,
            origin,
            manner: Manner { weight, range_ms },
        } = text;
        let text = text.trim().to_owned();
        let expr = match parse(&text) {
            Ok(expr) => expr,
            Err(e) => return self.leave(&text, format!("not PromQL: {e}"), origin),
        };
        let key = (expr.without_parens().to_string(), range_ms);
        let questions = &mut self.found.questions;
        let place = *self.places.entry(key).or_insert(questions.len());
        match questions.get_mut(place) {
            Some(question) => question.weight += weight,
            None => questions.push(Question {
                text,
                expr,
                weight,
                range_ms,
                origin,
            }),
        }
    }

    fn leave(&mut self, text: &str, reason: String, origin: String) {
        let text = text.trim().to_owned();
        if !self
            .found
            .unasked
            .iter()
            .rev()
            .take(50)
            .any(|u| u.text == text)
        {
            let unasked = Unasked {
                text,
                reason,
                origin,
            };
            self.found.unasked.push(unasked);
        }
    }

    fn finish(mut self) -> Collection {
        let questions = &mut self.found.questions;
        questions.sort_by(|one, other| other.weight.total_cmp(&one.weight));
        self.found
    }
}

#[cfg(test)]
mod tests;
