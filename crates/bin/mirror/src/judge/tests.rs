//! Tests of the comparison of two answers.

use super::*;
use serde_json::json;

const LOOSE: ComparisonRules = ComparisonRules {
    values: ValueComparison::Numbers(Tolerance {
        relative: 1e-12,
        absolute: 0.0,
        ulps: 0,
    }),
    ordered: false,
    to_the_letter: false,
};

const ORDERED: ComparisonRules = ComparisonRules {
    values: ValueComparison::Numbers(Tolerance {
        relative: 0.0,
        absolute: 0.0,
        ulps: 0,
    }),
    ordered: true,
    to_the_letter: false,
};

const LETTER: ComparisonRules = ComparisonRules {
    values: ValueComparison::Texts,
    ordered: true,
    to_the_letter: true,
};

fn vector(elements: &[(&str, &str)]) -> Value {
    let result: Vec<Value> = elements
        .iter()
        .map(|(name, value)| json!({"metric": {"n": name, "of": "all"}, "value": [1.5, value]}))
        .collect();
    json!({"status": "success", "data": {"resultType": "vector", "result": result}})
}

fn matrix(series: &[(&str, Value)]) -> Value {
    let result: Vec<Value> = series
        .iter()
        .map(|(name, samples)| json!({"metric": {"n": name, "of": name}, "values": samples}))
        .collect();
    json!({"status": "success", "data": {"resultType": "matrix", "result": result}})
}

/// Returns the classes of the differences, and the text of the first place, if there is one.
fn judge(
    baseline: &Value,
    candidate: &Value,
    rules: ComparisonRules,
) -> (Vec<&'static str>, String) {
    let (b, c) = (baseline.to_string(), candidate.to_string());
    let b = ApiAnswer::parse(b.as_bytes()).unwrap();
    let c = ApiAnswer::parse(c.as_bytes()).unwrap();
    let found = differences(&b, &c, rules);
    let classes = found
        .classes()
        .into_iter()
        .map(DifferenceClass::as_str)
        .collect();
    (
        classes,
        found
            .first()
            .map_or(String::new(), DifferenceSpot::to_string),
    )
}

fn check(
    baseline: &Value,
    candidate: &Value,
    rules: ComparisonRules,
    classes: &[&str],
    part: &str,
) {
    let (found, first) = judge(baseline, candidate, rules);
    assert_eq!(found, classes, "{first}");
    assert!(first.contains(part), "{first:?} does not say {part:?}");
}

#[test]
fn vectors_differ_by_series_values_and_order_where_there_is_one() {
    let ab = vector(&[("a", "1"), ("b", "2")]);
    let ba = vector(&[("b", "2"), ("a", "1")]);
    check(&ab, &ba, LOOSE, &[], "");
    check(&ab, &ba, ORDERED, &["order"], "place 0");
    let a = vector(&[("a", "1")]);
    check(&ab, &a, LOOSE, &["missing_series"], "of {n=\"b\"");
    check(&a, &ab, ORDERED, &["extra_series"], "expected null, got 2");
    let ties = vector(&[("a", "1"), ("b", "1")]);
    let turned = vector(&[("b", "1"), ("a", "1")]);
    check(&ties, &turned, ORDERED, &[], "");
    let near = vector(&[("a", "1.0000000000000002"), ("b", "2")]);
    check(&ab, &near, LOOSE, &[], "");
    check(
        &ab,
        &near,
        ORDERED,
        &["value"],
        "value: expected 1, got 1.0000000000000002 at 1.500 of {n=",
    );
    let nan = vector(&[("a", "NaN"), ("b", "2")]);
    check(&nan, &nan, LOOSE, &[], "");
    check(&ab, &nan, LOOSE, &["value"], "NaN");
    let other_text = vector(&[("a", "1.0"), ("b", "2")]);
    check(&ab, &other_text, ORDERED, &[], "");
    check(&ab, &other_text, LETTER, &["value"], "1.0");
}

#[test]
fn series_with_another_label_and_the_same_points_is_relabelled() {
    let renamed = |label: &str| {
        let series = json!({"metric": {label: "x", "of": "all"}, "value": [1.5, "7"]});
        json!({"status": "success", "data": {"resultType": "vector", "result": [series]}})
    };
    check(
        &renamed("job"),
        &renamed("jobs"),
        ORDERED,
        &["labels"],
        "expected {job=\"x\"}, got {jobs=\"x\"}",
    );
    let both_differ = vector(&[("b", "8")]);
    let classes = ["missing_series", "extra_series"];
    check(
        &renamed("n"),
        &both_differ,
        ORDERED,
        &classes,
        "missing series",
    );
}

#[test]
fn answers_differ_by_error_and_annotations() {
    let fail =
        |kind: &str, text: &str| json!({"status": "error", "errorType": kind, "error": text});
    check(&fail("a", "x"), &fail("a", "y"), LOOSE, &[], "");
    check(
        &fail("a", "x"),
        &fail("a", "y"),
        LETTER,
        &["error"],
        "got error a: y",
    );
    check(
        &fail("a", "x"),
        &fail("b", "x"),
        LOOSE,
        &["error"],
        "status",
    );
    check(
        &vector(&[]),
        &fail("a", "b"),
        LOOSE,
        &["error"],
        "expected success",
    );
    let with = |texts: Value| {
        let mut answer = vector(&[]);
        answer["infos"] = texts;
        answer
    };
    check(
        &with(json!(["y", "x"])),
        &with(json!(["x", "y"])),
        LOOSE,
        &[],
        "",
    );
    check(
        &with(json!(["x"])),
        &vector(&[]),
        LOOSE,
        &["warnings"],
        "infos",
    );
    let cut = |one: &str| with(json!([one, "5 more info annotations omitted"]));
    check(&cut("x"), &cut("y"), LOOSE, &[], "");
}

#[test]
fn matrices_differ_by_points_and_series() {
    let of = |samples: Value| matrix(&[("a", samples)]);
    let two = of(json!([[1, "1"], [2, "2"]]));
    check(&two, &two, LETTER, &[], "");
    let moved = of(json!([[1, "1"], [3, "2"]]));
    let classes = ["missing_point", "extra_point"];
    check(
        &two,
        &moved,
        LOOSE,
        &classes,
        "at 2.000 of {n=\"a\", of=\"a\"}",
    );
    let short = of(json!([[1, "1"]]));
    check(
        &two,
        &short,
        LOOSE,
        &["missing_point"],
        "expected 2, got null",
    );
    check(
        &short,
        &two,
        LOOSE,
        &["extra_point"],
        "expected null, got 2",
    );
    let one = |n: &str| (n.to_owned(), json!([[1, "1"]]));
    let (a, b) = (one("a"), one("b"));
    let ab = matrix(&[(&a.0, a.1.clone()), (&b.0, b.1.clone())]);
    let ba = matrix(&[(&b.0, b.1), (&a.0, a.1)]);
    check(&ab, &ba, ORDERED, &[], "");
    check(&ab, &ba, LETTER, &["order"], "place 0");
}

#[test]
fn histograms_are_compared_field_by_field() {
    let of = |count: &str, bound: &str| {
        let h = json!({"count": count, "sum": "3", "buckets": [[0, "1", bound, "4"]]});
        let series = json!({"metric": {}, "histogram": [1, h]});
        json!({"status": "success", "data": {"resultType": "vector", "result": [series]}})
    };
    check(&of("4", "2"), &of("4.0", "2"), ORDERED, &[], "");
    check(
        &of("4", "2"),
        &of("5", "2"),
        ORDERED,
        &["value"],
        "\"count\":\"5\"",
    );
    check(&of("4", "2"), &of("4", "2.1"), ORDERED, &["value"], "2.1");
    let float = json!({"metric": {}, "value": [1, "4"]});
    let float = json!({"status": "success", "data": {"resultType": "vector", "result": [float]}});
    check(&of("4", "2"), &float, ORDERED, &["value"], "got 4");
}

#[test]
fn kinds_of_results_and_other_data_are_compared() {
    let scalar = |value: &str| json!({"status": "success", "data": {"resultType": "scalar", "result": [1, value]}});
    check(
        &scalar("1"),
        &scalar("2"),
        LOOSE,
        &["value"],
        "scalar: expected 1, got 2 at 1.000",
    );
    check(&scalar("1"), &vector(&[]), LOOSE, &["value"], "resultType");
    let names = |names: Value| json!({"status": "success", "data": names});
    check(
        &names(json!(["a"])),
        &names(json!(["b"])),
        LOOSE,
        &["value"],
        "data",
    );
}
