//! Finds probable mistakes in a query: hints for its author.
//!
//! Invariant: the plan, the metadata, the names of metrics or the samples prove the reason of a
//! hint. Hints that depend on samples are only created after an evaluation.

use super::metric_kinds::MetricKind;
use super::probe::ProbedSamples;
use super::{PlannedExpr, ReportBuilder, selector_of};
use crate::ast::{AggregateOp, BinaryOp, MatchCardinality, WindowEdges};
use crate::eval::account::storage_error;
use crate::eval::meter::{NodeMeasurements, UnmatchedSeries};
use crate::functions::{Function, FunctionEvaluation, FunctionId};
use crate::plan::{PlanBinary, PlanNode, PlanNodeKind, PlanSelector};
use crate::printer::format_matcher;
use crate::report::{HintKind, QueryHint};
use crate::value::PromqlError;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::METRIC_NAME;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::metadata::MetricType;
use firn_model::units::format_duration;
use std::time::Duration;

/// Longest range that is compared with the scrape interval, in milliseconds.
const SHORT_RANGE_MS_MAX: i64 = 10 * 60 * 1000;

/// Permitted deviation of scrapes from their interval: one part in this number.
const JITTER_PART: i64 = 20;

/// Label with the type of a metric, which some sources add to each series.
const TYPE_LABEL: &str = "__type__";

/// The use of the value of a node by the operations around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeUse {
    /// True if only the existence, the changes or the time of the value matter.
    ignores_value: bool,
    /// The function whose argument is the node.
    function: Option<&'static Function>,
}

impl NodeUse {
    /// Returns the use of the operand of `node` with this index.
    pub(super) fn of_child(self, node: &PlanNode, index: usize) -> Self {
        let ignores_here = match &node.kind {
            PlanNodeKind::Call(function, _) => ignores_values(function, index),
            PlanNodeKind::Aggregate(aggregate) => matches!(
                aggregate.op,
                AggregateOp::Count | AggregateOp::Group | AggregateOp::CountValues
            ),
            PlanNodeKind::Binary(binary) => is_existence_test(binary, index),
            _ => false,
        };
        let function = match &node.kind {
            PlanNodeKind::Call(function, _) => Some(*function),
            _ => None,
        };
        Self {
            ignores_value: self.ignores_value || ignores_here,
            function,
        }
    }
}

/// Returns whether a function ignores the absolute values of its argument `index`.
fn ignores_values(function: &Function, index: usize) -> bool {
    use FunctionId as F;
    match function.id {
        F::Absent | F::Timestamp | F::StartTimestamp => true,
        F::Info => index > 0,
        _ => matches!(function.evaluation, FunctionEvaluation::Range(_)),
    }
}

/// Returns whether an operand only selects series by their existence, or by being zero.
fn is_existence_test(binary: &PlanBinary, index: usize) -> bool {
    let is_zero = |node: &PlanNode| matches!(node.kind, PlanNodeKind::Number(0.0));
    match binary.op {
        BinaryOp::And | BinaryOp::Unless => index == 1,
        op => op.is_comparison() && (is_zero(&binary.left) || is_zero(&binary.right)),
    }
}

impl ReportBuilder<'_> {
    /// Returns the hints about one node.
    pub(super) fn hints(
        &self,
        at: PlannedExpr<'_>,
        usage: NodeUse,
        measured: &NodeMeasurements,
    ) -> Result<Vec<QueryHint>, PromqlError> {
        let mut hints = Vec::new();
        if let Some(selector) = selector_of(at.node) {
            let matchers = selector.matchers.iter();
            hints.extend(matchers.filter_map(matches_everything));
        }
        match &at.node.kind {
            PlanNodeKind::Vector(selector) if !usage.ignores_value => {
                let kind = self.metric_kind(selector, measured);
                hints.extend(kind.and_then(|(name, kind)| counter_without_rate(&name, kind)));
            }
            PlanNodeKind::Matrix(selector, range_ms) => {
                if let Some(function) = usage.function {
                    let window = RangeWindow {
                        selector,
                        range_ms: *range_ms,
                        function,
                    };
                    self.add_range_hints(window, at, measured, &mut hints)?;
                }
            }
            PlanNodeKind::Binary(binary) => {
                let unmatched = measured.unmatched;
                hints.extend(unmatched.and_then(|found| join_drops_series(binary, found)));
            }
            _ => {}
        }
        Ok(hints)
    }

    fn add_range_hints(
        &self,
        window: RangeWindow<'_>,
        at: PlannedExpr<'_>,
        measured: &NodeMeasurements,
        hints: &mut Vec<QueryHint>,
    ) -> Result<(), PromqlError> {
        let is_rate = matches!(
            window.function.id,
            FunctionId::Rate | FunctionId::Irate | FunctionId::Increase
        );
        let kind = self.metric_kind(window.selector, measured);
        let kind = kind.filter(|_| is_rate);
        let may_be_gauge = matches!(kind, Some((_, MetricKind::Unknown)));
        let can_probe = self.evaluated.is_some() && at.grid.count > 0;
        let probed = if can_probe && (may_be_gauge || window.may_be_short()) {
            match self.probe(window.selector, &measured.sampled, at) {
                Ok(probed) => probed,
                Err(e) if is_end(&e) => return Err(storage_error(e)),
                // A failed probe loses hints, not the result of the evaluation.
                Err(_) => ProbedSamples::default(),
            }
        } else {
            ProbedSamples::default()
        };
        if let Some((name, kind)) = kind {
            hints.extend(rate_of_gauge(window.function, &name, kind, probed));
        }
        hints.extend(window.short_range(probed));
        Ok(())
    }

    /// Returns the name and the kind of the metric of a selector, if the selector fixes the name.
    fn metric_kind(
        &self,
        selector: &PlanSelector,
        measured: &NodeMeasurements,
    ) -> Option<(String, MetricKind)> {
        let is_name = |m: &&Matcher| m.name() == METRIC_NAME && m.op() == MatchOp::Equal;
        // Without such a matcher, the names of the series may differ.
        let matcher = selector.matchers.iter().find(is_name)?;
        let name = String::from_utf8(matcher.value().to_vec()).ok()?;
        let sampled = measured.sampled.first();
        let label = sampled
            .map(|labels| labels.get(TYPE_LABEL))
            .unwrap_or_default();
        let of_label =
            std::str::from_utf8(label).map_or(MetricType::Unknown, MetricType::from_name);
        let type_of = |family: &str| match of_label {
            MetricType::Unknown => (self.sources.family_type)(family),
            known => Some(known),
        };
        let kind = MetricKind::from_name(&name, type_of);
        Some((name, kind))
    }
}

/// A range selector as the argument of a function.
#[derive(Clone, Copy)]
struct RangeWindow<'a> {
    selector: &'a PlanSelector,
    range_ms: i64,
    function: &'static Function,
}

impl RangeWindow<'_> {
    /// Returns whether the function requires two samples and the window may be shorter than two
    /// scrape intervals.
    fn may_be_short(self) -> bool {
        let needs_two = match self.function.id {
            FunctionId::Changes | FunctionId::Resets => true,
            _ => self.function.window.is_some_and(|w| w.samples_min > 1),
        };
        needs_two
            && self.selector.edges == WindowEdges::Plain
            && self.range_ms <= SHORT_RANGE_MS_MAX
    }

    fn short_range(self, probed: ProbedSamples) -> Option<QueryHint> {
        let interval_ms = probed.interval_ms.filter(|_| self.may_be_short())?;
        let needed_ms = 2 * interval_ms;
        if self.range_ms >= needed_ms - needed_ms / JITTER_PART {
            return None;
        }
        let function = self.function.name;
        let text = format!(
            "the range {} is shorter than two scrapes of these series, which have a sample every \
             {}: many windows have fewer than the two samples that {function} needs; use a range \
             of at least {}",
            duration(self.range_ms),
            duration(interval_ms),
            duration(4 * interval_ms),
        );
        Some(hint(HintKind::ShortRange, text))
    }
}

fn is_end(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Canceled | ErrorKind::Timeout)
}

fn hint(kind: HintKind, text: String) -> QueryHint {
    QueryHint { kind, text }
}

fn duration(ms: i64) -> String {
    format_duration(Duration::from_millis(ms.unsigned_abs()))
}

fn matches_everything(matcher: &Matcher) -> Option<QueryHint> {
    let advice = if matcher.matches_everything() {
        "remove it"
    } else if matcher.name() == METRIC_NAME && matcher.matches_any_non_empty() {
        "name the metrics that you need"
    } else {
        return None;
    };
    let matcher = format_matcher(matcher);
    let text = format!("the matcher {matcher} matches every series; {advice}");
    Some(hint(HintKind::MatchesEverything, text))
}

fn counter_without_rate(name: &str, kind: MetricKind) -> Option<QueryHint> {
    let reason = match kind {
        MetricKind::Counter => "by its metadata",
        MetricKind::CounterByName => "by its name",
        _ => return None,
    };
    let text = format!(
        "{name} is a counter {reason}: its value depends on the last restart of its source; use \
         rate({name}[5m]) or increase"
    );
    Some(hint(HintKind::CounterWithoutRate, text))
}

fn rate_of_gauge(
    function: &Function,
    name: &str,
    kind: MetricKind,
    probed: ProbedSamples,
) -> Option<QueryHint> {
    let reason = match kind {
        MetricKind::Gauge => "is not a counter by its metadata",
        MetricKind::Unknown if probed.has_floats => {
            "is probably a gauge: its name does not end in _total, _sum, _count or _bucket and it \
             has no metadata"
        }
        _ => return None,
    };
    let function = function.name;
    let text = format!(
        "{name} {reason}; {function} takes each decrease for a reset of a counter; use delta or \
         deriv for a gauge"
    );
    Some(hint(HintKind::RateOfGauge, text))
}

fn join_drops_series(binary: &PlanBinary, found: UnmatchedSeries) -> Option<QueryHint> {
    let matching = &binary.matching;
    let (mut left, mut right) = (found.left, found.right);
    // The series of the "one" side describe other series, some of which may be absent.
    match matching.cardinality {
        MatchCardinality::ManyToOne => right.0 = 0,
        MatchCardinality::OneToMany => left.0 = 0,
        MatchCardinality::OneToOne | MatchCardinality::ManyToMany => {}
    }
    if matching.fill_right.is_some() {
        left.0 = 0;
    }
    if matching.fill_left.is_some() {
        right.0 = 0;
    }
    let part = |(unmatched, all): (usize, usize), side: &str| {
        (unmatched > 0).then(|| format!("{unmatched} of {all} series on the {side} side"))
    };
    let parts: Vec<String> = [part(left, "left"), part(right, "right")]
        .into_iter()
        .flatten()
        .collect();
    if parts.is_empty() {
        return None;
    }
    let text = format!(
        "no series on the other side has the same labels as {}, so they are not in the result; \
         compare the labels, or use on, ignoring or fill",
        parts.join(" and ")
    );
    Some(hint(HintKind::JoinDropsSeries, text))
}
