//! Minimises an expression for which two systems return different answers.
//!
//! The search is greedy: among all expressions that are one step smaller, the first for which the
//! answers still differ becomes the new best, until there is none or the tries are used up. A step
//! replaces the whole by a part, or removes a matcher, an offset or a grouping label.

use crate::questions::parse;
use firn_model::labels::METRIC_NAME;
use firn_promql::ast::{
    AggregateGrouping, Expr, ExprKind, QueryDuration, ValueType, VectorSelector,
};

/// Maximum number of expressions that are tried for one query, each of which is sent to both
/// systems.
const TRIES_MAX: usize = 48;

/// Maximum length of an expression that is minimised; longer ones would take too long.
const TEXT_BYTES_MAX: usize = 8_192;

/// Returns the smallest expression found for which `differs` is true, as it must be for `expr`.
pub fn minimise(expr: &Expr, differs: &mut dyn FnMut(&Expr) -> bool) -> String {
    let mut best = expr.without_parens().clone();
    let mut tries = 0;
    'smaller: while tries < TRIES_MAX && best.to_string().len() <= TEXT_BYTES_MAX {
        for step in steps(&best) {
            let text = step.without_parens().to_string();
            // A part may be invalid in its new position.
            let Ok(step) = parse(&text) else {
                continue;
            };
            tries += 1;
            if differs(&step) {
                best = step;
                continue 'smaller;
            }
            if tries >= TRIES_MAX {
                break;
            }
        }
        break;
    }
    best.to_string()
}

/// Returns all expressions that are one step smaller, starting with the smallest. Some of them may
/// be invalid.
fn steps(expr: &Expr) -> Vec<Expr> {
    let mut parts = Vec::new();
    expr.for_each_child(&mut |child| collect_parts(child, &mut parts));
    parts.extend(inner_steps(expr));
    parts
}

/// Adds `expr` if it can be queried on its own, otherwise those of its parts that can. Parts that
/// read no series are skipped.
fn collect_parts(expr: &Expr, into: &mut Vec<Expr>) {
    let mut reads = false;
    expr.visit(&mut |node| {
        reads |= matches!(node.kind, ExprKind::Vector(_) | ExprKind::Matrix(_));
    });
    match expr.value_type() {
        _ if !reads => {}
        ValueType::Vector | ValueType::Scalar => into.push(expr.clone()),
        ValueType::Matrix | ValueType::String => {
            expr.for_each_child(&mut |child| collect_parts(child, into));
        }
    }
}

/// Returns the variants of `expr` in which one part has been made smaller by one step.
fn inner_steps(expr: &Expr) -> Vec<Expr> {
    let mut found: Vec<Expr> = own_steps(&expr.kind)
        .into_iter()
        .map(|kind| Expr::new(kind, expr.span))
        .collect();
    let mut children = Vec::new();
    expr.for_each_child(&mut |child| {
        let mut smaller = Vec::new();
        child.for_each_child(&mut |part| {
            if part.value_type() == child.value_type() {
                smaller.push(part.clone());
            }
        });
        smaller.extend(inner_steps(child));
        children.push(smaller);
    });
    for (place, smaller) in children.into_iter().enumerate() {
        for part in smaller {
            let mut whole = expr.clone();
            let mut at = 0;
            let mut part = Some(part);
            whole.for_each_child_mut(&mut |child| {
                if at == place
                    && let Some(part) = part.take()
                {
                    *child = part;
                }
                at += 1;
            });
            found.push(whole);
        }
    }
    found
}

/// Returns the variants of a node without one of its own elements: a matcher, offset or grouping
/// label.
fn own_steps(kind: &ExprKind) -> Vec<ExprKind> {
    match kind {
        ExprKind::Vector(vector) => {
            let smaller = selector_steps(vector).into_iter();
            smaller.map(ExprKind::Vector).collect()
        }
        ExprKind::Matrix(matrix) => {
            let smaller = selector_steps(&matrix.vector).into_iter();
            let whole = |vector| {
                let mut matrix = matrix.clone();
                matrix.vector = vector;
                ExprKind::Matrix(matrix)
            };
            smaller.map(whole).collect()
        }
        ExprKind::Aggregate(aggregate) => {
            let (AggregateGrouping::By(labels) | AggregateGrouping::Without(labels)) =
                &aggregate.grouping;
            let without = |place: usize| {
                let mut smaller = aggregate.clone();
                let (AggregateGrouping::By(labels) | AggregateGrouping::Without(labels)) =
                    &mut smaller.grouping;
                labels.remove(place);
                ExprKind::Aggregate(smaller)
            };
            (0..labels.len()).map(without).collect()
        }
        _ => Vec::new(),
    }
}

fn selector_steps(vector: &VectorSelector) -> Vec<VectorSelector> {
    let mut found = Vec::new();
    if vector.offset != QueryDuration::default() {
        let mut smaller = vector.clone();
        smaller.offset = QueryDuration::default();
        found.push(smaller);
    }
    for (place, matcher) in vector.matchers.iter().enumerate() {
        if matcher.name() != METRIC_NAME && vector.matchers.len() > 1 {
            let mut smaller = vector.clone();
            smaller.matchers.remove(place);
            found.push(smaller);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, needed: &[&str], expected: &str) {
        let expr = parse(text).unwrap();
        let mut tries = 0;
        let found = minimise(&expr, &mut |step| {
            tries += 1;
            let step = step.to_string();
            needed.iter().all(|part| step.contains(part))
        });
        assert_eq!(found, expected, "{text} with {needed:?}");
        assert!(tries <= TRIES_MAX, "{tries}");
    }

    #[test]
    fn minimised_expression_keeps_what_differs_and_no_more() {
        let text = "topk(3, sum by (a, b) (rate(x{j=\"1\",k=~\"2\"}[5m] offset 1h)) / 2) or (zz)";
        check(text, &["x"], "rate(x[5m])");
        check(text, &["zz"], "zz");
        check(text, &["sum", "k="], "sum(rate(x{k=~\"2\"}[5m]))");
        check(text, &["by (b)"], "sum by (b) (rate(x[5m]))");
        check(text, &["topk"], "topk(3, rate(x[5m]))");
        check(text, &["offset"], "rate(x[5m] offset 1h)");
        check("max_over_time(sum(x)[1h:1m])", &["x"], "x");
        check("x", &["x"], "x");
        check("{a=\"b\",c=\"d\"}", &["a"], "{a=\"b\"}");
        check("1 + 2", &["1"], "1 + 2");
        check(
            "label_replace(x, \"a\", \"b\", \"c\", \"d\")",
            &["label_replace"],
            "label_replace(x, \"a\", \"b\", \"c\", \"d\")",
        );
    }

    #[test]
    fn expression_of_many_parts_is_tried_a_bounded_number_of_times() {
        let text = vec!["sum(rate(x{a=\"1\"}[5m]))"; 60].join(" + ");
        let expr = parse(&text).unwrap();
        let mut tries = 0;
        let found = minimise(&expr, &mut |_| {
            tries += 1;
            false
        });
        assert_eq!((found, tries), (text, TRIES_MAX));
    }
}
