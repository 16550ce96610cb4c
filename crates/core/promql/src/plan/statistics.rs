//! Selects the selectors that read histograms without buckets, because only the count and the sum
//! are needed.
//!
//! The selection affects more than speed. Without buckets no bounds can differ, and counter resets
//! are reported as hints that are computed during the read. Annotations therefore equal those of
//! Prometheus only if the same selectors are chosen (`detectHistogramStatsDecoding`).

use super::{PlanNode, PlanNodeKind};
use crate::ast::BinaryOp;
use crate::depth::ensure_stack;
use crate::functions::HistogramTreatment;

/// Marks the selectors of a plan that need only the count and the sum of histograms.
pub(super) fn mark(node: &mut PlanNode) {
    walk(node, false, false);
}

/// Marks the selectors under `node`. `counted` is true below a function of the count or the sum.
/// `needs_buckets` is true below an operation that needs all buckets, at any distance, and takes
/// precedence.
fn walk(node: &mut PlanNode, counted: bool, needs_buckets: bool) {
    ensure_stack(|| walk_here(node, counted, needs_buckets));
}

fn walk_here(node: &mut PlanNode, counted: bool, needs_buckets: bool) {
    match &mut node.kind {
        PlanNodeKind::Number(_) | PlanNodeKind::Text(_) => {}
        PlanNodeKind::Vector(selector) | PlanNodeKind::Matrix(selector, _) => {
            selector.statistics_only = counted && !needs_buckets;
        }
        PlanNodeKind::Subquery(subquery) => walk(&mut subquery.inner, counted, true),
        PlanNodeKind::Call(function, args) => {
            let counts = function.histograms == HistogramTreatment::CountAndSum;
            let needs = function.histograms == HistogramTreatment::Buckets;
            for arg in args {
                walk(arg, counted || counts, needs_buckets || needs);
            }
        }
        PlanNodeKind::Aggregate(aggregate) => {
            walk(&mut aggregate.input, counted, needs_buckets);
            if let Some(param) = &mut aggregate.param {
                walk(param, counted, needs_buckets);
            }
        }
        PlanNodeKind::Binary(binary) => {
            let trims = matches!(binary.op, BinaryOp::TrimUpper | BinaryOp::TrimLower);
            walk(&mut binary.left, counted, needs_buckets || trims);
            walk(&mut binary.right, counted, needs_buckets || trims);
        }
        PlanNodeKind::Negate(inner) | PlanNodeKind::Same(inner) => {
            walk(inner, counted, needs_buckets)
        }
    }
}
