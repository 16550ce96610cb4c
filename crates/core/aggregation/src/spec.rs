//! The aggregation rules as plain data, which the settings derive from the expressions in the
//! configuration.
//!
//! Invariant: two rules with equal [`AggregationRuleSpec::identity_hash`] produce equal series with
//! equal values, so that the state of one can be continued by the other after a reload.

use firn_model::histogram::float::HistogramAggregate;
use firn_model::histogram::{Histogram, ResetHint};
use firn_model::labels::{Labels, LabelsBuilder, LabelsRef, METRIC_NAME};
use firn_model::matcher::{MatchOp, Matcher};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Largest number of groups in a process, limited by the numbering of lanes.
pub const GROUPS_MAX: usize = 128;

/// Suffixes of counter names, for metrics without known metadata.
const COUNTER_ENDINGS: [&[u8]; 4] = [b"_total", b"_bucket", b"_count", b"_sum"];

/// The aggregation configuration of a store: all groups. Created by the settings from the
/// configuration file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AggregationSpec {
    /// The groups, with distinct names.
    pub groups: Vec<AggregationGroupSpec>,
}

/// Rules with common time parameters, whose results are written together and whose lanes are
/// separate.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregationGroupSpec {
    /// Name of the group, which identifies its state.
    pub name: String,
    /// Length of an interval in milliseconds; greater than zero.
    pub interval_ms: i64,
    /// Largest delay between the end of an interval and its result, in milliseconds of data time.
    pub delay_ms: i64,
    /// Time in milliseconds for which a silent source still counts; greater than zero.
    pub lookback_ms: i64,
    /// Rules of the group, with distinct results.
    pub rules: Arc<[AggregationRuleSpec]>,
}

/// The aggregation operator of a rule, with the semantics of PromQL. Its parameter is a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AggregationOp {
    /// The sum; the sum of counters is a counter.
    Sum,
    /// The minimum of the newest values.
    Min,
    /// The maximum of the newest values.
    Max,
    /// The arithmetic mean of the newest values.
    Avg,
    /// The number of sources with a recent sample.
    Count,
    /// One, if there is at least one source.
    Group,
    /// The newest value; the greatest of those with the same timestamp.
    Last,
    /// The population standard deviation of the newest values.
    Stddev,
    /// The population variance of the newest values.
    Stdvar,
    /// The quantile with this share of values at or below it.
    Quantile(f64),
}

impl AggregationOp {
    /// Returns whether only the presence of sources matters, and not their values.
    pub(super) fn ignores_values(self) -> bool {
        matches!(self, Self::Count | Self::Group)
    }

    /// Returns whether native histograms can be sources; the other operators ignore them, as in a
    /// query.
    pub(super) fn accepts_histograms(self) -> bool {
        matches!(self, Self::Sum | Self::Avg | Self::Last) || self.ignores_values()
    }

    /// Returns the aggregation of gauge histograms: `None` for the newest one.
    pub(super) fn histogram_fold(self) -> Option<HistogramAggregate> {
        match self {
            Self::Sum => Some(HistogramAggregate::Sum),
            Self::Avg => Some(HistogramAggregate::Mean),
            _ => None,
        }
    }
}

/// The labels of a source that its result keeps, like `by` and `without` in PromQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AggregationGrouping {
    /// Only these labels, without the metric name.
    By(Vec<String>),
    /// All labels except for these and the metric name.
    Without(Vec<String>),
}

/// The kind of a metric, which decides how its samples are aggregated by the operator `sum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregatedMetricKind {
    /// A counter, of which the increases are added.
    Counter,
    /// A gauge, of which the newest value is used.
    Gauge,
}

/// An aggregation rule, compiled from its expression by the settings.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregationRuleSpec {
    /// Metric name of the results.
    pub record: String,
    /// The expression in its printed form, which identifies operator, grouping and matchers.
    pub expr: String,
    /// Aggregation operator, with its parameter.
    pub op: AggregationOp,
    /// Labels that the result keeps.
    pub grouping: AggregationGrouping,
    /// Matchers, all of which a source must satisfy.
    pub matchers: Vec<Matcher>,
    /// Labels to add to the results, sorted by name.
    pub labels: Vec<(String, String)>,
    /// True if the raw samples of the sources are not stored.
    pub drops: bool,
    /// Kind of the sources, if the configuration sets it.
    pub kind: Option<AggregatedMetricKind>,
}

impl AggregationRuleSpec {
    /// Returns the hash that identifies the rule in stored state. It covers all fields except for
    /// `drops`.
    pub fn identity_hash(&self) -> u64 {
        let mut hash = Xxh3::new();
        let labels = self.labels.iter().flat_map(|(name, value)| [name, value]);
        for text in [&self.record, &self.expr].into_iter().chain(labels) {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        hash.update(&[self.kind.map_or(0, |kind| 1 + kind as u8)]);
        hash.digest()
    }

    /// Returns the metric name of all sources, if an equality matcher specifies it.
    pub fn metric_name(&self) -> Option<&[u8]> {
        let mut names = self.matchers.iter().filter(|matcher| {
            let is_name = matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal;
            is_name && !matcher.value().is_empty()
        });
        names.next().map(Matcher::value)
    }

    /// Returns whether the series with `labels` is a source.
    pub(super) fn matches_source(&self, labels: LabelsRef<'_>) -> bool {
        let matches = |matcher: &Matcher| matcher.matches(labels.get(matcher.name()));
        self.matchers.iter().all(matches)
    }

    /// Returns the labels of the result to which the source with `labels` contributes.
    pub(super) fn result_labels(&self, labels: LabelsRef<'_>) -> Labels {
        let mut result = LabelsBuilder::from_labels(labels);
        match &self.grouping {
            AggregationGrouping::By(names) => result.retain(|name| names.iter().any(|n| n == name)),
            AggregationGrouping::Without(names) => {
                result.retain(|name| name != METRIC_NAME && names.iter().all(|n| n != name))
            }
        };
        result.set(METRIC_NAME, self.record.as_bytes());
        for (name, value) in &self.labels {
            result.set(name, value.as_bytes());
        }
        result.build()
    }

    /// Returns the kind of sources with native histograms, such as `histogram`: that of the
    /// configuration, or else derived from the reset hint.
    pub(super) fn kind_of_histogram_source(&self, histogram: &Histogram) -> AggregatedMetricKind {
        if self.op != AggregationOp::Sum {
            return AggregatedMetricKind::Gauge;
        }
        let by_hint = match histogram.reset_hint {
            ResetHint::Gauge => AggregatedMetricKind::Gauge,
            ResetHint::Unknown | ResetHint::Reset | ResetHint::NotReset => {
                AggregatedMetricKind::Counter
            }
        };
        self.kind.unwrap_or(by_hint)
    }

    /// Returns the kind of the source named `name`: that of the configuration, or else of the
    /// metadata, or else derived from the suffix of the name.
    pub(super) fn kind_of_source(
        &self,
        name: &[u8],
        metadata: Option<AggregatedMetricKind>,
    ) -> AggregatedMetricKind {
        if self.op != AggregationOp::Sum {
            return AggregatedMetricKind::Gauge;
        }
        let by_name = || {
            if COUNTER_ENDINGS.iter().any(|end| name.ends_with(end)) {
                AggregatedMetricKind::Counter
            } else {
                AggregatedMetricKind::Gauge
            }
        };
        self.kind.or(metadata).unwrap_or_else(by_name)
    }
}
