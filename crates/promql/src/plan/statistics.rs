//! Selects the selectors that read histograms without buckets, because only the count and the sum
//! are needed.
//!
//! The selection affects more than speed. Without buckets no bounds can differ, and counter resets
//! are reported as hints that are computed during the read. Annotations therefore equal those of
//! Prometheus only if the same selectors are chosen (`detectHistogramStatsDecoding`).

use super::{Node, NodeKind};
use crate::ast::BinaryOp;
use crate::depth::deeper;
use crate::functions::OfHistograms;

/// Marks the selectors of a plan that need only the count and the sum of histograms.
pub(super) fn mark(node: &mut Node) {
    walk(node, false, false);
}

/// Marks the selectors under `node`. `counted` is true below a function of the count or the sum.
/// `needs_buckets` is true below an operation that needs all buckets, at any distance, and takes
/// precedence.
fn walk(node: &mut Node, counted: bool, needs_buckets: bool) {
    deeper(|| walk_here(node, counted, needs_buckets));
}

fn walk_here(node: &mut Node, counted: bool, needs_buckets: bool) {
    match &mut node.kind {
        NodeKind::Number(_) | NodeKind::Text(_) => {}
        NodeKind::Vector(selector) | NodeKind::Matrix(selector, _) => {
            selector.statistics_only = counted && !needs_buckets;
        }
        NodeKind::Subquery(subquery) => walk(&mut subquery.inner, counted, true),
        NodeKind::Call(function, args) => {
            let counts = function.histograms == OfHistograms::CountAndSum;
            let needs = function.histograms == OfHistograms::Buckets;
            for arg in args {
                walk(arg, counted || counts, needs_buckets || needs);
            }
        }
        NodeKind::Aggregate(aggregate) => {
            walk(&mut aggregate.input, counted, needs_buckets);
            if let Some(param) = &mut aggregate.param {
                walk(param, counted, needs_buckets);
            }
        }
        NodeKind::Binary(binary) => {
            let trims = matches!(binary.op, BinaryOp::TrimUpper | BinaryOp::TrimLower);
            walk(&mut binary.left, counted, needs_buckets || trims);
            walk(&mut binary.right, counted, needs_buckets || trims);
        }
        NodeKind::Negate(inner) | NodeKind::Same(inner) => walk(inner, counted, needs_buckets),
    }
}
