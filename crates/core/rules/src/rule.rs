//! A single rule that is ready to run, and its evaluation.
//!
//! ```text
//! query -> vector --recording--> labels of the rule override those of the result --> samples
//!                 `--alerting--> templates expanded --> active alerts (input of crate::alerts)
//! ```
//!
//! Order, errors and messages follow upstream's `rules/recording.go` and `rules/alerting.go`. An
//! evaluation stores nothing: the caller provides queries and appends the result.

use crate::alert::{ALERT_NAME, Annotations};
use crate::file::{RuleDefinition, Texts};
use crate::instant::RuleInstant;
use firn_gotemplate::{AlertData, QueriedSample, TemplateLimits, TemplateSampleValue};
use firn_model::cancel::CancelToken;
use firn_model::labels::{Labels, LabelsBuilder, METRIC_NAME};
use firn_model::sample::TimestampMs;
use firn_promql::ast::Expr;
use firn_promql::value::{QueryPointValue, QueryValue, VectorElement};
use firn_promql::{Features, parser};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh64::xxh64;

/// A recording or alerting rule with its parsed expression. Immutable; created when a file is
/// loaded and evaluated by [`Rule::evaluate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Name of the recorded series or of the alerts.
    pub name: String,
    /// Parsed expression of the rule, shared with queries that run.
    pub expr: Arc<Expr>,
    /// Expression as formatted by the PromQL printer.
    pub query: String,
    /// Labels for series or alerts, including those of the group. For alerts the values are
    /// templates.
    pub labels: Texts,
    /// Kind of the rule, with the settings of an alerting rule.
    pub kind: RuleKind,
}

/// Distinguishes recording rules, which write series, from alerting rules, which create alerts.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleKind {
    /// The rule records series: its samples are appended to the store.
    Recording,
    /// The rule creates alerts; their samples are derived from their state.
    Alerting(AlertSettings),
}

/// Settings of an alerting rule that control the transitions and annotations of its alerts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertSettings {
    /// Value of `for`: the time for which the condition must be true before an alert fires.
    pub hold: Duration,
    /// Time for which an alert continues to fire after its condition became false.
    pub keep_firing_for: Duration,
    /// Annotations of the alerts: names and templates.
    pub annotations: Annotations,
}

/// Error of a rule evaluation, shown by the API as the last error of the rule. The messages are
/// upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The query failed, timed out or was cancelled; contains the error text.
    #[error("{0}")]
    Query(String),
    /// The expression returned a string or a range vector.
    #[error("rule result is not a vector or scalar")]
    Shape,
    /// Two results have equal labels after the labels of the rule were applied.
    #[error("vector contains metrics with the same labelset after applying {of} labels")]
    SameLabels {
        /// Kind of the rule: `rule` or `alert`.
        of: &'static str,
    },
    /// The rule produced more series or alerts than its group allows.
    #[error("exceeded limit of {limit} with {count} {of}")]
    Limit {
        /// Limit of the group, which is greater than zero.
        limit: usize,
        /// Number of series or alerts that the rule produced.
        count: usize,
        /// Unit of the count: `series` or `alerts`.
        of: &'static str,
    },
    /// The store rejected samples of the rule or was unable to write them.
    #[error("{0}")]
    Storage(String),
}

impl RuleError {
    /// All values that [`RuleError::reason`] returns, for the labels of metrics.
    pub const REASONS: [&'static str; 4] = ["query", "labels", "limit", "storage"];

    /// Returns the value of the metric label `reason` for this error.
    pub fn reason(&self) -> &'static str {
        match self {
            RuleError::Query(_) | RuleError::Shape => "query",
            RuleError::SameLabels { .. } => "labels",
            RuleError::Limit { .. } => "limit",
            RuleError::Storage(_) => "storage",
        }
    }
}

/// Runs the queries of an evaluation, implemented by the server. An error text becomes the last
/// error of the rule.
pub trait RuleQuerier {
    /// Evaluates the parsed expression of a rule as an instant query at the time `at`.
    fn query_expr(&mut self, expr: &Expr, at: TimestampMs) -> Result<QueryValue, String>;

    /// Evaluates the query text of a template at the time `at`.
    fn query_text(&mut self, text: &str, at: TimestampMs) -> Result<QueryValue, String>;

    /// Returns the token that cancels the evaluation. Implementations check it during queries.
    fn cancel(&self) -> &CancelToken;
}

/// Settings of the server that are visible to templates: external labels and the external URL.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateServerSettings {
    /// Value of `global.external_labels`, available to templates as `$externalLabels`.
    pub external_labels: Labels,
    /// URL under which users access the server.
    pub external_url: String,
    /// Path of the external URL.
    pub path_prefix: String,
}

/// Time and settings of one evaluation of a rule. Created by the caller for each evaluation.
#[derive(Clone, Copy, Debug)]
pub struct RuleEvalContext<'a> {
    /// Instant of the group's evaluation, from which the states of alerts are computed.
    pub instant: RuleInstant,
    /// Time by which the query looks behind the instant.
    pub query_offset: Duration,
    /// Maximum number of series or alerts of the rule; zero means no limit.
    pub limit: usize,
    /// Settings of the server for templates.
    pub outside: &'a TemplateServerSettings,
}

impl RuleEvalContext<'_> {
    /// Returns the timestamp of the query and of the resulting samples.
    pub fn sample_time(&self) -> TimestampMs {
        self.instant.before(self.query_offset).ms()
    }
}

/// Result of a rule evaluation, passed to the machine in [`crate::machine::Event::Answered`].
#[derive(Clone, Debug, PartialEq)]
pub enum RuleResult {
    /// Samples of a recording rule, to be stored by the caller.
    Samples(Vec<RecordedSample>),
    /// Alerts whose condition is true, with unique label sets.
    Alerts(Vec<ActiveAlert>),
}

/// A sample that a recording rule produced. Its timestamp is [`RuleEvalContext::sample_time`].
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedSample {
    /// Labels of the series, including the name of the rule.
    pub labels: Labels,
    /// Value of the sample: a float or a histogram.
    pub value: QueryPointValue,
}

/// An alert whose condition is true at the instant of the evaluation. Input of
/// [`crate::alerts::Alerts::advance`].
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveAlert {
    /// Labels of the alert with expanded templates.
    pub labels: Labels,
    /// Annotations of the alert with expanded templates.
    pub annotations: Annotations,
    /// Value of the expression; zero for a histogram.
    pub value: f64,
}

impl Rule {
    /// Creates the rule that `settings` describe, in a group with `group_labels`. Labels of the
    /// rule take precedence. Fails if the expression cannot be parsed.
    pub fn new(
        settings: &RuleDefinition,
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
            kind: if settings.alert.is_empty() {
                RuleKind::Recording
            } else {
                RuleKind::Alerting(AlertSettings {
                    hold: settings.hold,
                    keep_firing_for: settings.keep_firing_for,
                    annotations: settings.annotations(),
                })
            },
        })
    }

    /// Returns the settings of the alerts that the rule creates; `None` for a recording rule.
    pub fn alert_settings(&self) -> Option<&AlertSettings> {
        match &self.kind {
            RuleKind::Alerting(settings) => Some(settings),
            RuleKind::Recording => None,
        }
    }

    /// Returns whether this rule continues the state of `other` after a change of the file: name
    /// and labels are equal.
    pub fn is_successor_of(&self, other: &Rule) -> bool {
        self.name == other.name && self.labels == other.labels
    }

    /// Returns all texts of the rule that are templates, labels before annotations; none for a
    /// recording rule.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        let alerting = self.alert_settings();
        let labels = self.labels.values().filter(move |_| alerting.is_some());
        let annotations = alerting.into_iter().flat_map(|a| &a.annotations);
        labels
            .chain(annotations.map(|(_, text)| text))
            .map(String::as_str)
    }

    /// Runs the query and converts its result into samples or alerts. Fails if the query fails, the
    /// limit is exceeded, or two results have equal labels.
    pub fn evaluate(
        &self,
        moment: &RuleEvalContext<'_>,
        queries: &mut dyn RuleQuerier,
    ) -> Result<RuleResult, RuleError> {
        let value = queries.query_expr(&self.expr, moment.sample_time());
        let value = value.map_err(RuleError::Query)?;
        let vector = vector_elements(value)?;
        match &self.kind {
            RuleKind::Recording => self.record(vector, moment.limit).map(RuleResult::Samples),
            RuleKind::Alerting(settings) => self
                .find_alerts(settings, &vector, moment, queries)
                .map(RuleResult::Alerts),
        }
    }

    fn record(
        &self,
        vector: Vec<VectorElement>,
        limit: usize,
    ) -> Result<Vec<RecordedSample>, RuleError> {
        let mut samples = Vec::with_capacity(vector.len());
        for element in vector {
            let mut labels = LabelsBuilder::from_labels(element.labels.as_ref());
            labels.set(METRIC_NAME, self.name.as_bytes());
            for (name, value) in &self.labels {
                labels.set(name, value.as_bytes());
            }
            samples.push(RecordedSample {
                labels: labels.build(),
                value: element.value,
            });
        }
        if has_duplicate_labels(&samples) {
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
        moment: &RuleEvalContext<'_>,
        queries: &mut dyn RuleQuerier,
    ) -> Result<Vec<ActiveAlert>, RuleError> {
        let mut seen = HashSet::with_capacity(vector.len());
        let mut alerts = Vec::with_capacity(vector.len());
        let limits = TemplateLimits {
            cancel: queries.cancel().clone(),
            ..TemplateLimits::default()
        };
        for element in vector {
            let mut expander = AlertTemplateExpander {
                data: self.template_data(element, moment),
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
            // A cancelled evaluation leaves incomplete texts, which must not be used.
            limits
                .cancel
                .check()
                .map_err(|e| RuleError::Query(e.message))?;
            if !seen.insert(labels.clone()) {
                return Err(RuleError::SameLabels { of: "alert" });
            }
            let value = match element.value {
                QueryPointValue::Float(value) => value,
                QueryPointValue::Histogram(_) => 0.0,
            };
            alerts.push(ActiveAlert {
                labels,
                annotations,
                value,
            });
        }
        Ok(alerts)
    }

    fn template_data<'a>(
        &'a self,
        element: &'a VectorElement,
        moment: &RuleEvalContext<'a>,
    ) -> AlertData<'a> {
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

/// Expands the templates of one alert with its labels and value. A failed template yields an error
/// text instead of failing the rule.
struct AlertTemplateExpander<'a, 'q> {
    data: AlertData<'a>,
    queries: &'q mut dyn RuleQuerier,
    limits: &'q TemplateLimits,
}

impl AlertTemplateExpander<'_, '_> {
    /// Returns the expanded template or, if it fails, the error text that upstream shows instead.
    fn expand(&mut self, text: &str) -> String {
        if !text.contains("{{") {
            return text.to_owned();
        }
        let queries = &mut *self.queries;
        let mut query = |text: &str, at: TimestampMs| query_samples(queries, text, at);
        match firn_gotemplate::expand(text, &self.data, &mut query, self.limits) {
            Ok(text) => text,
            Err(e) => firn_gotemplate::error_text(&e),
        }
    }
}

/// Runs the query of a template and returns its samples. A scalar result becomes one sample without
/// labels.
pub fn query_samples(
    queries: &mut dyn RuleQuerier,
    text: &str,
    at: TimestampMs,
) -> Result<Vec<QueriedSample>, String> {
    let vector = vector_elements(queries.query_text(text, at)?).map_err(|e| e.to_string())?;
    let sample = |element: VectorElement| QueriedSample {
        value: sample_value(&element.value),
        labels: element.labels,
    };
    Ok(vector.into_iter().map(sample).collect())
}

/// Returns whether two series have the same labels. Sorted hashes are faster than a set of labels,
/// which would copy them or follow a pointer for each.
fn has_duplicate_labels(samples: &[RecordedSample]) -> bool {
    let hash = |sample: &RecordedSample| xxh64(sample.labels.as_bytes(), 0);
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

fn sample_value(value: &QueryPointValue) -> TemplateSampleValue {
    match value {
        QueryPointValue::Float(value) => TemplateSampleValue::Float(*value),
        QueryPointValue::Histogram(histogram) => TemplateSampleValue::Histogram(histogram.clone()),
    }
}

/// Returns the elements of a vector. A scalar becomes one element without labels.
fn vector_elements(value: QueryValue) -> Result<Vec<VectorElement>, RuleError> {
    match value {
        QueryValue::Vector(vector) => Ok(vector),
        QueryValue::Scalar(time, value) => Ok(vec![VectorElement {
            labels: Labels::empty(),
            time,
            value: QueryPointValue::Float(value),
        }]),
        QueryValue::String(..) | QueryValue::Matrix(_) => Err(RuleError::Shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{RuleFileOptions, parse};
    use firn_model::cancel::CancelReason;

    /// Answers every expression with the same series, and cancels the evaluation at the first
    /// template query.
    struct Given {
        labels: Vec<Labels>,
        cancel: CancelToken,
        texts: usize,
    }

    impl RuleQuerier for Given {
        fn query_expr(&mut self, _: &Expr, time: TimestampMs) -> Result<QueryValue, String> {
            let element = |labels: &Labels| VectorElement {
                labels: labels.clone(),
                time,
                value: QueryPointValue::Float(1.0),
            };
            Ok(QueryValue::Vector(
                self.labels.iter().map(element).collect(),
            ))
        }

        fn query_text(&mut self, _: &str, time: TimestampMs) -> Result<QueryValue, String> {
            self.texts += 1;
            self.cancel.cancel(CancelReason::Timeout);
            Ok(QueryValue::Scalar(time, 1.0))
        }

        fn cancel(&self) -> &CancelToken {
            &self.cancel
        }
    }

    /// Evaluates a rule on series with these values of the label `i`. Returns the result and the
    /// number of template queries.
    fn evaluate(rule: &str, found: &[&str]) -> (Result<RuleResult, RuleError>, usize) {
        let file = parse(
            &format!("groups: [{{name: g, rules: [{rule}]}}]"),
            RuleFileOptions::default(),
        );
        let settings = &file.expect("the rule is sound").groups[0].rules[0];
        let rule = Rule::new(settings, &Texts::new(), Features::default());
        let labels = |i: &&str| Labels::from_pairs([("__name__", "x"), ("i", *i)]);
        let mut given = Given {
            labels: found.iter().map(labels).collect(),
            cancel: CancelToken::new(),
            texts: 0,
        };
        let moment = RuleEvalContext {
            instant: RuleInstant::from_seconds(1),
            query_offset: Duration::ZERO,
            limit: 0,
            outside: &TemplateServerSettings::default(),
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
