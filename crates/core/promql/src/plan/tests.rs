//! Tests of plans: constant folding, and marks of values that are needed several times.

use super::*;
use crate::Features;
use crate::parser::parse;

const TIMES: QueryTimes = QueryTimes {
    start: 60_000,
    end: 180_000,
    step_ms: 15_000,
    step_ns: 15_000_000_000,
};

/// Checks that the plan of `text` is the constant `want`, bit by bit, or not constant at all.
fn check(text: &str, want: Option<f64>) {
    let expr = parse(text, Features::ALL).expect("the expressions are valid");
    let got = match plan(&expr, &TIMES).kind {
        PlanNodeKind::Number(number) => Some(number),
        _ => None,
    };
    let bits = |number: Option<f64>| number.map(f64::to_bits);
    assert_eq!(bits(got), bits(want), "{text}: {got:?}");
}

#[test]
fn expressions_of_numbers_are_numbers() {
    for (text, want) in [
        ("1 + 2 * 3", 7.0),
        ("-(2 ^ 2)", -4.0),
        ("-0", -0.0),
        ("1 / 0", f64::INFINITY),
        ("-1 / 0", f64::NEG_INFINITY),
        ("+(1) >= bool 2", 0.0),
        ("pi() / 2", std::f64::consts::FRAC_PI_2),
        ("max_of(1, min_of(3, 2))", 2.0),
        ("(end() - start()) / step()", 8.0),
        ("5 % 3 atan2 1", 2f64.atan2(1.0)),
    ] {
        check(text, Some(want));
    }
    let zero = std::hint::black_box(0.0);
    check("0 / 0", Some(zero / zero));
    for text in [
        "time()",
        "1 + time()",
        "scalar(x)",
        "vector(1)",
        "1 + x",
        "-x",
        "+x",
    ] {
        check(text, None);
    }
}

#[test]
fn places_that_need_a_value_twice_are_marked_with_their_spans() {
    let text = "a / (b + a)";
    let expr = parse(text, Features::ALL).expect("the expression is valid");
    let PlanNodeKind::Binary(division) = plan(&expr, &TIMES).kind else {
        panic!("a division is a binary operation");
    };
    let PlanNodeKind::Binary(sum) = &division.right.kind else {
        panic!("a sum is a binary operation");
    };
    assert!(division.right.shared.is_none() && sum.left.shared.is_none());
    let marks =
        [&division.left, &sum.right].map(|node| node.shared.clone().expect("`a` is marked"));
    assert_eq!(marks[0].class, marks[1].class);
    for (mark, start) in marks.iter().zip([0, 9]) {
        assert_eq!((mark.uses, mark.of_samples), (2, false));
        let place = mark.places[mark.span.start as usize];
        assert_eq!(place, start, "{:?}", mark.places);
    }
}
