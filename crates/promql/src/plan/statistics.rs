//! Which selectors are read without the buckets of histograms, because only count and sum matter.
//!
//! This is no matter of speed alone: without buckets there are no bounds that differ, and what a
//! counter lost shows in hints that are worked out while reading. So remarks are upstream's only if
//! the same selectors are chosen (`detectHistogramStatsDecoding`).

use super::{Node, NodeKind};
use crate::ast::BinaryOp;
use crate::depth::deeper;
use crate::functions::OfHistograms;

/// Marks the selectors under `node`.
pub(super) fn mark(node: &mut Node) {
    walk(node, false, false);
}

/// `counted`: below a function that asks for count or sum. `needs_buckets`: below something that
/// needs all buckets, however far above; that wins.
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
