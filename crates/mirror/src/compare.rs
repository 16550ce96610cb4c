//! Says whether two answers of the HTTP API are the same, and if not, where they first differ.
//!
//! Equal must be: status, error type and text, annotations as sets, the kind of the result, label
//! sets, timestamps, the order of series where PromQL defines one, and values as [`Values`] says.
//! The order of elements with equal values is not specified and not compared.

use serde_json::Value;

/// How values are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Their texts are equal: the same bits.
    Exact,
    /// They differ by at most this share of the larger one.
    Within(f64),
}

/// What to hold two answers to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// How values are compared.
    pub values: Values,
    /// Whether the elements of an instant vector have an order.
    pub ordered: bool,
}

/// The first difference between the expected and the actual answer, in words; `None` if they are
/// the same.
pub fn difference(expected: &Value, actual: &Value, rules: Rules) -> Option<String> {
    if expected.is_string() || actual.is_string() {
        return (expected != actual).then(|| differs("answer", expected, actual));
    }
    if expected["status"] != actual["status"] {
        let text = |answer: &Value| format!("{} {}", answer["status"], answer["error"]);
        let (expected, actual) = (text(expected), text(actual));
        return Some(format!("status: expected {expected}, got {actual}"));
    }
    for part in ["errorType", "error"] {
        if expected[part] != actual[part] {
            return Some(differs(part, &expected[part], &actual[part]));
        }
    }
    for part in ["warnings", "infos"] {
        let (expected, actual) = (sorted(&expected[part]), sorted(&actual[part]));
        if expected != actual {
            return Some(format!("{part}: expected {expected:?}, got {actual:?}"));
        }
    }
    let (expected, actual) = (&expected["data"], &actual["data"]);
    let kind = &expected["resultType"];
    if *kind != actual["resultType"] {
        return Some(differs("resultType", kind, &actual["resultType"]));
    }
    if kind.is_null() {
        return (expected != actual).then(|| differs("data", expected, actual));
    }
    let (expected, actual) = (&expected["result"], &actual["result"]);
    match kind.as_str() {
        Some("scalar") => sample_difference(expected, actual, rules.values),
        Some("vector") => vector_difference(list(expected), list(actual), rules),
        Some("matrix") => matrix_difference(list(expected), list(actual), rules.values),
        _ => (expected != actual).then(|| differs("result", expected, actual)),
    }
}

fn differs(what: &str, expected: &Value, actual: &Value) -> String {
    format!("{what}: expected {expected}, got {actual}")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn sorted(value: &Value) -> Vec<&str> {
    let mut texts: Vec<_> = list(value).iter().filter_map(Value::as_str).collect();
    texts.sort_unstable();
    texts
}

fn vector_difference(expected: &[Value], actual: &[Value], rules: Rules) -> Option<String> {
    if rules.ordered {
        let count = expected.len().min(actual.len());
        for (place, (e, a)) in expected.iter().zip(&actual[..count]).enumerate() {
            let difference = element_difference(e, a, rules.values);
            if let Some(difference) = difference {
                return Some(format!("place {place}: {difference}"));
            }
        }
    }
    let mut left: Vec<&Value> = actual.iter().collect();
    for e in expected {
        let Some(at) = left.iter().position(|a| a["metric"] == e["metric"]) else {
            return Some(format!("missing: {e}"));
        };
        let a = left.swap_remove(at);
        let difference = element_difference(e, a, rules.values);
        if let Some(difference) = difference {
            return Some(format!("{}: {difference}", e["metric"]));
        }
    }
    left.first().map(|a| format!("not expected: {a}"))
}

fn matrix_difference(expected: &[Value], actual: &[Value], values: Values) -> Option<String> {
    for (e, a) in expected.iter().zip(actual) {
        if e["metric"] != a["metric"] {
            return Some(differs("series", &e["metric"], &a["metric"]));
        }
        let (e_samples, a_samples) = (list(&e["values"]), list(&a["values"]));
        for (e_sample, a_sample) in e_samples.iter().zip(a_samples) {
            if let Some(difference) = sample_difference(e_sample, a_sample, values) {
                return Some(format!("{}: {difference}", e["metric"]));
            }
        }
        if e_samples.len() != a_samples.len() {
            let counts = (e_samples.len(), a_samples.len());
            return Some(format!(
                "{}: {} samples, got {}",
                e["metric"], counts.0, counts.1
            ));
        }
        if !same(&e["histograms"], &a["histograms"], values) {
            return Some(differs("histograms", &e["histograms"], &a["histograms"]));
        }
    }
    (expected.len() != actual.len())
        .then(|| format!("{} series, got {}", expected.len(), actual.len()))
}

/// Of two elements of an instant vector, each a float or a histogram.
fn element_difference(expected: &Value, actual: &Value, values: Values) -> Option<String> {
    let (e, a) = (&expected["histogram"], &actual["histogram"]);
    if !same(e, a, values) {
        return Some(differs("histogram", e, a));
    }
    sample_difference(&expected["value"], &actual["value"], values)
}

/// Whether two documents are the same but for the last digits of numbers written as texts.
fn same(expected: &Value, actual: &Value, values: Values) -> bool {
    match (expected, actual) {
        (Value::Array(e), Value::Array(a)) => {
            e.len() == a.len() && e.iter().zip(a).all(|(e, a)| same(e, a, values))
        }
        (Value::Object(e), Value::Object(a)) => {
            e.len() == a.len() && e.iter().all(|(name, e)| same(e, &actual[name], values))
        }
        _ => same_value(expected, actual, values),
    }
}

fn sample_difference(expected: &Value, actual: &Value, values: Values) -> Option<String> {
    let same = expected[0] == actual[0] && same_value(&expected[1], &actual[1], values);
    (!same).then(|| format!("expected {expected}, got {actual}"))
}

fn same_value(expected: &Value, actual: &Value, values: Values) -> bool {
    if expected == actual {
        return true;
    }
    let Values::Within(share) = values else {
        return false;
    };
    let number = |v: &Value| v.as_str().and_then(|text| text.parse::<f64>().ok());
    match (number(expected), number(actual)) {
        (Some(e), Some(a)) => {
            let larger = e.abs().max(a.abs());
            larger.is_finite() && (e - a).abs() <= share * larger
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn vector(elements: &[(&str, &str)]) -> Value {
        let result: Vec<Value> = elements
            .iter()
            .map(|(name, value)| json!({"metric": {"n": name}, "value": [1.5, value]}))
            .collect();
        json!({"status": "success", "data": {"resultType": "vector", "result": result}})
    }

    const LOOSE: Rules = Rules {
        values: Values::Within(1e-12),
        ordered: false,
    };

    const ORDERED: Rules = Rules {
        values: Values::Exact,
        ordered: true,
    };

    fn check(expected: &Value, actual: &Value, rules: Rules, difference_part: Option<&str>) {
        let found = difference(expected, actual, rules);
        match difference_part {
            None => assert_eq!(found, None),
            Some(part) => {
                let found = found.expect("a difference");
                assert!(found.contains(part), "{found:?} does not say {part:?}");
            }
        }
    }

    #[test]
    fn vectors_differ_by_labels_values_and_order_where_there_is_one() {
        let ab = vector(&[("a", "1"), ("b", "2")]);
        let ba = vector(&[("b", "2"), ("a", "1")]);
        check(&ab, &ba, LOOSE, None);
        check(&ab, &ba, ORDERED, Some("place 0"));
        check(&ab, &vector(&[("a", "1")]), LOOSE, Some("missing"));
        check(&vector(&[("a", "1")]), &ab, ORDERED, Some("not expected"));
        let ties = [("a", "1"), ("b", "1")];
        let other = [("b", "1"), ("a", "1")];
        check(&vector(&ties), &vector(&other), ORDERED, None);
        let near = vector(&[("a", "1.0000000000000002"), ("b", "2")]);
        check(&ab, &near, LOOSE, None);
        check(&ab, &near, ORDERED, Some("1.0000000000000002"));
        let nan = vector(&[("a", "NaN"), ("b", "2")]);
        check(&nan, &nan, LOOSE, None);
        check(&ab, &nan, LOOSE, Some("NaN"));
        check(
            &vector(&[("a", "+Inf")]),
            &vector(&[("a", "-Inf")]),
            LOOSE,
            Some("-Inf"),
        );
    }

    #[test]
    fn answers_differ_by_error_and_annotations() {
        let fail = |text: &str| json!({"status": "error", "errorType": "bad_data", "error": text});
        check(&fail("a"), &fail("a"), LOOSE, None);
        check(&fail("a"), &fail("b"), LOOSE, Some("error: expected \"a\""));
        check(&fail("a"), &vector(&[]), LOOSE, Some("status"));
        let mut with_infos = vector(&[]);
        with_infos["infos"] = json!(["y", "x"]);
        let mut turned = vector(&[]);
        turned["infos"] = json!(["x", "y"]);
        check(&with_infos, &turned, LOOSE, None);
        check(&with_infos, &vector(&[]), LOOSE, Some("infos"));
    }

    #[test]
    fn matrices_differ_by_series_timestamps_and_lengths() {
        let matrix = |samples: Value| {
            let result = json!([{"metric": {"n": "a"}, "values": samples}]);
            json!({"status": "success", "data": {"resultType": "matrix", "result": result}})
        };
        let two = matrix(json!([[1, "1"], [2, "2"]]));
        check(&two, &two, ORDERED, None);
        check(
            &two,
            &matrix(json!([[1, "1"], [3, "2"]])),
            LOOSE,
            Some("[3,\"2\"]"),
        );
        check(
            &two,
            &matrix(json!([[1, "1"]])),
            LOOSE,
            Some("2 samples, got 1"),
        );
        let none = json!({"status": "success", "data": {"resultType": "matrix", "result": []}});
        check(&two, &none, LOOSE, Some("1 series, got 0"));
    }
}
