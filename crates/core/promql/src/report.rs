//! The plan of a query for people: a tree of its operations, with the cost of each matcher in the
//! look-up of its selector and, after an evaluation, the resources that each operation used.
//!
//! Invariant: the figures of a node are its own, without those of its children. The samples of all
//! nodes add up to the [`SampleCounts`](crate::value::SampleCounts) of the query.

use crate::depth::ensure_stack;
use firn_model::env::Clock;
use firn_model::metadata::MetricType;
use firn_model::store::MatcherCost;
use std::sync::Arc;
use std::time::Duration;

/// The resolution of samples as they were written.
pub const RAW_RESOLUTION: &str = "raw";

/// An operation of the plan and its operands. Created by [`explain`](crate::explain) and
/// [`analyze`](crate::analyze).
#[derive(Debug)]
pub struct PlanReport {
    /// The kind of the operation, with the names of Prometheus's `/api/v1/parse_query`.
    pub kind: &'static str,
    /// The expression of the node in PromQL's canonical format.
    pub text: String,
    /// The look-up of a selector, `None` for other operations.
    pub selector: Option<SelectorReport>,
    /// The resources that the operation itself used; `None` if the query was not evaluated.
    pub figures: Option<NodeFigures>,
    /// Probable mistakes in the expression of the node itself.
    pub hints: Vec<QueryHint>,
    /// The operands, in the order of the query text.
    pub children: Vec<PlanReport>,
}

impl Drop for PlanReport {
    fn drop(&mut self) {
        let children = std::mem::take(&mut self.children);
        ensure_stack(|| drop(children));
    }
}

/// The look-up of a selector.
#[derive(Debug)]
pub struct SelectorReport {
    /// The matchers, including that of the metric name, in the order of the syntax tree.
    pub matchers: Vec<MatcherReport>,
    /// The resolution of the samples that are read.
    pub resolution: &'static str,
}

/// A matcher and its cost in the look-up.
#[derive(Debug)]
pub struct MatcherReport {
    /// The matcher as in a query: `job="api"`.
    pub text: String,
    /// The number of its series, and whether it is checked on the series that other matchers find.
    pub cost: MatcherCost,
}

/// The resources that one operation of a query used, without its operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFigures {
    /// Number of series: those that a selector found, or those in the value of another operation.
    pub series: u64,
    /// Number of samples that were read and that no earlier step had read, counted like
    /// `samplesRead` of Prometheus.
    pub samples_read: u64,
    /// Number of samples that all steps read together, counted like `totalQueryableSamples` of
    /// Prometheus. The samples of a subquery in a range function are those of its inner steps, and
    /// selectors below it have none.
    pub samples_total: u64,
    /// Number of encoded bytes that were read from memory and disk.
    pub bytes_read: u64,
    /// Number of pages and units of blocks that were in a cache.
    pub cache_hits: u64,
    /// Number of pages and units of blocks that were read from the disk.
    pub cache_misses: u64,
    /// Processor time on all threads. If several operations process a row one after another, their
    /// shares are estimates from some of the rows; the sum is measured.
    pub cpu: Duration,
    /// Maximum number of bytes that the operation had reserved in addition to its operands.
    pub memory_bytes: u64,
}

/// A probable mistake in a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryHint {
    /// The kind of the mistake.
    pub kind: HintKind,
    /// Explanation for the user, with the figures that justify it.
    pub text: String,
}

/// The kinds of mistakes that hints report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintKind {
    /// A range is shorter than two scrape intervals.
    ShortRange,
    /// A function of counters is applied to a gauge.
    RateOfGauge,
    /// The value of a counter is used without a function such as `rate`.
    CounterWithoutRate,
    /// A matcher matches every series.
    MatchesEverything,
    /// A binary operation drops series that have no match on the other side.
    JoinDropsSeries,
}

impl HintKind {
    /// Returns the name of the kind in the API.
    pub fn name(self) -> &'static str {
        match self {
            HintKind::ShortRange => "short_range",
            HintKind::RateOfGauge => "rate_of_gauge",
            HintKind::CounterWithoutRate => "counter_without_rate",
            HintKind::MatchesEverything => "matches_everything",
            HintKind::JoinDropsSeries => "join_drops_series",
        }
    }
}

/// Inputs of a report besides those of the query. The server creates it for each request.
#[derive(Clone, Copy)]
pub struct ReportSources<'a> {
    /// The clock that measures processor time.
    pub clock: &'a Arc<dyn Clock>,
    /// Returns the type of the metric family with this name; `None` if no metadata contains it.
    pub family_type: &'a dyn Fn(&str) -> Option<MetricType>,
}
