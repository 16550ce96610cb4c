//! What is to be aggregated, as plain data: the settings make it of the config's expressions.
//!
//! Invariant: two rules with equal [`RuleSpec::identity`] give equal series of equal values, so
//! that the state of one may go on as that of the other after a reload.

use firn_model::histogram::float::Of;
use firn_model::histogram::{Histogram, ResetHint};
use firn_model::labels::{Labels, LabelsBuilder, LabelsRef, METRIC_NAME};
use firn_model::matcher::{MatchOp, Matcher};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Groups that one process may have: what the numbers of lanes allow.
pub const GROUPS_MAX: usize = 128;

/// Endings of the names of counters, where no metadata says what a metric is.
const COUNTER_ENDINGS: [&[u8]; 4] = [b"_total", b"_bucket", b"_count", b"_sum"];

/// All groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AggregationSpec {
    /// The groups; their names differ.
    pub groups: Vec<GroupSpec>,
}

/// Rules that are written together.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSpec {
    /// Its name.
    pub name: String,
    /// How far the ends of intervals are apart; above zero.
    pub interval_ms: i64,
    /// How long after the end of an interval its result is written, at the latest, by data time.
    pub delay_ms: i64,
    /// How long a silent source counts; above zero.
    pub lookback_ms: i64,
    /// Its rules.
    pub rules: Arc<[RuleSpec]>,
}

/// What is made of the values of the sources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// The sum: of counters a counter.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The mean.
    Avg,
    /// How many sources there are.
    Count,
    /// One, if there is a source.
    Group,
    /// The newest; of several at one time the greatest.
    Last,
    /// The standard deviation of all.
    Stddev,
    /// The variance of all.
    Stdvar,
    /// The value that this share of all is not above.
    Quantile(f64),
}

impl Op {
    /// Whether it matters only that a source is there, whatever its samples are.
    pub(super) fn counts_series(self) -> bool {
        matches!(self, Self::Count | Self::Group)
    }

    /// Whether native histograms are sources; as in a query, the others pass them over.
    pub(super) fn takes_natives(self) -> bool {
        matches!(self, Self::Sum | Self::Avg | Self::Last) || self.counts_series()
    }

    /// What is made of histograms of gauges: none for the newest.
    pub(super) fn of_natives(self) -> Option<Of> {
        match self {
            Self::Sum => Some(Of::Sum),
            Self::Avg => Some(Of::Mean),
            _ => None,
        }
    }
}

/// Which labels a result keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// These.
    By(Vec<String>),
    /// All but these and the name.
    Without(Vec<String>),
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It counts: what matters is by how much it grew.
    Counter,
    /// It goes up and down: what matters is its newest value.
    Gauge,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSpec {
    /// The name of its results.
    pub record: String,
    /// The expression as it is printed: it stands for what follows.
    pub expr: String,
    /// What is made of the values.
    pub op: Op,
    /// Which labels stay.
    pub grouping: Grouping,
    /// Which series are its sources: all must match.
    pub matchers: Vec<Matcher>,
    /// Labels that results get, sorted by name.
    pub labels: Vec<(String, String)>,
    /// Whether sources are not stored.
    pub drops: bool,
    /// What the sources are, if the config says it.
    pub kind: Option<Kind>,
}

impl RuleSpec {
    /// What stands for the rule in stored state: all but `drops`.
    pub fn identity(&self) -> u64 {
        let mut hash = Xxh3::new();
        let labels = self.labels.iter().flat_map(|(name, value)| [name, value]);
        for text in [&self.record, &self.expr].into_iter().chain(labels) {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        hash.update(&[self.kind.map_or(0, |kind| 1 + kind as u8)]);
        hash.digest()
    }

    /// The name that all its sources have, if the matchers say one.
    pub fn metric_name(&self) -> Option<&[u8]> {
        let mut names = self.matchers.iter().filter(|matcher| {
            let is_name = matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal;
            is_name && !matcher.value().is_empty()
        });
        names.next().map(Matcher::value)
    }

    /// Whether the series with `labels` is a source.
    pub(super) fn takes(&self, labels: LabelsRef<'_>) -> bool {
        let matches = |matcher: &Matcher| matcher.matches(labels.get(matcher.name()));
        self.matchers.iter().all(matches)
    }

    /// The labels of the result that the source with `labels` counts in.
    pub(super) fn result_of(&self, labels: LabelsRef<'_>) -> Labels {
        let mut result = LabelsBuilder::from_labels(labels);
        match &self.grouping {
            Grouping::By(names) => result.retain(|name| names.iter().any(|n| n == name)),
            Grouping::Without(names) => {
                result.retain(|name| name != METRIC_NAME && names.iter().all(|n| n != name))
            }
        };
        result.set(METRIC_NAME, self.record.as_bytes());
        for (name, value) in &self.labels {
            result.set(name, value.as_bytes());
        }
        result.build()
    }

    /// What sources are that are native histograms, one of which is `histogram`: as the config
    /// says, else as the histogram does.
    pub(super) fn kind_of_natives(&self, histogram: &Histogram) -> Kind {
        if self.op != Op::Sum {
            return Kind::Gauge;
        }
        let by_hint = match histogram.reset_hint {
            ResetHint::Gauge => Kind::Gauge,
            ResetHint::Unknown | ResetHint::Reset | ResetHint::NotReset => Kind::Counter,
        };
        self.kind.unwrap_or(by_hint)
    }

    /// What the source named `name` is: as the config says, else as metadata does, else by the
    /// ending of its name.
    pub(super) fn kind_of(&self, name: &[u8], metadata: Option<Kind>) -> Kind {
        if self.op != Op::Sum {
            return Kind::Gauge;
        }
        let by_name = || match COUNTER_ENDINGS.iter().any(|end| name.ends_with(end)) {
            true => Kind::Counter,
            false => Kind::Gauge,
        };
        self.kind.or(metadata).unwrap_or_else(by_name)
    }
}
