//! `topk` and `bottomk` over equal values: PromQL does not define which elements are chosen.
//!
//! Two answers that choose differently are both correct if they have the same values at each time
//! and all elements of the candidate's answer occur in the operand, as the baseline evaluates it.

use crate::compare::system::FetchResult;
use crate::compare::verdict::IgnoredLabels;
use crate::judge::answer::{AnswerPoint, AnswerPointValue, ApiAnswer, LabelSet};
use crate::judge::tolerance::Tolerance;
use firn_promql::ast::{AggregateOp, Expr, ExprKind};
use std::collections::{BTreeMap, HashMap};

/// Returns the operand of an expression that is a `topk` or `bottomk`; `None` for all others.
pub fn operand(expr: &Expr) -> Option<String> {
    match &expr.without_parens().kind {
        ExprKind::Aggregate(aggregate)
            if matches!(aggregate.op, AggregateOp::TopK | AggregateOp::BottomK) =>
        {
            Some(aggregate.expr.to_string())
        }
        _ => None,
    }
}

/// Returns whether the answers differ only in the choice among elements of equal value.
pub fn is_choice(
    answers: [&FetchResult; 2],
    operand: &FetchResult,
    tolerance: Tolerance,
    ignored: &IgnoredLabels,
) -> bool {
    let (Ok(mut b), Ok(mut c), Ok(mut all)) =
        (answers[0].answer(), answers[1].answer(), operand.answer())
    else {
        return false;
    };
    for answer in [&mut b, &mut c, &mut all] {
        answer.drop_labels(|name| ignored.contains(name));
    }
    same_values(&b, &c, tolerance) && are_elements(&c, &all, tolerance)
}

fn number(point: &AnswerPoint<'_>) -> Option<f64> {
    match point.value {
        AnswerPointValue::Float(text) => text.parse().ok(),
        AnswerPointValue::Histogram(_) => None,
    }
}

/// Returns the sorted values at each time; `None` if one of them is not a float.
fn values(answer: &ApiAnswer<'_>) -> Option<BTreeMap<i64, Vec<f64>>> {
    let mut by_time = BTreeMap::<i64, Vec<f64>>::new();
    for point in answer.series().iter().flat_map(|series| &series.points) {
        by_time
            .entry(point.time_ms)
            .or_default()
            .push(number(point)?);
    }
    by_time
        .values_mut()
        .for_each(|values| values.sort_by(f64::total_cmp));
    Some(by_time)
}

fn same_values(b: &ApiAnswer<'_>, c: &ApiAnswer<'_>, tolerance: Tolerance) -> bool {
    let (Some(b), Some(c)) = (values(b), values(c)) else {
        return false;
    };
    !b.is_empty()
        && b.len() == c.len()
        && b.iter().zip(&c).all(|((b_time, b), (c_time, c))| {
            let mut pairs = b.iter().zip(c);
            b_time == c_time && b.len() == c.len() && pairs.all(|(b, c)| tolerance.accepts(*b, *c))
        })
}

fn are_elements(c: &ApiAnswer<'_>, all: &ApiAnswer<'_>, tolerance: Tolerance) -> bool {
    let by_labels: HashMap<&LabelSet, &[AnswerPoint<'_>]> = all
        .series()
        .iter()
        .map(|series| (&series.labels, &*series.points))
        .collect();
    c.series().iter().all(|series| {
        let Some(points) = by_labels.get(&series.labels) else {
            return false;
        };
        series.points.iter().all(|point| {
            let place = points.binary_search_by_key(&point.time_ms, |p| p.time_ms);
            let other = place.ok().and_then(|place| number(&points[place]));
            let pair = number(point).zip(other);
            pair.is_some_and(|(c, b)| tolerance.accepts(b, c))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::parse;
    use serde_json::json;

    fn answer(elements: &[(&str, &str)]) -> FetchResult {
        let element = |(name, value): &(&str, &str)| {
            let values = [(1, value), (2, value)];
            json!({"metric": {"n": name}, "values": values})
        };
        let result: Vec<_> = elements.iter().map(element).collect();
        let body = json!({"status": "success", "data": {"resultType": "matrix", "result": result}});
        FetchResult {
            body: body.to_string().into_bytes(),
            fault: None,
        }
    }

    fn check(b: &[(&str, &str)], c: &[(&str, &str)], expected: bool) {
        let all = answer(&[("a", "3"), ("b", "3"), ("c", "3"), ("d", "1")]);
        let (b, c) = (answer(b), answer(c));
        let ignored = IgnoredLabels::default();
        let found = is_choice([&b, &c], &all, Tolerance::default(), &ignored);
        assert_eq!(found, expected, "{b:?} {c:?}");
    }

    #[test]
    fn choice_among_equal_elements_is_known_by_the_operand() {
        check(&[("a", "3"), ("b", "3")], &[("b", "3"), ("c", "3")], true);
        check(&[("a", "3")], &[("d", "3")], false);
        check(&[("a", "3")], &[("other", "3")], false);
        check(&[("a", "3")], &[("d", "1")], false);
        check(&[("a", "3")], &[("a", "3"), ("b", "3")], false);
        check(&[], &[], false);
        let text = |text| operand(&parse(text).unwrap());
        assert_eq!(
            text("(topk(3, sum by (a) (x)))").as_deref(),
            Some("sum by (a) (x)")
        );
        assert_eq!(text("topk(3, x) + 1"), None);
    }
}
