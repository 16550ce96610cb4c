//! One rule, ready to be evaluated, and what an evaluation of it finds.
//!
//! ```text
//! query -> vector --recording--> labels of the rule over those of the result --> samples
//!                 `--alerting--> templates expanded --> alerts found (crate::alerts goes on)
//! ```
//!
//! Order, errors and their texts are those of upstream's `rules/recording.go` and
//! `rules/alerting.go`. Nothing is stored here: the caller asks and appends.

use crate::alert::{ALERT_NAME, Annotations};
use crate::file::{RuleSettings, Texts};
use crate::instant::Instant;
use crate::template::{self, AlertData, Limits, QueriedSample, SampleValue};
use firn_model::cancel::Cancel;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::sample::TimestampMs;
use firn_promql::ast::Expr;
use firn_promql::value::{PointValue, Value, VectorElement};
use firn_promql::{Features, parser};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh64::xxh64;

/// A rule, its expression parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The name of the series or alerts that it makes.
    pub name: String,
    /// What is asked.
    pub expr: Arc<Expr>,
    /// The expression as PromQL prints it.
    pub query: String,
    /// Labels for what it makes, those of its group included; of an alert templates.
    pub labels: Texts,
    /// What it makes.
    pub kind: RuleKind,
}

/// What a rule makes.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleKind {
    /// Series.
    Recording,
    /// Alerts.
    Alerting(AlertSettings),
}

/// How the alerts of a rule are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertSettings {
    /// `for`: how long the condition must hold before an alert fires.
    pub hold: Duration,
    /// How long an alert goes on firing when its condition holds no more.
    pub keep_firing_for: Duration,
    /// Templates of texts for those who read the alert.
    pub annotations: Annotations,
}

/// Why an evaluation of a rule came to nothing; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The query failed.
    #[error("{0}")]
    Query(String),
    /// The expression is a string or a range of samples.
    #[error("rule result is not a vector or scalar")]
    Shape,
    /// Two results are the same once they have the labels of the rule.
    #[error("vector contains metrics with the same labelset after applying {of} labels")]
    SameLabels {
        /// `rule` or `alert`.
        of: &'static str,
    },
    /// The rule makes more than its group allows.
    #[error("exceeded limit of {limit} with {count} {of}")]
    Limit {
        /// The limit.
        limit: usize,
        /// How many there are.
        count: usize,
        /// `series` or `alerts`.
        of: &'static str,
    },
    /// What it made was not stored, or not all of it.
    #[error("{0}")]
    Storage(String),
}

impl RuleError {
    /// All of [`RuleError::reason`].
    pub const REASONS: [&'static str; 4] = ["query", "labels", "limit", "storage"];

    /// The kind of failure, as metrics name it.
    pub fn reason(&self) -> &'static str {
        match self {
            RuleError::Query(_) | RuleError::Shape => "query",
            RuleError::SameLabels { .. } => "labels",
            RuleError::Limit { .. } => "limit",
            RuleError::Storage(_) => "storage",
        }
    }
}

/// Answers queries at one time. Errors are what a rule shows as its last one.
pub trait Queries {
    /// The value of an expression.
    fn expr(&mut self, expr: &Expr, at: TimestampMs) -> Result<Value, String>;

    /// The value of what a template asks.
    fn text(&mut self, text: &str, at: TimestampMs) -> Result<Value, String>;

    /// Set when the evaluation is given up; queries look at it themselves.
    fn cancel(&self) -> &Cancel;
}

/// What all rules of a server know of the world outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outside {
    /// `global.external_labels`
    pub external_labels: Labels,
    /// The URL under which users reach the server.
    pub external_url: String,
    /// The path of that URL.
    pub path_prefix: String,
}

/// When, and how, a rule is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The instant of the group.
    pub instant: Instant,
    /// How far behind it the query looks.
    pub query_offset: Duration,
    /// The most series that the rule may make; zero is no limit.
    pub limit: usize,
    /// What templates know.
    pub outside: &'a Outside,
}

impl Moment<'_> {
    /// The time of the query, and of the samples that are made.
    pub fn sample_time(&self) -> TimestampMs {
        self.instant.before(self.query_offset).ms()
    }
}

/// What an evaluation of a rule found.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The samples to be stored.
    Samples(Vec<FoundSample>),
    /// The alerts whose condition holds.
    Alerts(Vec<FoundAlert>),
}

/// A sample that a recording rule makes.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundSample {
    /// The labels of the series.
    pub labels: Labels,
    /// The value.
    pub value: PointValue,
}

/// An alert whose condition holds.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundAlert {
    /// Its labels, expanded.
    pub labels: Labels,
    /// Its annotations, expanded.
    pub annotations: Annotations,
    /// The value of the expression.
    pub value: f64,
}

impl Rule {
    /// The rule that `settings` describe, in a group with `group_labels`. Fails on an expression
    /// that is none.
    pub fn new(
        settings: &RuleSettings,
        group_labels: &Texts,
        features: Features,
    ) -> Result<Self, String> {
        let expr = parser::parse(&settings.expr, features).map_err(|e| e.to_string())?;
        let mut labels = group_labels.clone();
        labels.extend(settings.labels.clone());
        Ok(Self {
            name: settings.name().to_owned(),
            query: expr.to_string(),
            expr: Arc::new(expr),
            labels,
            kind: match settings.alert.is_empty() {
                true => RuleKind::Recording,
                false => RuleKind::Alerting(AlertSettings {
                    hold: settings.hold,
                    keep_firing_for: settings.keep_firing_for,
                    annotations: settings.annotations(),
                }),
            },
        })
    }

    /// How its alerts are, if it makes alerts.
    pub fn alerting(&self) -> Option<&AlertSettings> {
        match &self.kind {
            RuleKind::Alerting(settings) => Some(settings),
            RuleKind::Recording => None,
        }
    }

    /// Whether `other` takes the place of this one when the file changes.
    pub fn is_successor_of(&self, other: &Rule) -> bool {
        self.name == other.name && self.labels == other.labels
    }

    /// All texts that are templates, labels first.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        let alerting = self.alerting();
        let labels = self.labels.values().filter(move |_| alerting.is_some());
        let annotations = alerting.into_iter().flat_map(|a| &a.annotations);
        labels
            .chain(annotations.map(|(_, text)| text))
            .map(String::as_str)
    }

    /// Asks, and makes of the answer what the rule is for.
    pub fn evaluate(
        &self,
        moment: &Moment<'_>,
        queries: &mut dyn Queries,
    ) -> Result<Found, RuleError> {
        let value = queries.expr(&self.expr, moment.sample_time());
        let value = value.map_err(RuleError::Query)?;
        let vector = vector_of(value)?;
        match &self.kind {
            RuleKind::Recording => self.record(vector, moment.limit).map(Found::Samples),
            RuleKind::Alerting(settings) => self
                .find_alerts(settings, &vector, moment, queries)
                .map(Found::Alerts),
        }
    }

    fn record(
        &self,
        vector: Vec<VectorElement>,
        limit: usize,
    ) -> Result<Vec<FoundSample>, RuleError> {
        let mut samples = Vec::with_capacity(vector.len());
        for element in vector {
            let mut labels = LabelsBuilder::from_labels(element.labels.as_ref());
            labels.set(METRIC_NAME, self.name.as_bytes());
            for (name, value) in &self.labels {
                labels.set(name, value.as_bytes());
            }
            samples.push(FoundSample {
                labels: labels.build(),
                value: element.value,
            });
        }
        if has_twins(&samples) {
            return Err(RuleError::SameLabels { of: "rule" });
        }
        let (count, of) = (samples.len(), "series");
        match limit {
            1.. if count > limit => Err(RuleError::Limit { limit, count, of }),
            _ => Ok(samples),
        }
    }

    fn find_alerts(
        &self,
        settings: &AlertSettings,
        vector: &[VectorElement],
        moment: &Moment<'_>,
        queries: &mut dyn Queries,
    ) -> Result<Vec<FoundAlert>, RuleError> {
        let mut seen = HashSet::with_capacity(vector.len());
        let mut alerts = Vec::with_capacity(vector.len());
        let limits = Limits {
            cancel: queries.cancel().clone(),
            ..Limits::default()
        };
        for element in vector {
            let mut expander = Expander {
                data: self.data(element, moment),
                queries,
                limits: &limits,
            };
            let mut labels = LabelsBuilder::from_labels(element.labels.as_ref());
            labels.remove(METRIC_NAME);
            for (name, text) in &self.labels {
                labels.set(name, expander.expand(text).as_bytes());
            }
            labels.set(ALERT_NAME, self.name.as_bytes());
            let labels = labels.build();
            let expand = |(name, text): &(String, String)| (name.clone(), expander.expand(text));
            let annotations = settings.annotations.iter().map(expand).collect();
            // Texts that were cut off are worth nothing.
            limits
                .cancel
                .check()
                .map_err(|e| RuleError::Query(e.message))?;
            if !seen.insert(labels.clone()) {
                return Err(RuleError::SameLabels { of: "alert" });
            }
            let value = match element.value {
                PointValue::Float(value) => value,
                PointValue::Histogram(_) => 0.0,
            };
            alerts.push(FoundAlert {
                labels,
                annotations,
                value,
            });
        }
        Ok(alerts)
    }

    fn data<'a>(&'a self, element: &'a VectorElement, moment: &Moment<'a>) -> AlertData<'a> {
        AlertData {
            alert: &self.name,
            labels: &element.labels,
            value: sample_value(&element.value),
            external_labels: &moment.outside.external_labels,
            external_url: &moment.outside.external_url,
            path_prefix: &moment.outside.path_prefix,
            time: moment.instant.ms(),
        }
    }
}

/// Expands the templates of one alert.
struct Expander<'a, 'q> {
    data: AlertData<'a>,
    queries: &'q mut dyn Queries,
    limits: &'q Limits,
}

impl Expander<'_, '_> {
    /// What `text` becomes; of one that fails the reason, as upstream shows it.
    fn expand(&mut self, text: &str) -> String {
        if !text.contains("{{") {
            return text.to_owned();
        }
        let queries = &mut *self.queries;
        let mut query = |text: &str, at: TimestampMs| samples_of(queries, text, at);
        match template::expand(text, &self.data, &mut query, self.limits) {
            Ok(text) => text,
            Err(e) => template::error_text(&e),
        }
    }
}

/// The samples of what a template asks.
pub fn samples_of(
    queries: &mut dyn Queries,
    text: &str,
    at: TimestampMs,
) -> Result<Vec<QueriedSample>, String> {
    let vector = vector_of(queries.text(text, at)?).map_err(|e| e.to_string())?;
    let sample = |element: VectorElement| QueriedSample {
        value: sample_value(&element.value),
        labels: element.labels,
    };
    Ok(vector.into_iter().map(sample).collect())
}

/// Whether two of the series have the same labels. Their hashes are sorted: a set of the labels
/// would copy them or chase them.
fn has_twins(samples: &[FoundSample]) -> bool {
    let hash = |sample: &FoundSample| xxh64(sample.labels.as_bytes(), 0);
    let numbered = samples.iter().enumerate();
    let mut hashes: Vec<(u64, usize)> = numbered.map(|(i, s)| (hash(s), i)).collect();
    hashes.sort_unstable();
    let mut same_hash = hashes
        .chunk_by(|a, b| a.0 == b.0)
        .filter(|same| same.len() > 1);
    same_hash.any(|same| {
        let labels: HashSet<&Labels> = same.iter().map(|(_, i)| &samples[*i].labels).collect();
        labels.len() < same.len()
    })
}

fn sample_value(value: &PointValue) -> SampleValue {
    match value {
        PointValue::Float(value) => SampleValue::Float(*value),
        PointValue::Histogram(histogram) => SampleValue::Histogram(histogram.clone()),
    }
}

/// A number as a vector of one element.
fn vector_of(value: Value) -> Result<Vec<VectorElement>, RuleError> {
    match value {
        Value::Vector(vector) => Ok(vector),
        Value::Scalar(time, value) => Ok(vec![VectorElement {
            labels: Labels::empty(),
            time,
            value: PointValue::Float(value),
        }]),
        Value::String(..) | Value::Matrix(_) => Err(RuleError::Shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{ReadOptions, parse};
    use firn_model::cancel::Reason;

    /// Answers every expression with so many series, and is given up with its first text.
    struct Given {
        labels: Vec<Labels>,
        cancel: Cancel,
        texts: usize,
    }

    impl Queries for Given {
        fn expr(&mut self, _: &Expr, time: TimestampMs) -> Result<Value, String> {
            let element = |labels: &Labels| VectorElement {
                labels: labels.clone(),
                time,
                value: PointValue::Float(1.0),
            };
            Ok(Value::Vector(self.labels.iter().map(element).collect()))
        }

        fn text(&mut self, _: &str, time: TimestampMs) -> Result<Value, String> {
            self.texts += 1;
            self.cancel.cancel(Reason::Timeout);
            Ok(Value::Scalar(time, 1.0))
        }

        fn cancel(&self) -> &Cancel {
            &self.cancel
        }
    }

    /// Evaluates a rule that finds series with these values of `i`; how many texts it asked.
    fn evaluate(rule: &str, found: &[&str]) -> (Result<Found, RuleError>, usize) {
        let file = parse(
            &format!("groups: [{{name: g, rules: [{rule}]}}]"),
            ReadOptions::default(),
        );
        let settings = &file.expect("the rule is sound").groups[0].rules[0];
        let rule = Rule::new(settings, &Texts::new(), Features::default());
        let labels = |i: &&str| Labels::from_pairs([("__name__", "x"), ("i", *i)]);
        let mut given = Given {
            labels: found.iter().map(labels).collect(),
            cancel: Cancel::new(),
            texts: 0,
        };
        let moment = Moment {
            instant: Instant::from_seconds(1),
            query_offset: Duration::ZERO,
            limit: 0,
            outside: &Outside::default(),
        };
        let found = rule.expect("it parses").evaluate(&moment, &mut given);
        (found, given.texts)
    }

    #[test]
    fn alerts_that_are_given_up_end_between_two_results() {
        let rule = r#"{alert: A, expr: x, annotations: {a: '{{ query "y" }}'}}"#;
        let (found, texts) = evaluate(rule, &["1", "2", "3"]);
        assert_eq!(found, Err(RuleError::Query("query timed out".into())));
        assert_eq!(texts, 1);
    }

    #[test]
    fn recorded_series_that_are_twins_are_an_error() {
        let twins = Err(RuleError::SameLabels { of: "rule" });
        let plain = "{record: r, expr: x}";
        assert_eq!(evaluate(plain, &["1", "2", "1"]).0, twins);
        assert!(evaluate(plain, &["1", "2", "3"]).0.is_ok());
        let made_so = "{record: r, expr: x, labels: {i: z}}";
        assert_eq!(evaluate(made_so, &["1", "2"]).0, twins);
    }
}
