//! Evaluates one rule over a past time range. Returns the alerts that a group with this rule would
//! have had, with their times, or the series that it would have recorded.
//!
//! Invariant: nothing is stored and nothing is sent. The rule is evaluated by the same code as in a
//! group ([`Rule::evaluate`] and [`RuleAlerts::advance`]). Alerts start without state, so the
//! evaluation begins `for` and `keep_firing_for` before the range: an alert that was already firing
//! when the range begins is firing in the result.
//!
//! The caller provides the queries, their limits and their deadline.

use crate::alert::{Alert, Annotations};
use crate::alerts::RuleAlerts;
use crate::instant::RuleInstant;
use crate::rule::{
    AlertSettings, RecordedSample, Rule, RuleEvalContext, RuleQuerier, RuleResult,
    TemplateServerSettings,
};
use firn_model::labels::Labels;
use firn_promql::value::QueryPointValue;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of periods of alerts, or of recorded series, of a preview. Each takes about a
/// kilobyte in the response.
pub const ITEMS_MAX: usize = 10_000;

/// Times at which a rule is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulePreviewTimes {
    /// Instant of the first evaluation in the result.
    pub start: RuleInstant,
    /// Limit of the last evaluation, inclusive.
    pub end: RuleInstant,
    /// Time between two evaluations; greater than zero.
    pub interval: Duration,
    /// Time by which queries look behind the instant of an evaluation.
    pub query_offset: Duration,
}

impl RulePreviewTimes {
    /// Returns the instant of the first evaluation of `rule`: early enough before the start that
    /// alerts have reached their state when the range begins.
    pub fn first_evaluation(&self, rule: &Rule) -> RuleInstant {
        let hold = rule.alert_settings().map_or(Duration::ZERO, |settings| {
            settings.hold.saturating_add(settings.keep_firing_for)
        });
        let steps = hold.as_nanos().div_ceil(self.interval.as_nanos().max(1));
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        self.start.before(self.interval.saturating_mul(steps))
    }
}

/// Result of a preview.
#[derive(Clone, Debug, PartialEq)]
pub struct RulePreview {
    /// Number of evaluations from the start of the range on.
    pub evaluation_count: usize,
    /// Number of these evaluations that failed. They leave the alerts unchanged, as in a group.
    pub failure_count: usize,
    /// Error of the newest evaluation that failed.
    pub last_error: Option<String>,
    /// Result of the other evaluations.
    pub outcome: RulePreviewOutcome,
}

/// Alerts or samples of a preview, depending on the kind of the rule.
#[derive(Clone, Debug, PartialEq)]
pub enum RulePreviewOutcome {
    /// Series that a recording rule would have recorded, by labels.
    Recording(BTreeMap<Labels, RecordedSeries>),
    /// Alerts of an alerting rule, by labels.
    Alerting(BTreeMap<Labels, PreviewedAlert>),
}

/// A series that a recording rule would have recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedSeries {
    /// Number of samples in the range.
    pub sample_count: usize,
    /// Value of the newest sample.
    pub last_value: QueryPointValue,
}

/// An alert with the times at which it would have been pending or firing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreviewedAlert {
    /// Annotations from the newest evaluation that found the alert.
    pub annotations: Annotations,
    /// Times at which the alert was active, in order and without overlap; at least one.
    pub periods: Vec<AlertPeriod>,
}

/// A time at which an alert was active without interruption.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlertPeriod {
    /// Evaluation at which the condition became true. It may be before the start of the range.
    pub active_at: RuleInstant,
    /// Evaluation at which the alert started to fire; `None` if it only was pending.
    pub fired_at: Option<RuleInstant>,
    /// Evaluation at which the alert was resolved or no longer pending; `None` if it was active
    /// until the end of the range.
    pub ended_at: Option<RuleInstant>,
    /// Value of the expression at the newest evaluation that found the alert.
    pub value: f64,
}

/// Reason why a preview has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulePreviewError {
    /// The preview was cancelled or exceeded its deadline; contains the error text.
    #[error("{0}")]
    Cancelled(String),
    /// The result would have more than [`ITEMS_MAX`] items; contains their name.
    #[error("preview of the rule has more than {ITEMS_MAX} {0}: shorten the time range")]
    TooMany(&'static str),
}

/// Evaluates `rule` at all times of `times`. Errors of evaluations are part of the result. Costs an
/// evaluation for each interval.
pub fn preview_rule(
    rule: &Rule,
    times: &RulePreviewTimes,
    outside: &TemplateServerSettings,
    queries: &mut dyn RuleQuerier,
) -> Result<RulePreview, RulePreviewError> {
    assert!(!times.interval.is_zero());
    let mut run = PreviewRun::new(rule, times);
    let mut instant = times.first_evaluation(rule);
    while instant <= times.end {
        let context = RuleEvalContext {
            instant,
            query_offset: times.query_offset,
            limit: 0,
            outside,
        };
        let result = rule.evaluate(&context, queries);
        queries
            .cancel()
            .check()
            .map_err(|e| RulePreviewError::Cancelled(e.message))?;
        match result {
            Ok(result) => run.apply(result, instant)?,
            Err(e) => run.note_failure(instant, e.to_string()),
        }
        run.evaluation_count += usize::from(instant >= times.start);
        instant = instant.after(times.interval);
    }
    Ok(run.finish())
}

/// State of a preview between two evaluations.
struct PreviewRun<'a> {
    times: &'a RulePreviewTimes,
    settings: Option<&'a AlertSettings>,
    evaluation_count: usize,
    failure_count: usize,
    last_error: Option<String>,
    series: BTreeMap<Labels, RecordedSeries>,
    alerts: RuleAlerts,
    found: BTreeMap<Labels, PreviewedAlert>,
    period_count: usize,
}

impl<'a> PreviewRun<'a> {
    fn new(rule: &'a Rule, times: &'a RulePreviewTimes) -> Self {
        Self {
            times,
            settings: rule.alert_settings(),
            evaluation_count: 0,
            failure_count: 0,
            last_error: None,
            series: BTreeMap::new(),
            alerts: RuleAlerts::default(),
            found: BTreeMap::new(),
            period_count: 0,
        }
    }

    fn note_failure(&mut self, instant: RuleInstant, error: String) {
        if instant >= self.times.start {
            self.failure_count += 1;
            self.last_error = Some(error);
        }
    }

    fn apply(&mut self, result: RuleResult, instant: RuleInstant) -> Result<(), RulePreviewError> {
        match (result, self.settings) {
            (RuleResult::Alerts(active), Some(settings)) => {
                if let Err(e) = self.alerts.advance(active, instant, settings, 0) {
                    self.note_failure(instant, e.to_string());
                }
                self.record_alerts(instant)
            }
            (RuleResult::Samples(samples), _) => self.record_samples(samples),
            (RuleResult::Alerts(_), None) => Ok(()),
        }
    }

    fn record_samples(&mut self, samples: Vec<RecordedSample>) -> Result<(), RulePreviewError> {
        for RecordedSample { labels, value } in samples {
            let series = self.series.entry(labels).or_insert(RecordedSeries {
                sample_count: 0,
                last_value: QueryPointValue::Float(0.0),
            });
            series.sample_count += 1;
            series.last_value = value;
        }
        match self.series.len() {
            count if count > ITEMS_MAX => Err(RulePreviewError::TooMany("series")),
            _ => Ok(()),
        }
    }

    /// Updates the periods from the alerts after the evaluation at `instant`.
    fn record_alerts(&mut self, instant: RuleInstant) -> Result<(), RulePreviewError> {
        let active: BTreeMap<&Labels, &Alert> =
            self.alerts.active().map(|a| (&a.labels, a)).collect();
        for (labels, previewed) in &mut self.found {
            let open = previewed.periods.last_mut();
            if let Some(open) = open.filter(|open| open.ended_at.is_none())
                && active
                    .get(labels)
                    .is_none_or(|a| a.active_at != open.active_at)
            {
                open.ended_at = Some(instant);
            }
        }
        for (labels, alert) in active {
            let previewed = self.found.entry(labels.clone()).or_default();
            previewed.annotations.clone_from(&alert.annotations);
            let is_open = |period: &AlertPeriod| period.ended_at.is_none();
            if !previewed.periods.last().is_some_and(is_open) {
                self.period_count += 1;
                previewed.periods.push(AlertPeriod {
                    active_at: alert.active_at,
                    fired_at: None,
                    ended_at: None,
                    value: alert.value,
                });
            }
            if let Some(period) = previewed.periods.last_mut() {
                period.fired_at = alert.fired_at;
                period.value = alert.value;
            }
        }
        match self.period_count {
            count if count > ITEMS_MAX => Err(RulePreviewError::TooMany("periods of alerts")),
            _ => Ok(()),
        }
    }

    fn finish(mut self) -> RulePreview {
        let start = self.times.start;
        for alert in self.found.values_mut() {
            alert
                .periods
                .retain(|period| period.ended_at.is_none_or(|end| end > start));
        }
        self.found.retain(|_, alert| !alert.periods.is_empty());
        RulePreview {
            evaluation_count: self.evaluation_count,
            failure_count: self.failure_count,
            last_error: self.last_error,
            outcome: match self.settings {
                Some(_) => RulePreviewOutcome::Alerting(self.found),
                None => RulePreviewOutcome::Recording(self.series),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{RuleFileOptions, parse_rule};
    use firn_model::cancel::CancelToken;
    use firn_model::sample::TimestampMs;
    use firn_promql::Features;
    use firn_promql::ast::Expr;
    use firn_promql::value::{QueryValue, VectorElement};

    const MINUTE: Duration = Duration::from_secs(60);

    /// Answers a query at minute `i` with one series if character `i` of the pattern is `x`, and
    /// with an error if it is `e`.
    struct PatternQuerier {
        pattern: &'static str,
        cancel: CancelToken,
    }

    impl RuleQuerier for PatternQuerier {
        fn query_expr(&mut self, _: &Expr, at: TimestampMs) -> Result<QueryValue, String> {
            let minute = usize::try_from(at / 60_000).unwrap();
            match self.pattern.as_bytes()[minute] {
                b'x' => Ok(QueryValue::Vector(vec![VectorElement {
                    labels: Labels::from_pairs([("__name__", "up"), ("job", "a")]),
                    time: at,
                    value: QueryPointValue::Float(minute as f64),
                }])),
                b'e' => Err("broken".to_owned()),
                _ => Ok(QueryValue::Vector(Vec::new())),
            }
        }

        fn query_text(&mut self, _: &str, _: TimestampMs) -> Result<QueryValue, String> {
            Err("no query in templates".to_owned())
        }

        fn cancel(&self) -> &CancelToken {
            &self.cancel
        }
    }

    fn preview(rule: &str, pattern: &'static str, start: usize) -> RulePreview {
        let definition = parse_rule(rule, RuleFileOptions::default()).unwrap();
        let rule = Rule::new(&definition, &Default::default(), Features::default()).unwrap();
        let at = |minute: usize| RuleInstant::from_ms(minute as i64 * 60_000);
        let times = RulePreviewTimes {
            start: at(start),
            end: at(pattern.len() - 1),
            interval: MINUTE,
            query_offset: Duration::ZERO,
        };
        let mut queries = PatternQuerier {
            pattern,
            cancel: CancelToken::default(),
        };
        preview_rule(&rule, &times, &Default::default(), &mut queries).unwrap()
    }

    /// Checks the periods `active, fired, ended` in minutes.
    fn check(rule: &str, pattern: &'static str, start: usize, expected: &[&str]) {
        let preview = preview(rule, pattern, start);
        assert_eq!(preview.evaluation_count, pattern.len() - start);
        let RulePreviewOutcome::Alerting(alerts) = preview.outcome else {
            panic!("{rule} records");
        };
        let minute = |instant: Option<RuleInstant>| match instant {
            Some(instant) => (instant.seconds() / 60).to_string(),
            None => "-".to_owned(),
        };
        let periods = alerts.values().flat_map(|alert| &alert.periods);
        let periods = periods.map(|period| {
            let (fired, ended) = (minute(period.fired_at), minute(period.ended_at));
            format!("{} {fired} {ended}", minute(Some(period.active_at)))
        });
        assert_eq!(periods.collect::<Vec<_>>(), expected, "{rule}, {pattern}");
    }

    #[test]
    fn periods_of_an_alert_follow_the_condition() {
        let plain = "{alert: A, expr: up}";
        check(plain, ".xx..x", 0, &["1 1 3", "5 5 -"]);
        check(plain, "......", 0, &[]);
        let hold = "{alert: A, expr: up, for: 2m}";
        check(hold, "....xx.xxxx.", 4, &["4 - 6", "7 9 11"]);
        let keep = "{alert: A, expr: up, keep_firing_for: 2m}";
        check(keep, "..xx.x.....", 2, &["2 2 8"]);
    }

    #[test]
    fn alert_that_fires_when_the_range_begins_fires_in_the_result() {
        let hold = "{alert: A, expr: up, for: 3m}";
        check(hold, "xxxxxxxx.", 5, &["2 5 8"]);
        check("{alert: A, expr: up}", "xx...", 2, &[]);
        check("{alert: A, expr: up, for: 1m}", "xxx...", 3, &[]);
    }

    #[test]
    fn failed_evaluations_are_counted_and_leave_alerts_unchanged() {
        let rule = "{alert: A, expr: up}";
        check(rule, "xxex.", 0, &["0 0 4"]);
        let preview = preview(rule, "xxexe", 3);
        assert_eq!(preview.failure_count, 1);
        assert_eq!(preview.last_error.as_deref(), Some("broken"));
    }

    #[test]
    fn recorded_series_have_the_labels_of_the_rule() {
        let preview = preview("{record: a, expr: up, labels: {b: c}}", "x.xx", 0);
        let RulePreviewOutcome::Recording(series) = preview.outcome else {
            panic!("the rule alerts");
        };
        let labels = Labels::from_pairs([("__name__", "a"), ("b", "c"), ("job", "a")]);
        let expected = RecordedSeries {
            sample_count: 3,
            last_value: QueryPointValue::Float(3.0),
        };
        assert_eq!(series, BTreeMap::from([(labels, expected)]));
    }

    #[test]
    fn cancelled_preview_has_no_result() {
        let definition = parse_rule("{alert: A, expr: up}", RuleFileOptions::default()).unwrap();
        let rule = Rule::new(&definition, &Default::default(), Features::default()).unwrap();
        let mut queries = PatternQuerier {
            pattern: "xxx",
            cancel: CancelToken::default(),
        };
        queries
            .cancel
            .cancel(firn_model::cancel::CancelReason::Canceled);
        let times = RulePreviewTimes {
            start: RuleInstant::default(),
            end: RuleInstant::from_seconds(120),
            interval: MINUTE,
            query_offset: Duration::ZERO,
        };
        let outcome = preview_rule(&rule, &times, &Default::default(), &mut queries);
        assert!(matches!(outcome, Err(RulePreviewError::Cancelled(_))));
    }
}
