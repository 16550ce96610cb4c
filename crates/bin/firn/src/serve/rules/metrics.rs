//! Metrics of rule groups and rules: upstream's names with Firn's prefix, and metrics that only
//! Firn has.

use super::RuleManager;
use firn_model::metrics::{Collect, DurationHistogram, MetricSink, MetricValue};
use firn_rules::rule::RuleError;
use firn_rules::view::{GroupView, RuleGroups, RuleView};

/// Histograms of evaluation durations of all rules and groups of a server, updated at the end of
/// each evaluation.
#[derive(Debug, Default)]
pub(super) struct RuleMetrics {
    /// Duration of the evaluation of one rule, in seconds.
    pub(super) evaluation_duration: DurationHistogram,
    /// Duration of the evaluation of all rules of a group.
    pub(super) group_duration: DurationHistogram,
}

/// A metric with one value per group or per rule: name, help text, and the function that reads the
/// value from a view.
struct RuleMetricDefinition<V> {
    name: &'static str,
    help: &'static str,
    value: fn(&V) -> MetricValue<'static>,
}

const OF_GROUPS: [RuleMetricDefinition<GroupView>; 11] = [
    RuleMetricDefinition {
        name: "firn_rule_group_iterations_total",
        help: "The total number of scheduled rule group evaluations, whether executed or missed.",
        value: |g| MetricValue::Counter(g.counts.iterations as f64),
    },
    RuleMetricDefinition {
        name: "firn_rule_group_iterations_missed_total",
        help: "Rule group evaluations that were missed and not caught up on.",
        value: |g| MetricValue::Counter(g.counts.missed as f64),
    },
    RuleMetricDefinition {
        name: "firn_rule_group_iterations_made_up_total",
        help: "Missed rule group evaluations that were caught up on later.",
        value: |g| MetricValue::Counter(g.counts.made_up as f64),
    },
    RuleMetricDefinition {
        name: "firn_rule_evaluations_total",
        help: "The total number of rule evaluations.",
        value: |g| MetricValue::Counter(g.counts.evaluations as f64),
    },
    RuleMetricDefinition {
        name: "firn_rule_group_interval_seconds",
        help: "The interval of a rule group.",
        value: |g| MetricValue::Gauge(g.group.interval.as_secs_f64()),
    },
    RuleMetricDefinition {
        name: "firn_rule_group_last_evaluation_timestamp_seconds",
        help: "The timestamp of the last rule group evaluation in seconds.",
        value: |g| MetricValue::Gauge(g.last.began.map_or(0.0, |t| t.nanos() as f64 / 1e9)),
    },
    RuleMetricDefinition {
        name: "firn_rule_group_last_evaluated_instant_seconds",
        help: "The evaluation timestamp of the last rule group evaluation.",
        value: |g| MetricValue::Gauge(g.last.instant.map_or(0.0, |t| t.nanos() as f64 / 1e9)),
    },
    RuleMetricDefinition {
        name: "firn_rule_group_last_duration_seconds",
        help: "The duration of the last rule group evaluation.",
        value: |g| MetricValue::Gauge(g.last.took.as_secs_f64()),
    },
    RuleMetricDefinition {
        name: "firn_rule_group_last_rule_duration_sum_seconds",
        help: "The sum of the durations of the rules in the last rule group evaluation.",
        value: |g| MetricValue::Gauge(g.rules.iter().map(|r| r.took.as_secs_f64()).sum()),
    },
    RuleMetricDefinition {
        name: "firn_rule_group_rules",
        help: "The number of rules.",
        value: |g| MetricValue::Gauge(g.rules.len() as f64),
    },
    RuleMetricDefinition {
        name: "firn_rule_group_last_evaluation_samples",
        help: "The number of samples returned during the last rule group evaluation.",
        value: |g| MetricValue::Gauge(g.counts.samples as f64),
    },
];

const OF_RULES: [RuleMetricDefinition<RuleView>; 4] = [
    RuleMetricDefinition {
        name: "firn_rule_last_duration_seconds",
        help: "The duration of the last evaluation of a rule.",
        value: |r| MetricValue::Gauge(r.took.as_secs_f64()),
    },
    RuleMetricDefinition {
        name: "firn_rule_duration_seconds_total",
        help: "The duration of all evaluations of a rule.",
        value: |r| MetricValue::Counter(r.took_in_all.as_secs_f64()),
    },
    RuleMetricDefinition {
        name: "firn_rule_last_evaluation_samples",
        help: "The number of samples produced by the last evaluation of a rule.",
        value: |r| MetricValue::Gauge(r.samples as f64),
    },
    RuleMetricDefinition {
        name: "firn_rule_failures_total",
        help: "The number of evaluations of a rule that failed.",
        value: |r| MetricValue::Counter(r.failures.iter().sum::<u64>() as f64),
    },
];

impl Collect for RuleManager {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let durations = [
            (
                "firn_rule_evaluation_duration_seconds",
                "The duration for a rule to execute.",
                &self.shared.metrics.evaluation_duration,
            ),
            (
                "firn_rule_group_duration_seconds",
                "The duration of rule group evaluations.",
                &self.shared.metrics.group_duration,
            ),
        ];
        for (name, help, histogram) in durations {
            sink.metric(name, help, &[], MetricValue::Histogram(histogram));
        }
        let groups = self.groups(false);
        let keys: Vec<String> = groups.iter().map(|view| view.group.key()).collect();
        for metric in &OF_GROUPS {
            for (view, key) in groups.iter().zip(&keys) {
                let labels = [("rule_group", key.as_str())];
                sink.metric(metric.name, metric.help, &labels, (metric.value)(view));
            }
        }
        for metric in &OF_RULES {
            for (view, key) in groups.iter().zip(&keys) {
                for (at, (rule, settings)) in view.rules.iter().zip(&view.group.rules).enumerate() {
                    // Rules of a group may have equal names; the index makes the labels unique.
                    let at = at.to_string();
                    let labels = [
                        ("rule", settings.name.as_str()),
                        ("rule_group", key),
                        ("rule_index", &at),
                    ];
                    sink.metric(metric.name, metric.help, &labels, (metric.value)(rule));
                }
            }
        }
        for (view, key) in groups.iter().zip(&keys) {
            for (i, reason) in RuleError::REASONS.iter().enumerate() {
                let count: u64 = view.rules.iter().map(|rule| rule.failures[i]).sum();
                sink.metric(
                    "firn_rule_evaluation_failures_total",
                    "The total number of rule evaluation failures.",
                    &[("reason", reason), ("rule_group", key)],
                    MetricValue::Counter(count as f64),
                );
            }
        }
    }
}
